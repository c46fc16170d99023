"""The comments at the keys of ``data`` and of ``overrides`` that look like annotations, each with its key.

* A comment belongs to the key it stands beside, or to the next key below it.
* A key within the items of a list is that key of every item: its path has ``EACH`` in the place of the index.
* A comment that belongs to no key has no path, so that the caller can report it.
* Other comments, and what looks like one inside a text, are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml

from hiera.values.secrets import EACH

Path = tuple[str | int, ...]

DIRECTIVE: Final = re.compile(r"#\s*@(\w+)[ \t]*(.*)")
_BESIDE: Final = re.compile(r":?[ \t]+(#\s*@\w.*)")
_COMMENT: Final = re.compile(r"(?:^|(?<=[ \t]))#\s*@\w.*")
_WHOLE_LINE: Final = 1 << 30  # columns


class _Key(NamedTuple):
    path: Path
    line: int
    column: int
    end: int
    """The column where a comment beside the key can begin."""


def comments(text: str) -> Iterator[tuple[int, str, Path | None]]:
    """Line, comment and the path of its key, for each comment with a directive at the keys of data."""
    scan = _Scan(text)
    lines = text.splitlines()
    for section in scan.sections:
        keys = {key.line: key for key in section.keys if not lines[key.line][: key.column].strip(" \t-")}
        for line in range(section.first, max(section.last, *keys, 0) + 1):
            if line in keys and (beside := _BESIDE.match(lines[line], keys[line].end)):
                yield line, beside[1], keys[line].path
            elif comment := scan.comment_at(line, lines[line]):
                is_alone = lines[line].lstrip() == comment
                yield line, comment, _below(line, lines, keys) if is_alone else None


def _below(line: int, lines: Sequence[str], keys: Mapping[int, _Key]) -> Path | None:
    """The path of the key on the next line that is neither blank nor a comment.

    Of an item ``- name: x`` there is none: the comment could be about the whole item.
    """
    following = range(line + 1, len(lines))
    below = next((n for n in following if lines[n].strip() and not lines[n].lstrip().startswith("#")), -1)
    return keys[below].path if below in keys and not lines[below].lstrip().startswith("-") else None


class _Section:
    """The keys of ``data``, or of one section of ``overrides``."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = -1
        """The last line of its values. Comments after it are about other parts of the document."""
        self.keys: list[_Key] = []


class _Scan:
    """Where the keys of data stand, and which parts of lines are the inside of a text."""

    def __init__(self, text: str) -> None:
        self.parser: Any = yaml.CSafeLoader(text)
        self.end: Any = None  # of what was read last
        self.sections: list[_Section] = []
        self.texts: dict[int, list[tuple[int, int]]] = {}
        """By line: the columns where a text begins and ends."""
        for _ in range(3):  # the stream, the document and its mapping begin
            start = self.next()
        if isinstance(start, yaml.MappingStartEvent):
            self.find_data()

    def comment_at(self, line: int, text: str) -> str:
        """Return the comment with a directive in a line; empty without one."""
        texts = self.texts.get(line, ())
        for match in _COMMENT.finditer(text):
            if not any(begin <= match.start() < end for begin, end in texts):
                return match[0]
        return ""

    def next(self) -> Any:
        event = self.parser.get_event()
        self.end = event.end_mark
        return event

    def until_end(self) -> Iterator[Any]:
        while not isinstance(event := self.next(), yaml.CollectionEndEvent):
            yield event

    def find_data(self) -> None:
        for key in self.until_end():
            name = getattr(key, "value", None)  # an alias has none
            event = self.next()
            if name == "data":
                self.section(key, event)
            elif name == "overrides" and isinstance(event, yaml.MappingStartEvent):
                for section in self.until_end():
                    self.section(section, self.next())
            else:
                self.value(event, None)

    def section(self, key: Any, event: Any) -> None:
        self.sections.append(_Section(key.start_mark.line + 1))
        self.value(event, ())

    def value(self, event: Any, path: Path | None) -> None:
        """Take in one value. Beside ``data`` there is no path, and keys are not noted."""
        if isinstance(event, yaml.MappingStartEvent):
            for key in self.until_end():
                self.item(key, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            for item in self.until_end():
                self.value(item, None if path is None else (*path, EACH))
        elif isinstance(event, yaml.ScalarEvent):
            self.text(event.start_mark, self.end)
        if path is not None:
            self.sections[-1].last = max(self.sections[-1].last, event.start_mark.line)

    def text(self, start: Any, end: Any) -> None:
        for line in range(start.line, end.line + 1):
            begin = start.column if line == start.line else 0
            self.texts.setdefault(line, []).append((begin, end.column if line == end.line else _WHOLE_LINE))

    def item(self, key: Any, path: Path | None) -> None:
        named = path is not None and isinstance(key, yaml.ScalarEvent)
        below = (*(path or ()), key.value) if named else None
        # The value is read first: where it ends says where a comment beside it can begin.
        self.value(self.next(), below)
        if below is not None:
            start = key.start_mark
            end = self.end if self.end.line == start.line else key.end_mark
            self.sections[-1].keys.append(_Key(below, start.line, start.column, end.column))
