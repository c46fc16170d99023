"""Fields of signed JSON documents, parsed strictly. Each helper raises `FormatError` with the place of a field.

An unknown key may control hosts (a rollout, a halt). The whole document is therefore rejected, and the host keeps its
state. Keys that start with ``x-`` are comments for people and tools.

Name and version of a bundle have the same rules everywhere. `Identity` is separate from the rest of ``bundle.json``,
because a run without changes only needs these fields.

Safe names of the files inside a bundle.

* A ``MemberPath`` cannot name a file outside the directory to which it is joined, under the naming rules of any
  operating system.
* Packing, ``bundle.json``, tar headers, the file system and log lines all use the same text.
* Two names that a file system could treat as the same never appear in one bundle.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Self, TypeVar

import msgspec

from bundles.errors import BundleError, FormatError
from foundation import strict_json
from foundation.problems import ProblemCode
from foundation.strict_json import LARGEST_NUMBER, excerpt

LONGEST_PATH = 1024
"""Bytes of UTF-8 in a whole path."""
LONGEST_COMPONENT = 255
"""Bytes of UTF-8 between two slashes, the limit of Linux file systems."""
DEEPEST_PATH = 32
"""Components in a path. Also limits the number of open directories during unpacking."""

MOST_ENTRIES = 50_000
"""Files and directories in one bundle."""

_LONGEST_SHOWN = 200

# C0, DEL and C1 control characters, and line, paragraph and direction marks, which falsify listings and log lines. A
# fixed list, because Unicode categories differ between Python versions. All versions consider these characters
# unprintable, so printable names need no search.
_FORBIDDEN = r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
_DRIVE = r"[A-Za-z]:"


class MemberPath(msgspec.Struct, frozen=True, order=True):
    """A relative path such as ``templates/motd.j2`` that follows the rules of this module."""

    text: str

    def __post_init__(self) -> None:
        if problem := _problem(self.text):
            raise FormatError(shown(self.text), problem, code=ProblemCode.UNPACKABLE_FILE)

    @classmethod
    def parse(cls, name: str | bytes) -> Self:
        """Parse an untrusted name. Raises ``FormatError`` with the name and the violated rule."""
        if isinstance(name, str):
            return cls(name)
        try:
            return cls(name.decode())
        except UnicodeDecodeError:
            raise FormatError(
                shown(name), "the name is not UTF-8", code=ProblemCode.UNPACKABLE_FILE
            ) from None

    @property
    def parts(self) -> list[str]:
        return self.text.split("/")

    def parents(self) -> list[str]:
        """Return the parent directories, outermost first: ``a/b/c`` gives ``a`` and ``a/b``."""
        return [self.text[:end] for end, character in enumerate(self.text) if character == "/"]

    def __str__(self) -> str:
        return self.text


def _problem(text: str) -> str | None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # surrogate escapes of bytes that are not UTF-8
        return "the name is not UTF-8"
    if not text:
        return "the name is empty"
    if size > LONGEST_PATH:
        return f"the name has {size} bytes, at most {LONGEST_PATH} are allowed"
    if not text.isprintable() and (match := re.search(_FORBIDDEN, text)):
        return f"the name contains the control character U+{ord(match[0]):04X}"
    if "\\" in text:
        return "the name contains a backslash"
    if text.startswith("/"):
        return "the name is absolute"
    if text[1:2] == ":" and re.match(_DRIVE, text):
        return "the name starts with a drive letter"
    components = text.split("/")
    if len(components) > DEEPEST_PATH:
        return f"the name is {len(components)} levels deep, at most {DEEPEST_PATH} are allowed"
    return next((problem for part in components if (problem := _problem_of_component(part))), None)


def _problem_of_component(part: str) -> str | None:
    if part in ("", ".", ".."):
        return f"the name contains the component {part!r}"
    if (size := len(part.encode())) > LONGEST_COMPONENT:
        return f"a component of the name has {size} bytes, at most {LONGEST_COMPONENT} are allowed"
    return None


def shown(name: str | bytes) -> str:
    """Format ``name`` for a message: quoted, printable, and shortened."""
    text = name.decode(errors="backslashreplace") if isinstance(name, bytes) else name
    text = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
    return repr(text) if text.isprintable() else ascii(text)


def folded(text: str) -> str:
    """Return the same text for names that differ only by case or normalisation (Unicode, D145: canonical caseless)."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())


def directories_of(paths: Iterable[MemberPath]) -> set[str]:
    """Return the directories that contain ``paths``.

    Raises ``FormatError`` for two conflicting names: one path twice, a file that is also a directory, or names that
    differ only by case or normalisation. On a case-insensitive file system, the later file would overwrite the earlier
    one. Also raises it as soon as there are more than ``MOST_ENTRIES``.
    """
    spelled: dict[str, str] = {}
    directories: set[str] = set()
    for path in paths:
        for directory in path.parents():
            if directory not in directories:
                directories.add(directory)
                _claim(spelled, directory, "directory")
        _claim(spelled, path.text, "file")
    return directories


def _claim(spelled: dict[str, str], name: str, kind: str) -> None:
    entry = name if kind == "file" else f"{name}/"
    key = folded(name)
    if other := spelled.get(key):
        theirs = f"the directory {shown(other[:-1])}" if other.endswith("/") else f"the file {shown(other)}"
        detail = f"the {kind} {shown(name)} and {theirs} cannot exist together on every file system"
        raise FormatError(shown(name), detail, code=ProblemCode.UNPACKABLE_FILE)
    spelled[key] = entry
    if len(spelled) > MOST_ENTRIES:
        raise FormatError(
            "files", f"more than {MOST_ENTRIES} files and directories", code=ProblemCode.UNPACKABLE_FILE
        )


