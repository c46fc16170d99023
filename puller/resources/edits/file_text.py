"""The text of an edited file: lines that end with LF, with all other bytes preserved.

* Bytes that are not valid UTF-8 are preserved as surrogates, which no pattern matches.
* If the first line ends with CRLF, edits do not see the CR, and new lines get one.
* A byte order mark stays at the start of the file and is not part of the text.
* A text is immutable. Each change returns another object, and the same object means that nothing changes.
"""

import codecs
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import NamedTuple

from foundation.differences import Difference
from puller.errors import ResourceError
from puller.values.byte_order import IS_WIDE, is_wide

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
        whole = data.removeprefix(_MARK).decode("utf-8", "surrogateescape")
        return cls.of_whole(whole, has_mark=has_mark)

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
        found: dict[str, list[int]] = {}
        for index, line in enumerate(self.lines):
            found.setdefault(line, []).append(index)
        return found

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
