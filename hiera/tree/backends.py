"""Data functions of the levels: ``yaml_data``, ``json_data`` and ``eyaml_lookup_key``.

* A data function returns one top-level key at a time. Each file is read once.
* Values must be data: texts, numbers, booleans, null, lists, and mappings with texts or numbers as keys.
* ``json_data`` reads JSON like Ruby's parser: comments are allowed, ``NaN`` and trailing commas are rejected.
* ``eyaml_lookup_key`` reads YAML with encrypted texts. Each decrypted text is a secret.
* Each function reads files that SOPS encrypted. A file for other recipients is an error, unless the level is
  ``optional``. Its values are secrets.
* An unsupported function is an error only if the level has files to read. Puppet skips levels without files, too.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn, Protocol

from hiera.errors import ConfigError, DocumentError, EnvelopeError, LookupFailure, RecipientError
from hiera.eyaml import Decryptor, is_encrypted, key_reader
from hiera.sops import is_sealed
from hiera.sops.identities import Identities
from hiera.tree import psych, ruby_values
from hiera.tree.explain import ABSENT, Absent, Step
from hiera.tree.interpolation import Interpolator, Invocation, Warn, warning
from hiera.tree.locations import Documents, Kind, Location, join
from hiera.tree.ruby_values import OddKey, Symbol
from hiera.tree.schema import LevelConfig
from hiera.values import Decrypted

MAX_DEPTH = 100  # as in Ruby

# A text is matched whole, so that a comment-like part of it stays. An unterminated text is matched as well, otherwise
# the search for its end would restart at each character.
_TEXT_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*+"?|/\*.*?(?:\*/|\Z)|//[^\n]*\n', re.DOTALL)
_UNKNOWN_ESCAPE = re.compile(r'\\(?:u[0-9A-Fa-f]{4}|["\\/bfnrtu]|(.))', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def load_json(data: bytes, path: str) -> Any:
    """Return the value in ``data``. Raises ``DocumentError``, with line and column if known."""
    text = psych.decode(data, path, "utf-8")
    try:
        _verify_depth(text)
        value = json.loads(_cleaned(text), parse_constant=_refuse)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        description = f"{error.msg} at line {error.lineno} column {error.colno}"
    except UnicodeEncodeError:
        description = "an escape of half a character, such as \\ud800, without its other half"
    except ValueError as error:  # a constant, or a number with thousands of digits
        description = str(error)
    raise DocumentError("", f"Unable to parse ({path}): {description}")


def _verify_depth(text: str) -> None:
    """Check the depth, since Python's parser would recurse up to its limit, on the C stack."""
    depth = 0
    for match in _BRACKET.finditer(_TEXT_OR_COMMENT.sub("", text)):
        depth += 1 if match[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"nesting of {depth} is too deep")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"unexpected token at '{constant}'")


def _cleaned(text: str) -> str:
    """Return the text without comments and without Ruby's extra escapes (``\\q`` is ``q``). Positions stay the same."""
    return _TEXT_OR_COMMENT.sub(_clean, text) if "//" in text or "/*" in text or "\\" in text else text


def _clean(match: re.Match[str]) -> str:
    part = match[0]
    if part.startswith("/*") and (len(part) < 4 or not part.endswith("*/")):
        return part
    if part[0] == "/":
        return re.sub(r"[^\n]", " ", part)
    return _UNKNOWN_ESCAPE.sub(lambda escape: escape[1] or escape[0], part) if "\\" in part else part


# Files and values that all data functions share.


