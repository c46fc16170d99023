"""What answers for a level: ``yaml_data``, ``json_data`` and ``eyaml_lookup_key``.

* A function is asked for one top-level key at a time; the files behind it are read once.
* A value must be data: texts, numbers, booleans, null, lists, and mappings whose keys are texts or numbers.
* A function that Puller does not have is an error that names it, when something is to be read with it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from hiera.errors import ConfigError, LookupFailure
from hiera.tree.backends.data_files import DataFiles
from hiera.tree.config.documents import join
from hiera.tree.config.locations import Location
from hiera.tree.config.version5 import LevelConfig
from hiera.tree.context.absent import ABSENT, Absent
from hiera.tree.context.explain import Step
from hiera.tree.context.interpolation import Interpolator, Warn
from hiera.tree.context.invocation import Run
from hiera.tree.ruby.values import OddKey, Symbol


class DataFunction(Protocol):
    """Data by top-level key. Raises ``LookupFailure``, ``DocumentError``, ``ConfigError`` or ``LimitError``."""

    def names(self, location: Location | None) -> list[str]:
        """The keys at a location."""
        ...

    def value(self, key: str, location: Location | None, run: Run, step: Step) -> Any | Absent:
        """The value of a key at a location, interpolated."""
        ...


class Tools(NamedTuple):
    """What the functions of all levels share; ``private_key`` is the path of the key for levels that name none."""

    files: DataFiles
    interpolator: Interpolator
    warn: Warn
    private_key: str | None


PATHS = "one of 'path', 'paths' 'glob', 'globs' or 'mapped_paths' must be declared in hiera.yaml"
_KNOWN = {"yaml_data": "data_hash", "json_data": "data_hash", "eyaml_lookup_key": "lookup_key"}


def function(
    level: LevelConfig, options: Mapping[str, Any], config_path: str, module: str | None, tools: Tools
) -> DataFunction:
    """The function of ``level``, in the ``hiera.yaml`` at ``config_path``."""
    if _KNOWN.get(level.function) != level.kind:
        return Unavailable(_unavailable(level, config_path))
    if level.kind == "data_hash":
        return DataHash(level.function, bool(options), module, tools)
    return _eyaml(options, config_path.rpartition("/")[0], tools)


def _eyaml(options: Mapping[str, Any], directory: str, tools: Tools) -> DataFunction:
    """``directory`` is where relative paths of keys begin."""
    from hiera.eyaml.eyaml import Decryptor, key_reader
    from hiera.tree.backends.eyaml_lookup_key import Eyaml

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


class DataHash:
    """``data_hash``: a whole file at once. In ``module`` all keys belong to it, or nobody finds them."""

    def __init__(self, name: str, has_options: bool, module: str | None, tools: Tools) -> None:
        self._name = name
        self._read = tools.files.yaml if name == "yaml_data" else tools.files.json
        self._has_options = has_options
        self._module = module
        self._tools = tools
        self._seen: set[str] = set()

    def names(self, location: Location | None) -> list[str]:
        return texts(self._content(location)[0])

    def value(self, key: str, location: Location | None, run: Run, step: Step) -> Any | Absent:
        content, location = self._content(location)
        value = content.get(key, ABSENT)
        if value is ABSENT:
            return ABSENT
        verify_value(value, f"in hash returned from data_hash function '{self._name}'", key, location)
        return self._tools.interpolator.resolve(value, run, step)

    def _content(self, location: Location | None) -> tuple[dict[Any, Any], Location]:
        if location is None or location.is_uri or self._has_options:
            what = f"'{self._name}' {PATHS} when using this data_hash function"
            raise ConfigError("", f"{what}; it takes no options")
        content = self._read(location.place)
        if self._module and location.place not in self._seen:
            self._seen.add(location.place)
            self._look_for_strangers(content, location)
        return content, location

    def _look_for_strangers(self, content: dict[Any, Any], location: Location) -> None:
        source = (
            f"Value returned from data_hash function '{self._name}', when using location '{location.place}'"
        )
        for name in content:
            if not isinstance(name, str):
                raise LookupFailure("", f"Module '{self._module}': {source}: the key {name!r} is no text")
            if name != "lookup_options" and not name.startswith(f"{self._module}::"):
                what = "must use keys qualified with the name of the module"
                self._tools.warn(f"Module '{self._module}': {source}, {what}: '{name}' is not")


class Unavailable:
    """A function that is written in Ruby or Puppet, or that does not exist."""

    def __init__(self, what: str) -> None:
        self._what = what

    def names(self, location: Location | None) -> list[str]:
        raise ConfigError("", self._what)

    def value(self, key: str, location: Location | None, run: Run, step: Step) -> Any | Absent:
        raise ConfigError("", self._what)


def texts(content: dict[Any, Any]) -> list[str]:
    """The keys that somebody can ask for."""
    return [name for name in content if isinstance(name, str)]


def verify_value(value: Any, source: str, key: str, location: Location) -> None:
    """Raise ``LookupFailure`` for a value with a symbol, or with a key that is neither text nor number, in it."""
    bad = _bad(value)
    if bad is not None:
        what = f"Value for key '{key}', {source}, when using location '{location.place}', has wrong type"
        raise LookupFailure("", f"{what}, expects Puppet::LookupValue, got {bad}")


def _bad(value: Any) -> str | None:
    if isinstance(value, dict):
        for name, item in value.items():
            bad = f"the mapping key {name!r}" if isinstance(name, OddKey) else _bad(item)
            if bad is not None:
                return bad
    elif isinstance(value, list):
        return next((bad for bad in map(_bad, value) if bad is not None), None)
    elif isinstance(value, Symbol) and value.name not in ("undef", "default"):
        return f"the symbol {value!r}"
    return None
