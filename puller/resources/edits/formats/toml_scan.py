"""Positions of all tables and entries in a toml document that has been parsed and is valid."""

import re
import tomllib
from collections.abc import Iterator

import msgspec

from puller.resources.edits.formats.model import FormatError
from puller.resources.edits.formats.trees import MAX_DEPTH, Way, line_end, line_start

_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BLANKS = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[ \t]*(?:([A-Za-z0-9_-]+)|("(?:[^"\\\n]|\\.)*"|'[^'\n]*'))[ \t]*(\.?)""")
_TEXT = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""(?:"{0,2})|\'\'\'.*?\'\'\'(?:'{0,2})|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\'''', re.DOTALL
)
_BARE = re.compile(r"[^,\]}#\r\n]+")


class Entry(msgspec.Struct):
    """A key and its value, in a statement or an inline table."""

    way: Way
    """The path from the root of the document."""
    keys: list[str]
    """The names as written. A dotted key has several."""
    start: int
    value_start: int
    value_end: int = 0
    entries: "list[Entry] | None" = None
    """The entries of an inline table."""


class Table(msgspec.Struct):
    """A header and the statements below it. The first table of a document has no header."""

    way: Way
    is_array: bool
    start: int
    """The start of the header's line."""
    header_end: int
    """The end of the header's line, including LF."""
    entries: list[Entry]

    def end(self, text: str) -> int:
        """Return the end of the last statement's line."""
        return line_end(text, self.entries[-1].value_end) if self.entries else self.header_end


def scan(text: str) -> list[Table]:
    """Return the tables of a document. Raises :class:`FormatError` if it is nested too deep."""
    scanner = _Scanner(text)
    return list(scanner.tables())


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def tables(self) -> Iterator[Table]:
        table = Table((), False, 0, 0, [])
        while self.skip(_SPACE) < len(self.text):
            if self.text[self.position] == "[":
                yield table
                table = self.header()
            else:
                table.entries.append(self.entry(table.way, 0))
        yield table

    def skip(self, pattern: re.Pattern[str]) -> int:
        """Move past a match of the pattern. Returns the new position."""
        match = pattern.match(self.text, self.position)
        self.position = match.end() if match else self.position
        return self.position

    def header(self) -> Table:
        start = line_start(self.text, self.position)
        brackets = 2 if self.text.startswith("[[", self.position) else 1
        self.position += brackets
        route, _ = self.keys()
        if len(route) > MAX_DEPTH:
            raise FormatError(f"the document is nested more than {MAX_DEPTH} deep")
        self.position += brackets
        end = line_end(self.text, self.position)
        self.position = end
        return Table(route, brackets == 2, start, end, [])

    def keys(self) -> tuple[Way, list[str]]:
        """Read a key. Returns its names, and their written forms."""
        names, written = [], []
        while match := _KEY.match(self.text, self.position):
            self.position = match.end()
            quoted = match[2]
            names.append(tomllib.loads(f"k = {quoted}")["k"] if quoted else match[1])
            written.append(quoted or match[1])
            if not match[3]:
                break
        return tuple(names), written

    def entry(self, way: Way, depth: int) -> Entry:
        if depth > MAX_DEPTH:
            raise FormatError(f"the document is nested more than {MAX_DEPTH} deep")
        start = self.skip(_BLANKS)
        names, written = self.keys()
        if len(way) + len(names) > MAX_DEPTH:
            raise FormatError(f"the document is nested more than {MAX_DEPTH} deep")
        self.position += 1  # =
        entry = Entry(way + names, written, start, self.skip(_BLANKS))
        self.value(entry, depth)
        return entry

    def value(self, entry: Entry, depth: int) -> None:
        """Read the value of an entry."""
        if self.text[self.position] == "{":
            entry.entries = []
            self.position += 1
            while self.text[self.skip(_SPACE)] != "}":
                entry.entries.append(self.entry(entry.way, depth + 1))
                self.skip_comma()
            self.position += 1
        else:
            self.item(depth)
        entry.value_end = self.position

    def item(self, depth: int) -> None:
        """Move past a value that cannot contain a setting."""
        if depth > MAX_DEPTH:
            raise FormatError(f"the document is nested more than {MAX_DEPTH} deep")
        if match := _TEXT.match(self.text, self.position):
            self.position = match.end()
        elif self.text[self.position] == "[":
            self.position += 1
            while self.text[self.skip(_SPACE)] != "]":
                self.item(depth + 1)
                self.skip_comma()
            self.position += 1
        elif self.text[self.position] == "{":
            self.value(Entry((), [], self.position, self.position), depth)
        else:
            bare = _BARE.match(self.text, self.position)
            self.position += len(bare[0].rstrip(" \t")) if bare else 1

    def skip_comma(self) -> None:
        if self.text.startswith(",", self.skip(_SPACE)):
            self.position += 1
