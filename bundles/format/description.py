"""``bundle.json``: name, version and every file of a bundle.

* A description is always complete and consistent: names are safe and do not collide, and the root contains
  ``manifest.yaml``.
* Each description has exactly one spelling in JSON. Any other text is rejected, such as repeated keys, unusual numbers
  and other constructs that parsers may interpret differently.
"""

import enum
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Self, TypeVar

import msgspec

from bundles.errors import FormatError
from bundles.format.fields import (
    DESCRIPTION,
    SHA256,
    MemberPath,
    directories_of,
    folded,
    parse_name,
    parse_version,
    shown,
)
from foundation import strict_json
from foundation.problems import ProblemCode

FORMAT = 1
MANIFEST = "manifest.yaml"
LIBRARIES = "libraries"
"""Directory of the libraries that were packed with the bundle."""
LARGEST_FILE = 8 * 1024**3 - 1
"""The largest value of eleven octal digits in a tar header."""


_LARGE = 1024 * 1024


class FileMode(enum.Enum):
    """The two modes of files in a bundle. The manifest declares the modes on the host."""

    PLAIN = "0644"
    EXECUTABLE = "0755"

    @classmethod
    def of(cls, bits: int) -> "FileMode":
        """Return the mode for packing a file with these permission bits. Only the owner's execute bit matters."""
        return cls.EXECUTABLE if bits & 0o100 else cls.PLAIN

    @property
    def bits(self) -> int:
        return int(self.value, 8)

    @property
    def unpacked(self) -> int:
        """Return the permission bits in the store, where all files are read-only."""
        return self.bits & 0o555


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file in ``bundle.json``, with its ``size`` in bytes."""

    mode: FileMode
    sha256: Annotated[str, msgspec.Meta(pattern=rf"\A{SHA256}\Z")]
    size: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_FILE)]

    def __str__(self) -> str:
        return f"{self.size} bytes, sha256 {self.sha256}, mode {self.mode.value}"


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    name: str
    version: str
    files: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class BundleDescription:
    """A bundle's name, version and files, in the order of the archive. Raises ``FormatError`` if they are invalid."""

    name: str
    version: str
    files: Mapping[MemberPath, FileEntry]
    directories: Set[str] = field(init=False, repr=False, compare=False)
    """Directories that contain a file. Bundles have no empty directories, so directories are not members of the
    archive.
    """

    def __post_init__(self) -> None:
        parse_name(self.name)
        parse_version(self.version)
        # The order of the archive. Two descriptions of the same files are then spelled alike.
        object.__setattr__(self, "files", MappingProxyType(dict(sorted(self.files.items()))))
        object.__setattr__(self, "directories", directories_of(self.files))
        _check_kept_name(self.files)
        _check_manifest(self.files)

    @property
    def size(self) -> int:
        """Return the total size of all files in bytes."""
        return sum(entry.size for entry in self.files.values())

    def libraries(self) -> dict[str, str]:
        """Return each library packed with the bundle, and a SHA-256 over the paths, modes and contents of its files."""
        entries: dict[str, list[str]] = {}
        for path, entry in self.files.items():
            top, *remainder = path.parts
            if top == LIBRARIES and len(remainder) > 1:
                inner = "/".join(remainder[1:])
                entries.setdefault(remainder[0], []).append(f"{entry.mode.value} {entry.sha256} {inner}\n")
        return {name: hashlib.sha256("".join(lines).encode()).hexdigest() for name, lines in entries.items()}

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read ``bundle.json``. Raises ``FormatError`` with the place in it."""
        document = _decode(data)
        _check_format(document)
        fields = _convert(document, _Document, DESCRIPTION)
        with _inside(DESCRIPTION):
            files = {
                MemberPath.parse(name): _convert(value, FileEntry, f"files[{shown(name)}]")
                for name, value in fields.files.items()
            }
            description = cls(fields.name, fields.version, files)
        # One comparison rejects every other spelling, including unknown ones.
        if description.to_bytes() != data:
            raise FormatError(DESCRIPTION, "is not in canonical form (sorted keys, no spaces, plain UTF-8)")
        return description

    def to_bytes(self) -> bytes:
        """Return the only spelling of this description."""
        document = {
            "files": {
                path.text: {"mode": entry.mode.value, "sha256": entry.sha256, "size": entry.size}
                for path, entry in self.files.items()
            },
            "format": FORMAT,
            "name": self.name,
            "version": self.version,
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def worth_asking_for(files: Iterable[FileEntry]) -> dict[str, FileEntry]:
    """Return the files of a bundle that a site offers individually, by SHA-256.

    Excludes a large file that is nearly all of the bundle: a host without it can fetch the archive instead.
    """
    result = {entry.sha256: entry for entry in files}
    most = sum(entry.size for entry in result.values()) * 9 // 10
    return {sha256: entry for sha256, entry in result.items() if entry.size <= max(most, _LARGE)}


def _check_kept_name(files: Mapping[MemberPath, FileEntry]) -> None:
    for path in files:
        # Folded: where names ignore case, Bundle.JSON would be written over the description.
        if folded(path.parts[0]) == DESCRIPTION:
            raise FormatError(
                shown(path.text),
                f"the name {DESCRIPTION!r} is reserved for the bundle's description",
                code=ProblemCode.UNPACKABLE_FILE,
            )


def _check_manifest(files: Mapping[MemberPath, FileEntry]) -> None:
    if MemberPath(MANIFEST) in files:
        return
    deeper = next((path.text for path in files if path.parts[-1] == MANIFEST), None)
    result = f"and {shown(deeper)} is in a subdirectory" if deeper else "and every bundle requires it"
    raise FormatError(
        "files", f"{MANIFEST!r} is missing at the top of the bundle, {result}", code=ProblemCode.MISSING_FILE
    )


def _decode(data: bytes) -> dict[str, Any]:
    try:
        document = strict_json.load_exact(data)
    except ValueError as error:
        raise FormatError(DESCRIPTION, str(error)) from None
    if not isinstance(document, dict):
        raise FormatError(DESCRIPTION, f"is a JSON {type(document).__name__}", expected="an object")
    return document


def _check_format(document: dict[str, Any]) -> None:
    """Check the format before other fields, so that a bundle of a later format gets the right error."""
    value = document.get("format")
    if type(value) is not int:  # True == 1
        raise FormatError(
            f"{DESCRIPTION}: format", f"is {shown(repr(value))}", expected=f"the number {FORMAT}"
        )
    if value != FORMAT:
        raise FormatError(f"{DESCRIPTION}: format", f"is {value}, and this version of Puller reads {FORMAT}")


_T = TypeVar("_T")


def _convert(value: object, into: type[_T], where: str) -> _T:
    try:
        return msgspec.convert(value, into)
    except msgspec.ValidationError as error:
        detail, _, place = str(error).partition(" - at `$")
        raise FormatError(where + place.rstrip("`"), detail) from None


@contextmanager
def _inside(where: str) -> Iterator[None]:
    try:
        yield
    except FormatError as error:
        raise error.under(f"{where}: {error.where}", FormatError) from None
