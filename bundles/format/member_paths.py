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
"""Bytes of UTF-8 between two slashes; what Linux file systems take."""
DEEPEST_PATH = 32
"""Components in a path; also bounds the directories that are open at one time while unpacking."""

MOST_ENTRIES = 50_000
"""Files and the directories that hold them, in one bundle."""

_LONGEST_SHOWN = 200

# C0, DEL and C1 control characters; line, paragraph and direction marks, which make a listing or a log line
# show something other than what is there. A fixed list, because Unicode's own categories differ between
# Python versions; none of them takes any of these for printable, so only names that are not are searched.
_FORBIDDEN = r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
_DRIVE = r"[A-Za-z]:"


class MemberPath(msgspec.Struct, frozen=True, order=True):
    """A relative path such as ``templates/motd.j2``; no value of this type breaks the rules of this
    module."""

    text: str

    def __post_init__(self) -> None:
        if problem := _problem(self.text):
            raise FormatError(shown(self.text), problem, code=ProblemCode.UNPACKABLE_FILE)

    @classmethod
    def parse(cls, name: str | bytes) -> Self:
        """Take a name from outside; raises ``FormatError`` that shows it and says which rule it breaks."""
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
        """The directories on the way, outermost first: ``a/b/c`` gives ``a`` and ``a/b``."""
        return [self.text[:end] for end, character in enumerate(self.text) if character == "/"]

    def __str__(self) -> str:
        return self.text


def _problem(text: str) -> str | None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # Python's stand-ins for bytes that are not UTF-8
        return "the name is not UTF-8"
    if not text:
        return "the name is empty"
    if size > LONGEST_PATH:
        return f"the name has {size} bytes, at most {LONGEST_PATH} are allowed"
    if not text.isprintable() and (found := re.search(_FORBIDDEN, text)):
        return f"the name holds the control character U+{ord(found[0]):04X}"
    if "\\" in text:
        return "the name holds a backslash"
    if text.startswith("/"):
        return "the name is absolute"
    if text[1:2] == ":" and re.match(_DRIVE, text):
        return "the name starts with a drive letter"
    parts = text.split("/")
    if len(parts) > DEEPEST_PATH:
        return f"the name is {len(parts)} levels deep, at most {DEEPEST_PATH} are allowed"
    return next((problem for part in parts if (problem := _problem_of_component(part))), None)


def _problem_of_component(part: str) -> str | None:
    if part in ("", ".", ".."):
        return f"the name holds the component {part!r}"
    if (size := len(part.encode())) > LONGEST_COMPONENT:
        return f"a component of the name has {size} bytes, at most {LONGEST_COMPONENT} are allowed"
    return None


def shown(name: str | bytes) -> str:
    """``name`` as it may stand in a message: quoted, nothing unprintable, not endless."""
    text = name.decode(errors="backslashreplace") if isinstance(name, bytes) else name
    text = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
    return repr(text) if text.isprintable() else ascii(text)


def folded(text: str) -> str:
    """Equal for names that differ only by case or by normalisation (Unicode, D145: canonical caseless)."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())


def directories_of(paths: Iterable[MemberPath]) -> set[str]:
    """The directories that hold ``paths``.

    Raises ``FormatError`` for two names that cannot stand beside each other: one path twice, a file that is also a
    directory, or names that differ only by case or normalisation. On a file system that folds names the later of the
    two would be written into the earlier. Also when there are more than ``MOST_ENTRIES``, as soon as that is known.
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
        what = f"the {kind} {shown(name)} and {theirs} cannot stand side by side on every file system"
        raise FormatError(shown(name), what, code=ProblemCode.UNPACKABLE_FILE)
    spelled[key] = entry
    if len(spelled) > MOST_ENTRIES:
        raise FormatError(
            "files", f"more than {MOST_ENTRIES} files and directories", code=ProblemCode.UNPACKABLE_FILE
        )
