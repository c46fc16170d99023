"""Patterns that select lines of a file, places for new lines, and contradictions between edits.

A pattern may use one second of processor time for all lines of a file (``hiera.regex``). Otherwise a user who can write
to the file could stop the run with a crafted line.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from msgspec import UNSET

from hiera import regex
from hiera.errors import LimitError
from puller.errors import ResourceError
from puller.resources.base import PropertyError
from puller.resources.canonical_names import Spellings
from puller.resources.edits.file_text import Text
from puller.values.identical import identical

LONGEST = 4096
"""The maximum length of a pattern in characters."""
FIRST, LAST = "BOF", "EOF"
"""Values for the beginning and the end of the file, instead of a pattern."""

T = TypeVar("T")


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern, cached for all resources. Raises ``re.error``."""
    return re.compile(pattern)


def matching(text: Text, pattern: str) -> list[int]:
    """Return the indexes of all lines that match a pattern. Raises ``ResourceError`` after the time limit."""
    search, lines = compiled(pattern).search, text.lines

    def find() -> list[int]:
        found = []
        for index, line in enumerate(lines):  # not a comprehension: the timer would not recognize its frame
            if search(line):
                found.append(index)
        return found

    return _bounded(pattern, text.longest, find)


def expanded(text: Text, pattern: str, template: str, indexes: Sequence[int]) -> dict[int, str]:
    """Return the lines of a template filled in with each match, by index. Raises the exceptions of ``matching``."""
    search, lines = compiled(pattern).search, text.lines

    def expand() -> dict[int, str]:
        made = {}
        for index in indexes:
            if (found := search(lines[index])) is not None:
                made[index] = found.expand(template)
        return made

    return _bounded(pattern, text.longest, expand)


def is_in(pattern: str, line: str) -> bool:
    """Return whether a pattern matches one line. Raises the exceptions of ``matching``."""
    search = compiled(pattern).search
    return _bounded(pattern, line, lambda: search(line) is not None)


def _bounded(pattern: str, longest: str, operation: Callable[[], T]) -> T:
    try:
        return regex.bounded(compiled(pattern), longest, operation)
    except LimitError as error:
        raise ResourceError(problems=error.problems) from None


def place_for(text: Text, insert_after: str | None, insert_before: str | None) -> int:
    """Return the index of a new line: after the last match, before the first one, or at the end of the file.

    Raises the exceptions of ``matching``.
    """
    if insert_before == FIRST:
        return 0
    if insert_before is not None:
        return next(iter(matching(text, insert_before)), len(text.lines))
    if insert_after in (None, LAST):
        return len(text.lines)
    found = matching(text, str(insert_after))
    return found[-1] + 1 if found else len(text.lines)


def in_words(indexes: Sequence[int]) -> str:
    """Return the numbers of lines for people: ``line 3``, ``lines 3, 9 and 12``."""
    *before, last = (str(index + 1) for index in indexes)
    return f"lines {', '.join(before)} and {last}" if before else f"line {last}"


def check_pattern(name: str, pattern: str | None) -> Iterator[PropertyError]:
    """Yield errors of the pattern in a property."""
    if pattern is None:
        return
    if len(pattern) > LONGEST:
        yield PropertyError(name, f"has {len(pattern)} characters", expected=f"at most {LONGEST}")
        return
    try:
        compiled(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        yield PropertyError(name, f"is {pattern!r}, which is not a pattern: {error}")


def check_places(insert_after: str | None, insert_before: str | None) -> Iterator[PropertyError]:
    """Yield errors of ``insert_after`` and ``insert_before``."""
    yield from check_pattern("insert_after", insert_after)
    yield from check_pattern("insert_before", insert_before)
    if insert_after is not None and insert_before is not None:
        yield PropertyError(
            "insert_before", "cannot be given together with insert_after", because=["insert_after"]
        )
    if insert_after == FIRST:
        yield PropertyError("insert_after", f"is {FIRST}", expected=f"a pattern or {LAST}")
    if insert_before == LAST:
        yield PropertyError("insert_before", f"is {LAST}", expected=f"a pattern or {FIRST}")


def check_one_line(name: str, line: str) -> Iterator[PropertyError]:
    """Yield an error if a property is not one valid line."""
    if "\n" in line or "\0" in line or line.endswith("\r"):
        yield PropertyError(name, f"is {line!r}", expected="one line, without its end and without NUL")


# Contradictions between edits of one type in one file, found when the manifest is read. Claims
# (``puller.resources.claims``) detect contradictions with other types. The canonical path identifies a file.

Found = Iterator[tuple[Any, Any, str]]


def of_lines(lines: Sequence[Any], spellings: Spellings) -> Found:
    """Yield lines that are both present and absent, and different lines for one match."""
    for group in _by_file(lines, spellings):
        by_match: dict[str, Any] = {}
        present = [one for one in group if one.ensure == "present"]
        for properties in present:
            if properties.match is None:
                continue
            first = by_match.setdefault(properties.match, properties)
            if first.line != properties.line:
                yield first, properties, "wants another line for the same match"
        kept = [one for one in present if not one.back_references]
        for properties in group:
            if properties.ensure == "absent":
                yield from (
                    (one, properties, "takes away a line that is to be present")
                    for one in kept
                    if _takes(properties, one)
                )


def of_blocks(blocks: Sequence[Any], spellings: Spellings) -> Found:
    """Yield blocks with the same marker."""
    for group in _by_file(blocks, spellings):
        seen: dict[tuple[str, str], Any] = {}
        for properties in group:
            first = seen.setdefault(properties.markers, properties)
            if first is not properties and "present" in (first.ensure, properties.ensure):
                yield first, properties, f"has the marker {properties.markers[0]!r}, too"


def of_settings(settings: Sequence[Any], spellings: Spellings) -> Found:
    """Yield settings with two values, or both present and absent."""
    for group in _by_file(settings, spellings):
        seen: dict[tuple[object, ...], Any] = {}
        for properties in group:
            first = seen.setdefault(properties.identity, properties)
            if UNSET in (first.value, properties.value) and first.ensure == properties.ensure:
                continue  # absent, or without a value, which another check reports
            if first.ensure != properties.ensure:
                yield first, properties, f"wants the same setting {properties.ensure}"
            elif properties.ensure == "present" and not identical(first.wanted, properties.wanted):
                yield first, properties, "wants another value of the same setting"


def _takes(absent: Any, present: Any) -> bool:
    """Return whether an absent line would remove a present one."""
    if absent.line == present.line:
        return True
    try:
        return absent.match is not None and is_in(absent.match, present.line)
    except ResourceError:  # a pattern that exceeds the limit, which its own resource reports
        return False


def _by_file(edits: Sequence[Any], spellings: Spellings) -> list[list[Any]]:
    """Return the edits of each file that has several. An edit follows a link at its path."""
    groups: dict[str, list[Any]] = {}
    for properties in edits:
        groups.setdefault(spellings.directory(properties.file), []).append(properties)
    return [group for group in groups.values() if len(group) > 1]