DESCRIPTION = "bundle.json"
SHA256 = r"[0-9a-f]{64}"
"""Regular expression of a SHA-256 in its canonical spelling."""

_NAME = r"[a-z0-9][a-z0-9._-]{0,63}"
_VERSION = r"[0-9A-Za-z][0-9A-Za-z.+~_-]{0,63}"


class Identity(msgspec.Struct, frozen=True):
    """Name and version in a bundle's own description."""

    name: str
    version: str


def parse_name(text: str) -> str:
    """Check a bundle's name and return it. Raises ``FormatError``."""
    if not re.fullmatch(_NAME, text):
        raise FormatError(
            "name", f"is {shown(text)}", code=ProblemCode.INVALID_NAME, expected=f"{_NAME} such as 'web'"
        )
    return text


def parse_version(text: str) -> str:
    """Check a bundle's version, which is also part of file names and URLs, and return it. Raises ``FormatError``."""
    if not re.fullmatch(_VERSION, text) or ".." in text:
        raise FormatError(
            "version",
            f"is {shown(text)}",
            code=ProblemCode.INVALID_NAME,
            expected=f"{_VERSION} without '..', such as '1.4.0'",
        )
    return text


def parse_identity(data: bytes) -> Identity:
    """Return name and version from a ``bundle.json`` that was checked during unpacking. Raises ``FormatError``.

    Skips the list of files, because runs call this for large unchanged bundles.
    """
    try:
        identity = msgspec.json.decode(data, type=Identity)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(DESCRIPTION, str(error)) from None
    parse_name(identity.name)
    parse_version(identity.version)
    return identity


Fields = Mapping[str, Any]
_Value = TypeVar("_Value")


def read_document(data: bytes, where: str, kind: str, expected_format: int) -> Fields:
    """Return the fields of a document. Raises `FormatError`. ``kind`` is its name in messages: ``an index``."""
    try:
        document = strict_json.load_exact(data)
    except ValueError as error:
        raise FormatError(where, f"is not {kind}: {error}") from None
    _check_format(document, where, expected_format)
    return mapping(document, where)


def known_fields(value: Any, place: str, known: AbstractSet[str]) -> Fields:
    """Return the fields of an object without comments. Raises `FormatError` for fields that are not ``known``."""
    fields = mapping(value, place)
    if fields.keys() <= known:
        return fields
    # Comments have no effect, so that older versions may ignore them.
    fields = {key: item for key, item in fields.items() if not key.startswith("x-")}
    if unknown := sorted(fields.keys() - known):
        names = ", ".join(shown(key) for key in unknown[:5])
        raise FormatError(
            place, f"unknown keys {names}, expected {', '.join(sorted(known))}: upgrade Puller on this host"
        )
    return fields


def mapping(value: Any, place: str) -> dict[str, Any]:
    """Return an object. Raises `FormatError` for another type."""
    if not isinstance(value, dict):
        raise FormatError(place, f"is {excerpt(value)}", expected="an object")
    return value


def array(fields: Fields, key: str, place: str) -> list[Any]:
    """Return an array. Raises `FormatError` for another type."""
    value = fields.get(key)
    if not isinstance(value, list):
        raise FormatError(f"{place}.{key}", f"is {excerpt(value)}", expected="an array")
    return value


def text(fields: Fields, key: str, place: str) -> str:
    """Return a string. Raises `FormatError` for another type."""
    value = fields.get(key)
    if not isinstance(value, str):
        raise FormatError(f"{place}.{key}", f"is {excerpt(value)}", expected="a string")
    return value


def size(fields: Fields, key: str, place: str) -> int:
    """Return a number of bytes. Raises `FormatError` for another type."""
    value = fields.get(key)
    if type(value) is not int or value < 0:  # True == 1
        raise FormatError(
            f"{place}.{key}", f"is {excerpt(value)}", expected=f"a number of bytes from 0 to {LARGEST_NUMBER}"
        )
    return value


def sha256(fields: Fields, key: str, place: str) -> str:
    """Return a SHA-256 in lower case. Raises `FormatError`."""
    value = text(fields, key, place)
    if not re.fullmatch(SHA256, value):
        raise FormatError(
            f"{place}.{key}", f"is {excerpt(value)}", expected="64 hexadecimal digits in lower case"
        )
    return value


def checked(place: str, parse: Callable[[str], _Value], value: str) -> _Value:
    """Return the value parsed by ``parse``. Raises `FormatError` with the place."""
    try:
        return parse(value)
    except BundleError as error:
        raise error.under(f"{place}: {error.where}", FormatError) from None


def _check_format(document: Any, where: str, expected_format: int) -> None:
    """Check the format before other fields, so that a document of a later format gets the right error."""
    value = mapping(document, where).get("format")
    if type(value) is not int:  # True == 1
        raise FormatError(
            f"{where}: format", f"is {excerpt(value)}", expected=f"the number {expected_format}"
        )
    if value > expected_format:
        raise FormatError(
            f"{where}: format",
            f"is {value}, and this version of Puller reads {expected_format}: upgrade Puller on this host",
        )
    if value != expected_format:
        raise FormatError(
            f"{where}: format",
            f"is {value}, and this version of Puller reads {expected_format}: the site was made by another version",
        )
