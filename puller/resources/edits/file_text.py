"""The text of an edited file, and the patterns that select its lines and places for new lines.

* Lines end with LF. Bytes that are not valid UTF-8 are preserved as surrogates, which no pattern matches.
* If the first line ends with CRLF, edits do not see the CR, and new lines get one.
* A byte order mark stays at the start of the file and is not part of the text.
* A text is immutable. Each change returns another object, and the same object means that nothing changes.
* A pattern may use one second of processor time for all lines of a file (``hiera.regex``). Otherwise a user who can
  write to the file could stop the run with a crafted line.
"""

import codecs
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeVar

from msgspec import UNSET

from foundation.differences import Difference
from hiera import regex
from hiera.errors import LimitError
from puller.errors import ResourceError
from puller.resources.base import PropertyError
from puller.system.local_paths import Spellings
from puller.values.foreign_text import IS_WIDE, is_wide
from puller.values.plain_values import identical

_LONGEST_SHOWN = 200  # characters
_MARK = codecs.BOM_UTF8


class Text:
    """The text of a file. ``exists`` is false for a missing file."""

    def __init__(
        self, raw: Sequence[str], *, is_ended: bool, exists: bool = True, has_mark: bool = False
    ) -> None:
        """Create a text from ``raw`` lines without LF. ``is_ended``: the last line ends with LF.

        ``has_mark``: the file begins with a UTF-8 byte order mark.
        """
        self._raw = raw
        self.is_ended = is_ended or not raw
        self.exists = exists
        self.has_mark = has_mark

    @classmethod
    def of(cls, data: bytes) -> "Text":
        """Return the text of a file. Raises ``ResourceError`` for UTF-16 and UTF-32."""
        if is_wide(data):
            raise ResourceError(IS_WIDE)
        has_mark = data.startswith(_MARK)
        text = data.removeprefix(_MARK).decode("utf-8", "surrogateescape")
        return cls.of_whole(text, has_mark=has_mark)

    @classmethod
    def of_whole(cls, whole: str, *, has_mark: bool = False) -> "Text":
        """Return the text ``whole``, which contains no byte order mark."""
        raw = whole.split("\n")
        is_ended = not raw[-1]
        return cls(raw[:-1] if is_ended else raw, is_ended=is_ended, has_mark=has_mark)

    @classmethod
    def missing(cls) -> "Text":
        """Return the text of a missing file."""
        return cls((), is_ended=True, exists=False)

    @cached_property
    def whole(self) -> str:
        """The whole text."""
        return "\n".join(self._raw) + ("\n" if self._raw and self.is_ended else "")

    @cached_property
    def data(self) -> bytes:
        """The bytes of the file."""
        return (_MARK if self.has_mark else b"") + self.whole.encode("utf-8", "surrogateescape")

    @cached_property
    def is_crlf(self) -> bool:
        """Whether its first line ends with CRLF."""
        has_end = len(self._raw) > 1 or self.is_ended
        return bool(self._raw) and has_end and self._raw[0].endswith("\r")

    @cached_property
    def lines(self) -> Sequence[str]:
        """The lines for patterns and comparisons."""
        return [line.removesuffix("\r") for line in self._raw] if self.is_crlf else self._raw

    @cached_property
    def _indexes(self) -> dict[str, list[int]]:
        result: dict[str, list[int]] = {}
        for index, line in enumerate(self.lines):
            result.setdefault(line, []).append(index)
        return result

    @cached_property
    def longest(self) -> str:
        """The longest line."""
        return max(self.lines, key=len, default="")

    def indexes_of(self, line: str) -> Sequence[int]:
        """Return the indexes of all lines that are equal to this one, in order."""
        return self._indexes.get(line, ())

    # Changed texts

    def replaced(self, lines: dict[int, str]) -> "Text":
        """Return the text with other lines at these indexes. If the last line is replaced, it ends with LF."""
        raw = list(self._raw)
        for index, line in lines.items():
            raw[index] = self._written(line)
        return self._with(raw, is_ended=self.is_ended or len(raw) - 1 in lines)

    def inserted(self, index: int, lines: Sequence[str]) -> "Text":
        """Return the text with new lines before an index, or after the last line, which gets an LF first."""
        raw = list(self._raw)
        if index == len(raw) and not self.is_ended:
            raw[-1] = self._written(self.lines[-1])
        raw[index:index] = map(self._written, lines)
        return self._with(raw, is_ended=self.is_ended or index == len(self._raw))

    def without(self, indexes: Collection[int]) -> "Text":
        """Return the text without the lines at these indexes."""
        gone = frozenset(indexes)
        raw = [line for index, line in enumerate(self._raw) if index not in gone]
        return self._with(raw, is_ended=self.is_ended or len(self._raw) - 1 in gone)

    def _with(self, raw: Sequence[str], *, is_ended: bool) -> "Text":
        return Text(raw, is_ended=is_ended, has_mark=self.has_mark)

    def _written(self, line: str) -> str:
        return f"{line}\r" if self.is_crlf else line


class Edited(NamedTuple):
    """The result of an edit: the new text, and the difference that it resolves."""

    text: Text
    difference: Difference


def printable(text: str) -> str:
    """Return the text with escapes for bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def in_short(value: object) -> str:
    """Return the representation of a value, shortened for messages."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


# Patterns that select lines of a file.

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
        results = []
        for index, line in enumerate(lines):  # not a comprehension: the timer would not recognize its frame
            if search(line):
                results.append(index)
        return results

    return _bounded(pattern, text.longest, find)


def expanded(text: Text, pattern: str, template: str, indexes: Sequence[int]) -> dict[int, str]:
    """Return the lines of a template filled in with each match, by index. Raises the exceptions of ``matching``."""
    search, lines = compiled(pattern).search, text.lines

    def expand() -> dict[int, str]:
        made = {}
        for index in indexes:
            if (result := search(lines[index])) is not None:
                made[index] = result.expand(template)
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
    result = matching(text, str(insert_after))
    return result[-1] + 1 if result else len(text.lines)


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
        present = [item for item in group if item.ensure == "present"]
        for properties in present:
            if properties.match is None:
                continue
            first = by_match.setdefault(properties.match, properties)
            if first.line != properties.line:
                yield first, properties, "sets another line for the same match"
        retained = [item for item in present if not item.back_references]
        for properties in group:
            if properties.ensure == "absent":
                yield from (
                    (item, properties, "takes away a line that is to be present")
                    for item in retained
                    if _takes(properties, item)
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
                yield first, properties, f"sets the same setting {properties.ensure}"
            elif properties.ensure == "present" and not identical(first.desired, properties.desired):
                yield first, properties, "sets another value of the same setting"


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
