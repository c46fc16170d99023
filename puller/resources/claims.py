"""Claims: the paths that a resource writes, and the state that it requires there.

* A type states its claims from properties alone. They are compared when the manifest is read, before any change.
* Two resources contradict each other if no state of a path satisfies both claims. The second run would undo the first.
* An edit claims lines of a file. Two edits contradict each other if one removes a line that the other one requires.
"""

import stat
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import msgspec

from puller.values.file_mode import FileMode


class Use(Enum):
    """The state that a resource requires at a path."""

    WHOLE = "writes the whole file"
    PART = "edits the file"
    REMOVED_PART = "removes text from the file"
    FILE = "requires a file"
    DIRECTORY = "requires a directory"
    CONTENTS = "keeps files below it"
    """A directory, or a link to one."""
    FILLED = "keeps files of its own"
    """A directory, or a link to one that no resource declares."""
    LINK = "requires a link"
    ANY = "requires that something exists"
    ABSENT = "requires that nothing exists"
    KEPT = "keeps it"
    """No requirement. Only protects the path from a purge of its directory."""


_CONTRADICTIONS = {
    Use.WHOLE: {
        *(Use.WHOLE, Use.PART, Use.REMOVED_PART, Use.LINK, Use.ABSENT),
        *(Use.DIRECTORY, Use.CONTENTS, Use.FILLED),
    },
    Use.PART: {Use.DIRECTORY, Use.CONTENTS, Use.FILLED, Use.ABSENT},
    Use.FILE: {Use.DIRECTORY, Use.CONTENTS, Use.FILLED, Use.LINK, Use.ABSENT},
    Use.DIRECTORY: {Use.LINK, Use.ABSENT},
    Use.CONTENTS: {Use.ABSENT},
    Use.FILLED: {Use.LINK, Use.ABSENT},
    Use.LINK: {Use.ABSENT},
    Use.ANY: {Use.ABSENT},
}
"""Pairs of uses that no state of a path satisfies, each pair once."""

MADE_FILES = frozenset({Use.WHOLE, Use.PART, Use.FILE})
"""Uses after which a file exists at the path."""
NO_DIRECTORY = frozenset({Use.WHOLE, Use.PART, Use.FILE, Use.ABSENT})
"""Uses after which nothing can be below the path."""


def _no_line(line: str) -> bool:
    del line
    return False


def _no_lines() -> tuple[str, ...]:
    return ()


class Claim(msgspec.Struct, frozen=True):
    """One path that a resource writes, reads or keeps."""

    path: str
    use: Use
    owner: str | int | None = None
    """The owner that the resource enforces; ``None``: any."""
    group: str | int | None = None
    mode: FileMode | None = None
    editor: str = ""
    """Claims of one editor on the same path are compared by their type (``Resource.contradictions``)."""
    lines: Callable[[], tuple[str, ...]] = _no_lines
    """Lines that the resource requires in the file. Called only if another resource edits the file."""
    rejects: Callable[[str], bool] = _no_line
    """Whether a line of another resource contradicts this one."""
    removes: Callable[[str], bool] = _no_line
    """Whether the resource removes or replaces a line that it finds in the file."""

    def contradicts(self, other: "Claim") -> str:
        """Return why no state satisfies both claims; empty if one does. The sentence is about ``self``."""
        if other.use in _CONTRADICTIONS.get(self.use, ()) or self.use in _CONTRADICTIONS.get(other.use, ()):
            return f"{self.use.value} at {self.path}, but another resource {other.use.value}"
        if attribute := self._other_attribute(other):
            return f"requires another {attribute} of {self.path} than another resource"
        if self.editor and self.editor == other.editor:
            return ""
        if any(other.rejects(line) or other.removes(line) for line in self.lines()):
            return f"requires a line in {self.path} that another resource removes or replaces"
        if any(self.rejects(line) or self.removes(line) for line in other.lines()):
            return f"removes or replaces a line in {self.path} that another resource requires"
        return ""

    def _other_attribute(self, other: "Claim") -> str:
        for name in ("owner", "group"):
            first, two = getattr(self, name), getattr(other, name)
            if first is not None and two is not None and not _same_account(first, two):
                return name
        if self.mode is not None and other.mode is not None and not _can_have_both(self.mode, other.mode):
            return "mode"
        return ""


def _can_have_both(first: FileMode, other: FileMode) -> bool:
    """Return whether a file with one of the modes also satisfies the other one."""
    made = first.over(FileMode.NEW_FILE), other.over(FileMode.NEW_FILE)
    return other.over(stat.S_IFREG | made[0]) == made[0] or first.over(stat.S_IFREG | made[1]) == made[1]


def _same_account(first: str | int, other: str | int) -> bool:
    return {"0": "root"}.get(str(first), str(first)) == {"0": "root"}.get(str(other), str(other))


class EditedPlace(NamedTuple):
    """A file with edited parts: its declared path, the path with a final link resolved, and its content."""

    path: str
    real: str
    content: bytes | None
