"""Safe names of the files inside a bundle.

* A ``MemberPath`` cannot name a file outside the directory to which it is joined, under the naming rules of any
  operating system.
* Packing, ``bundle.json``, tar headers, the file system and log lines all use the same text.
* Two names that a file system could treat as the same never appear in one bundle.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Self

import msgspec

from bundles.errors import FormatError
from foundation.problems import ProblemCode

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