class DataFiles:
    """The mappings in files of ``documents``. ``warn`` receives files without a mapping.

    ``identities`` open encrypted files.
    """

    def __init__(self, documents: Documents, warn: Warn, identities: Identities) -> None:
        self.documents = documents
        self._warn = warn
        self._identities = identities
        self._closed: dict[str, RecipientError] = {}
        self._yaml: dict[str, dict[Any, Any]] = {}
        self._json: dict[str, dict[Any, Any]] = {}

    def yaml(self, path: str) -> dict[Any, Any]:
        """Return the mapping in a YAML file, empty without one. Raises ``DocumentError`` and ``LimitError``."""
        if path not in self._yaml:
            data = self._read(path)
            content = self._opened(psych.load(data, path), data, path)
            if not isinstance(content, dict):
                self._warn(warning("file does not contain a valid yaml hash", path))
                content = {}
            self._yaml[path] = content
        return self._yaml[path]

    def json(self, path: str) -> dict[Any, Any]:
        """Return the mapping in a JSON file. Raises ``LookupFailure`` for a file without a mapping."""
        if path not in self._json:
            data = self._read(path)
            content = self._opened(load_json(data, path), data, path)
            if not isinstance(content, dict):
                detail = f"Value returned from data_hash function 'json_data', when using location '{path}',"
                expected = f"has wrong type, expects a Hash value, got {ruby_values.type_name(content)}"
                raise LookupFailure("", f"{detail} {expected}").placed()
            self._json[path] = content
        return self._json[path]

    def _opened(self, content: Any, data: bytes, path: str) -> Any:
        """Return the plain values of an encrypted file, and other content unchanged."""
        if path in self._closed:
            raise self._closed[path]
        text = psych.decode(data, path)
        if not is_sealed(text):
            return content
        from hiera.sops.reading import opened  # 7 % of an idle apply, and most files are plain

        try:
            return opened(content, text, path, self._identities)
        except RecipientError as error:
            # Kept, since each key of the tree searches the file, and each attempt tries all recipients.
            self._closed[path] = error
            raise

    def _read(self, path: str) -> bytes:
        if self.documents.kind(path) is Kind.DIRECTORY:
            raise LookupFailure("", f"{path} is a directory, expected a file").placed()
        return self.documents.read(path)


class DataFunction(Protocol):
    """Data by top-level key. Raises ``LookupFailure``, ``DocumentError``, ``ConfigError`` or ``LimitError``."""

    def names(self, location: Location | None) -> list[str]:
        """Return the keys at a location."""
        ...

    def value(self, key: str, location: Location | None, invocation: Invocation, step: Step) -> Any | Absent:
        """Return the value of a key at a location, interpolated (step 8 of ``lookup``)."""
        ...


class Tools(NamedTuple):
    """Tools that all functions share. ``private_key`` is the default key path of levels."""

    files: DataFiles
    interpolator: Interpolator
    warn: Warn
    private_key: str | None


PATHS = "one of 'path', 'paths' 'glob', 'globs' or 'mapped_paths' must be declared in hiera.yaml"


def texts(content: dict[Any, Any]) -> list[str]:
    """Return the keys that can be looked up."""
    return [name for name in content if isinstance(name, str)]


def verify_value(value: Any, source: str, key: str, location: Location) -> None:
    """Raise ``LookupFailure`` for a value that contains a symbol, or a key other than text or a number."""
    bad = _bad(value)
    if bad is not None:
        detail = f"Value for key '{key}', {source}, when using location '{location.place}', has wrong type"
        raise LookupFailure("", f"{detail}, expects Puppet::LookupValue, got {bad}").placed()


def _bad(value: Any) -> str | None:
    if isinstance(value, dict):
        for name, item in value.items():
            bad = f"the mapping key {name!r}" if isinstance(name, OddKey) else _bad(item)
            if bad is not None:
                return bad
    elif isinstance(value, list):
        return next((bad for bad in map(_bad, value) if bad is not None), None)
    # Puppet accepts these two symbols: undef, and the default of a case.
    elif isinstance(value, Symbol) and value.name not in ("undef", "default"):
        return f"the symbol {value!r}"
    return None


class DataHash:
    """``data_hash``: a whole file at once. With ``module``, keys outside of the module cannot be looked up."""

    def __init__(self, name: str, has_options: bool, module: str | None, tools: Tools) -> None:
        self._name = name
        self._read = tools.files.yaml if name == "yaml_data" else tools.files.json
        self._has_options = has_options
        self._module = module
        self._tools = tools
        self._seen: set[str] = set()

    def names(self, location: Location | None) -> list[str]:
        return texts(self._content(location)[0])

    def value(self, key: str, location: Location | None, invocation: Invocation, step: Step) -> Any | Absent:
        content, location = self._content(location)  # 8a.
        value = content.get(key, ABSENT)
        if value is ABSENT:
            return ABSENT
        verify_value(value, f"in hash returned from data_hash function '{self._name}'", key, location)  # 8b.
        return self._tools.interpolator.resolve(value, invocation, step)  # 8c.

    def _content(self, location: Location | None) -> tuple[dict[Any, Any], Location]:
        # Puppet's functions take only a path, and reject options and URIs with this message.
        if location is None or location.is_uri or self._has_options:
            detail = f"'{self._name}' {PATHS} when using this data_hash function"
            raise ConfigError("", f"{detail}. It takes no options")
        content = self._read(location.place)
        # Once for each file, since this runs for every key of the module.
        if self._module and location.place not in self._seen:
            self._seen.add(location.place)
            self._verify_qualified(content, location)
        return content, location

    def _verify_qualified(self, content: dict[Any, Any], location: Location) -> None:
        source = (
            f"Value returned from data_hash function '{self._name}', when using location '{location.place}'"
        )
        for name in content:
            if not isinstance(name, str):
                detail = f"Module '{self._module}': {source}: the key {name!r} is not text"
                raise LookupFailure("", detail).placed()
            if name != "lookup_options" and not name.startswith(f"{self._module}::"):
                detail = "must use keys qualified with the name of the module"
                self._tools.warn(warning(f"Module '{self._module}': {source}, {detail}: '{name}' is not"))


