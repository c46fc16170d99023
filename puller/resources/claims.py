"""Agreement of declarations: the properties of one resource, and the claims of resources on paths.

Agreement between two declarations of one resource: comparing and merging their properties.

* A property that only one declaration sets has that value. A default value counts as unset, unless the type lists the
  property in ``exact``.
* ``ensure`` and ``noop`` always count as set, because a declaration without them means their defaults.
* ``require``, ``after``, ``subscribe`` and ``health_checks`` are joined. A resource is sensitive if either declaration
  says so, and is kept after removal from the manifest if either declaration keeps it.
* Only values are compared. The state of the machine is not read.

Claims: the paths that a resource writes, and the state that it requires there.

* A type states its claims from properties alone. They are compared when the manifest is read, before any change.
* Two resources contradict each other if no state of a path satisfies both claims. The second run would undo the first.
* An edit claims lines of a file. Two edits contradict each other if one removes a line that the other one requires.
"""

import stat
from collections.abc import Callable, Container, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec

from puller.values.common_properties import KEEP
from puller.values.file_mode import FileMode
from puller.values.plain_values import identical

P = TypeVar("P", bound=msgspec.Struct)
Rule = Callable[[Any, Any], Any]
"""Returns a value that satisfies two different ones. Raises ``ValueError`` if none exists."""


fields = cache(msgspec.structs.fields)
"""The fields of a type of properties. Cached, because reading them takes longer than comparing the values."""


class Contradiction(Exception):
    """Two conflicting declarations of one resource: each property that differs, with both values."""

    def __init__(self, differences: Sequence[tuple[str, Any, Any]]) -> None:
        super().__init__(", ".join(name for name, _, _ in differences))
        self.differences = tuple(differences)


def agree(first: P, second: P, *, exact: Container[str] = (), rules: Mapping[str, Rule] | None = None) -> P:
    """Merge the properties of two declarations. Raises ``Contradiction`` with all properties that conflict.

    ``exact`` are properties whose default counts as set. ``rules`` merge two different values.
    """
    rules = {**_OF_ALL, **(rules or {})}
    result: dict[str, Any] = {}
    differences = []
    for field in fields(type(first)):
        one, other = getattr(first, field.name), getattr(second, field.name)
        rule = rules.get(field.name) or (_equal if field.name in exact else _either(field))
        try:
            result[field.name] = one if identical(one, other) else rule(one, other)
        except ValueError:
            differences.append((field.encode_name, one, other))
    if differences:
        raise Contradiction(differences)
    return msgspec.structs.replace(first, **result)


def linked(first: P, second: msgspec.Struct) -> P:
    """Return the first declaration with order, checks and secrecy of the second, which need not be valid as a whole."""
    both = {name: _OF_ALL[name] for name in ("alias", "require", "after", "health_checks", "sensitive")}
    values = {name: rule(getattr(first, name), getattr(second, name)) for name, rule in both.items()}
    return msgspec.structs.replace(first, **values)


def _equal(first: Any, other: Any) -> Any:
    raise ValueError(f"{first!r} is not {other!r}")


def _either(field: msgspec.structs.FieldInfo) -> Rule:
    """Return a rule that keeps the value that is set. It also merges compatible modes, and ids as number and text."""
    default = field.default_factory() if callable(field.default_factory) else field.default

    def rule(first: Any, other: Any) -> Any:
        if isinstance(first, FileMode) and isinstance(other, FileMode):
            return first.merged(other)
        if identical(other, default):
            return first
        if identical(first, default):
            return other
        if {type(first), type(other)} == {int, str} and str(first) == str(other):
            return first
        raise ValueError(f"{first!r} is not {other!r}")

    return rule


def _both(first: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*first, *other)))


_OF_ALL: Mapping[str, Rule] = {
    "name": lambda one, other: one,
    "alias": lambda one, other: one or other,  # references resolve both aliases
    "ensure": _equal,
    "noop": _equal,
    "require": _both,
    "after": _both,
    "subscribe": _both,
    # Unconditional management by one declaration takes precedence.
    "control": lambda one, other: None if one is None or other is None else one,
    "health_checks": _both,
    "sensitive": lambda one, other: one or other,
    # A shared resource is removed only if all declarations allow it.
    "removed": lambda one, other: KEEP if KEEP in (one, other) else None,
}


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
