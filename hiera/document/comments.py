"""The comments at the keys of ``data`` that look like annotations, each with the key that it belongs to.

A comment belongs to the key it stands beside, or to the next key below it. Other comments, and what looks like one
inside a text, are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml

Path = tuple[str | int, ...]

DIRECTIVE: Final = re.compile(r"#\s*@(\w+)[ \t]*(.*)")
_BESIDE: Final = re.compile(r":?[ \t]+(#\s*@\w.*)")


class _Key(NamedTuple):
    path: Path
    line: int
    column: int
    end: int
    """The column where a comment beside the key can begin."""


def comments(text: str) -> Iterator[tuple[int, str, Path | None]]:
    """Line, comment and the path of its key, for each comment with a directive at the keys of ``data``."""
    scan = _Scan(text)
    lines = text.splitlines()
    keys = {key.line: key for key in scan.keys if not lines[key.line][: key.column].strip()}
    for line in range(scan.first, max(keys, default=-1) + 1):
        if line in keys and (beside := _BESIDE.match(lines[line], keys[line].end)):
            yield line, beside[1], keys[line].path
        elif line not in scan.inside_text and DIRECTIVE.match(lines[line].lstrip()):
            yield line, lines[line].lstrip(), _below(line, lines, keys)


def _below(line: int, lines: Sequence[str], keys: Mapping[int, _Key]) -> Path | None:
    """The path of the key on the next line that is neither blank nor a comment."""
    following = range(line + 1, len(lines))
    found = next((n for n in following if lines[n].strip() and not lines[n].lstrip().startswith("#")), -1)
    return keys[found].path if found in keys else None


class _Scan:
    """Where the keys of ``data`` stand, and which lines are the inside of a text."""

    def __init__(self, text: str) -> None:
        self.parser: Any = yaml.CSafeLoader(text)
        self.end: Any = None  # of what was read last
        self.keys: list[_Key] = []
        self.inside_text: set[int] = set()
        self.first = 0
        for _ in range(3):  # the stream, the document and its mapping begin
            start = self.next()
        if isinstance(start, yaml.MappingStartEvent):
            self.find_data()

    def next(self) -> Any:
        event = self.parser.get_event()
        self.end = event.end_mark
        return event

    def until_end(self) -> Iterator[Any]:
        while not isinstance(event := self.next(), yaml.CollectionEndEvent):
            yield event

    def find_data(self) -> None:
        for key in self.until_end():
            if getattr(key, "value", None) == "data":  # an alias has none
                self.first = key.start_mark.line + 1
                self.value(self.next(), ())
                return
            self.value(self.next(), None)

    def value(self, event: Any, path: Path | None) -> None:
        """Take in one value. Below a list, and beside ``data``, there is no path, and keys are not noted."""
        first = event.start_mark.line
        if isinstance(event, yaml.MappingStartEvent):
            for key in self.until_end():
                self.item(key, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            for item in self.until_end():
                self.value(item, None)
        elif isinstance(event, yaml.ScalarEvent):
            self.inside_text.update(range(first + 1, self.end.line + (self.end.column > 0)))

    def item(self, key: Any, path: Path | None) -> None:
        named = path is not None and isinstance(key, yaml.ScalarEvent)
        below = (*(path or ()), key.value) if named else None
        # The value is read first: where it ends says where a comment beside it can begin.
        self.value(self.next(), below)
        if below is not None:
            start = key.start_mark
            end = self.end if self.end.line == start.line else key.end_mark
            self.keys.append(_Key(below, start.line, start.column, end.column))