class Eyaml:
    """Decrypts only requested values."""

    def __init__(self, decryptor: Decryptor, tools: Tools) -> None:
        self._decryptor = decryptor
        self._tools = tools

    def names(self, location: Location | None) -> list[str]:
        """Return the top-level keys, without decryption."""
        return texts(self._content(location)[0])

    def value(self, key: str, location: Location | None, invocation: Invocation, step: Step) -> Any | Absent:
        """Return the value of ``key``, decrypted and interpolated. Raises ``LookupFailure`` without plain text."""
        content, location = self._content(location)  # 8a.
        value = content.get(key, ABSENT)
        if value is ABSENT:
            return ABSENT
        verify_value(value, "returned from lookup_key function 'eyaml_lookup_key'", key, location)  # 8b.
        try:
            value = self._decrypted(value)
        except EnvelopeError as error:
            detail = f"hiera-eyaml backend error decrypting when looking up {key} in {location.place}"
            failure = LookupFailure(
                "", f"{detail}. Error was {error}", code=error.code, depends_on=error.depends_on
            )
            raise failure.placed() from None
        return self._tools.interpolator.resolve(value, invocation, step)  # 8c.

    def _content(self, location: Location | None) -> tuple[dict[Any, Any], Location]:
        if location is None or location.is_uri:
            raise ConfigError("", f"'eyaml_lookup_key': {PATHS} when using this lookup_key function")
        return self._tools.files.yaml(location.place), location

    def _decrypted(self, value: Any) -> Any:
        if isinstance(value, str):
            return Decrypted(self._decryptor.decrypt(value)) if is_encrypted(value) else value
        if isinstance(value, list):
            return [self._decrypted(item) for item in value]
        if isinstance(value, dict):
            return {name: self._decrypted(item) for name, item in value.items()}
        return value


_KNOWN = {"yaml_data": "data_hash", "json_data": "data_hash", "eyaml_lookup_key": "lookup_key"}


def function(
    level: LevelConfig, options: Mapping[str, Any], config_path: str, module: str | None, tools: Tools
) -> DataFunction:
    """Return the function of ``level``, in the ``hiera.yaml`` at ``config_path``."""
    # Do not raise yet: a level without existing files is skipped, with any function.
    if _KNOWN.get(level.function) != level.kind:
        return _Unavailable(_unavailable(level, config_path))
    if level.kind == "data_hash":
        return DataHash(level.function, bool(options), module, tools)
    return _eyaml(options, config_path.rpartition("/")[0], tools)


def _eyaml(options: Mapping[str, Any], directory: str, tools: Tools) -> DataFunction:
    """``directory`` is the base of relative paths of keys."""

    def read(path: str) -> bytes:
        return tools.files.documents.read(join(directory, path))

    return Eyaml(Decryptor(key_reader(options, read, tools.private_key)), tools)


def _unavailable(level: LevelConfig, config_path: str) -> str:
    where = f"(file: {config_path}, hierarchy entry '{level.name}')"
    if level.kind == "hiera3_backend":
        return f"Puller has no hiera3_backend '{level.function}': backends of Hiera 3 are written in Ruby {where}"
    if level.function in _KNOWN:
        return f"'{level.function}' is a {_KNOWN[level.function]} function, not a {level.kind} one {where}"
    missing = f"Unable to find '{level.kind}' function named '{level.function}' {where}"
    return f"{missing}: functions written in Ruby or Puppet are not run"


class _Unavailable:
    """A missing function, or a function in Ruby or Puppet."""

    def __init__(self, what: str) -> None:
        self._what = what

    def names(self, location: Location | None) -> list[str]:
        raise ConfigError("", self._what)

    def value(self, key: str, location: Location | None, invocation: Invocation, step: Step) -> Any | Absent:
        raise ConfigError("", self._what)
