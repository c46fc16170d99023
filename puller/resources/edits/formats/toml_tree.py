"""Settings of toml documents: only the bytes of a value or an entry change (``docs/resources/setting.md``).

* The standard library parses a document. The scan finds the positions of all tables and entries of a valid document.
* A replaced text keeps its quotes. A new key follows the last one of its table. In an inline table, or next to dotted
  keys, it has the same form. A new table is added at the end, after a blank line.
* tomlkit writes whole tables and would insert a key after the comments of the next table.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from puller.resources.base import PropertyError
from puller.resources.edits.formats.text_lines import FormatError, Found, Setting, ending_of, remembered
from puller.resources.edits.formats.trees import (
    MAX_DEPTH,
    MISSING,
    Way,
    edited_tree,
    find_in,
    line_at,
    line_end,
    line_start,
    look_up,
    tree_problems,
    way_of,
)
from puller.values.plain_values import identical

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


NEW_TEXT = ""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_HEAD = re.compile(r"(?:#[^\n]*\n)+(?=\r?\n)")
_BLANK_LINES = re.compile(r"(?:[ \t]*\r?\n)*")
_INTEGERS = range(-(2**63), 2**63)


class _Document(msgspec.Struct, frozen=True):
    tree: dict[str, Any]
    tables: list[Table]
    entries: dict[Way, tuple[Entry, Entry | None]]
    """All entries by path, each with the entry of the inline table that contains it."""

    def entry(self, way: Way) -> Entry | None:
        """Return the entry with the value at the end of a path."""
        return self.entries[way][0] if way in self.entries else None

    def table(self, way: Way) -> Table | None:
        """Return the table with that header."""
        return next((table for table in self.tables if table.way == way and not table.is_array), None)

    def below(self, way: Way) -> tuple[Entry, Entry | None] | None:
        """Return the last entry of a mapping without its own header: in braces, or with dotted keys."""
        result = None
        for other, (entry, inline) in self.entries.items():
            is_below = len(other) > len(way) and other[: len(way)] == way
            start = len(other) - len(entry.keys)
            if is_below and (start < len(way) or (inline is not None and inline.way == way)):
                result = entry, inline
        return result


def problems(setting: Setting) -> Iterator[PropertyError]:
    """Yield errors of a setting that are independent of the file."""
    yield from tree_problems(setting, null=False)
    if setting.value is not msgspec.UNSET and _has_long_integer(setting.value):
        yield PropertyError("value", "has an integer of more than 64 bits", because=["format"])


def find(text: str, setting: Setting) -> Found:
    """Return the value and line of the key. Raises ``FormatError`` for an invalid document or a conflicting value."""
    document, key_path = _document(text), way_of(setting)
    return find_in(document.tree, key_path, lambda: _line_of(text, document, key_path))


def with_value(text: str, setting: Setting) -> str:
    """Return the text with the value. Raises the exceptions of :func:`find`."""
    return edited_tree(text, setting, setting.value, _tree, _set)


def without(text: str, setting: Setting) -> str:
    """Return the text without the key or table. Raises the exceptions of :func:`find`."""
    return edited_tree(text, setting, MISSING, _tree, _set)


def _set(text: str, key_path: Way, value: Any) -> str:
    document = _document(text)
    if value is MISSING:
        return _without(text, document, key_path)
    old = look_up(document.tree, key_path)
    if old is MISSING:
        return _with_new(text, document, key_path, value)
    if entry := document.entry(key_path):
        written = _written(value, text[entry.value_start : entry.value_end])
        return text[: entry.value_start] + written + text[entry.value_end :]
    if isinstance(old, Mapping) and isinstance(value, Mapping):
        return _merged(text, key_path, old, value)
    return _set(_without(text, document, key_path), key_path, value)


def _merged(text: str, key_path: Way, old: Mapping[str, Any], value: Mapping[str, Any]) -> str:
    """Return the text with other keys and values in a table of several statements."""
    for name in value:
        if not identical(value[name], old.get(name, MISSING)):
            text = _set(text, (*key_path, name), value[name])
    for name in old:
        if name not in value:
            text = _set(text, (*key_path, name), MISSING)
    return text


# New keys


def _with_new(text: str, document: _Document, key_path: Way, value: Any) -> str:
    """Return the text with a new key."""
    depth = len(key_path) - 1
    while look_up(document.tree, key_path[:depth]) is MISSING:
        depth -= 1
    container, remainder = key_path[:depth], key_path[depth:]
    if depth and (below := document.below(container)):
        return _beside(text, *below, container, remainder, value)
    if depth and (entry := document.entry(container)):  # an empty inline table
        written = f"{{{_assigned(_keys(remainder), value)}}}"
        return text[: entry.value_start] + written + text[entry.value_end :]
    table = document.table(container)
    has_header = isinstance(value, Mapping) and bool(value)
    if len(remainder) > 1 or table is None or has_header:
        lines = (
            _table_lines(key_path, value)
            if has_header
            else _table_lines(key_path[:-1], {key_path[-1]: value})
        )
        return _with_lines(text, len(text), ["", *lines] if text and not _ends_blank(text) else lines)
    return _in_table(text, table, _assigned(_keys(remainder), value))


def _beside(text: str, entry: Entry, inline: Entry | None, container: Way, remainder: Way, value: Any) -> str:
    """Return the text with an entry after another one of the same mapping, in the same form."""
    start = len(entry.way) - len(entry.keys)
    line = _assigned([*entry.keys[: len(container) - start], *_keys(remainder)], value)
    if inline is not None:
        return f"{text[: entry.value_end]}, {line}{text[entry.value_end :]}"
    indentation = text[line_start(text, entry.start) : entry.start]
    return _with_lines(text, line_end(text, entry.value_end), [indentation + line])


def _in_table(text: str, table: Table, line: str) -> str:
    """Return the text with a statement at the end of a table, before trailing comments."""
    if table.entries:
        last = table.entries[-1]
        indentation = text[line_start(text, last.start) : last.start]
        return _with_lines(text, line_end(text, last.value_end), [indentation + line])
    if table.header_end or not text:
        return _with_lines(text, table.header_end, [line])
    head = _HEAD.match(text)
    return _with_lines(text, head.end(), [line]) if head else _with_lines(text, 0, [line, ""])


def _table_lines(key_path: Way, value: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table with a header, and of its subtables, each after a blank line."""
    tables = {name: item for name, item in value.items() if isinstance(item, Mapping) and item}
    own = [_assigned(_keys([name]), item) for name, item in value.items() if name not in tables]
    lines = [f"[{'.'.join(_keys(key_path))}]", *own] if own or not tables else []
    for name, item in tables.items():
        lines += [*([""] if lines else []), *_table_lines((*key_path, name), item)]
    return lines


def _with_lines(text: str, place: int, lines: list[str]) -> str:
    newline = ending_of(text)
    before = text[:place]
    if before and not before.endswith("\n"):
        before += newline
    return before + "".join(line + newline for line in lines) + text[place:]


def _ends_blank(text: str) -> bool:
    """Return whether the last line of a text is blank."""
    return text.endswith("\n") and not text[line_start(text, len(text) - 1) :].strip()


# Removed keys


def _without(text: str, document: _Document, key_path: Way) -> str:
    """Return the text without a key, or without a table and everything in it."""
    if tables := [table for table in document.tables if table.way[: len(key_path)] == key_path]:
        text = _without_tables(text, tables, key_path[:-1])
    while look_up(_document(text).tree, key_path) is not MISSING:
        document = _document(text)
        entry, inline = document.entries.get(key_path) or document.below(key_path) or (None, None)
        if entry is None:
            raise FormatError(f"{'.'.join(key_path)} cannot be taken out of this document")
        text = _without_entry(text, entry, inline)
    return text


def _without_tables(text: str, tables: list[Table], parent: Way) -> str:
    """Return the text without tables. Their parent stays, if necessary as a header."""
    new = _cut(text, [(table.start, table.end(text)) for table in tables])
    if parent and look_up(_document(new).tree, parent) is MISSING:
        start = tables[0].start
        return _with_lines(new[:start], start, [f"[{'.'.join(_keys(parent))}]"]) + new[start:]
    return _cut(text, [(table.start, _behind_gap(text, table)) for table in tables])


def _behind_gap(text: str, table: Table) -> int:
    """Return the end of a table. Includes the blank lines after it if a blank line precedes it, too."""
    end = table.end(text)
    gap = _BLANK_LINES.match(text, end) if not table.start or _ends_blank(text[: table.start]) else None
    return gap.end() if gap else end


def _cut(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in reversed(spans):
        text = text[:start] + text[end:]
    return text


def _without_entry(text: str, entry: Entry, inline: Entry | None) -> str:
    """Return the text without an entry. The parents of a dotted key stay."""
    if inline is not None and inline.entries is not None:
        start, end = _in_braces(inline.entries, inline.entries.index(entry), inline)
    else:
        start, end = line_start(text, entry.start), line_end(text, entry.value_end)
    new = text[:start] + text[end:]
    if len(entry.keys) > 1 and look_up(_document(new).tree, entry.way[:-1]) is MISSING:
        new = f"{text[: entry.start]}{'.'.join(entry.keys[:-1])} = {{}}{text[entry.value_end :]}"
    return new


def _in_braces(entries: list[Entry], index: int, inline: Entry) -> tuple[int, int]:
    """Return the span of an entry in an inline table, including its comma."""
    if len(entries) == 1:
        return inline.value_start + 1, inline.value_end - 1
    if index:
        return entries[index - 1].value_end, entries[index].value_end
    return entries[0].start, entries[1].start


# Values as text


def _assigned(keys: list[str], value: Any) -> str:
    return f"{'.'.join(keys)} = {_written(value)}"


def _keys(names: Sequence[str]) -> list[str]:
    return [name if _BARE_KEY.fullmatch(name) else _basic(name) for name in names]


def _written(value: Any, old: str = "") -> str:
    """Return a value as toml. A text keeps the quotes of ``old`` if they can contain it."""
    if isinstance(value, str):
        return _text(value, old)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        items = ", ".join(_assigned(_keys([name]), item) for name, item in value.items())
        return f"{{{items}}}"
    return f"[{', '.join(map(_written, value))}]" if isinstance(value, list | tuple) else repr(value)


def _text(value: str, old: str) -> str:
    is_plain = all(sign.isprintable() or sign == "\t" for sign in value)
    if old.startswith("'") and is_plain and "'" not in value:
        return f"'{value}'"
    return _basic(value)


def _basic(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _has_long_integer(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_long_integer, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_long_integer, value))
    return isinstance(value, int) and value not in _INTEGERS


# Documents


def _tree(text: str) -> Any:
    return _document(text).tree


def _line_of(text: str, document: _Document, key_path: Way) -> int | None:
    if entry := document.entry(key_path):
        return line_at(text, entry.start)
    if table := next((table for table in document.tables if table.way[: len(key_path)] == key_path), None):
        return line_at(text, table.start)
    below = document.below(key_path)
    return line_at(text, below[0].start) if below else None


@remembered
def _document(text: str) -> _Document:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).rpartition(" (at ")
        line = re.match(r"line \d+", place)
        where = line[0] if line else "the end of the document"
        raise FormatError(f"{where} is not valid TOML: {message[:1].lower()}{message[1:]}") from None
    except RecursionError:
        raise FormatError(f"the document is nested more than {MAX_DEPTH} deep") from None
    except ValueError:  # an integer of thousands of digits, or an impossible date
        raise FormatError("the document has a number or date that cannot be read") from None
    tables = scan(text)
    entries: dict[Way, tuple[Entry, Entry | None]] = {}
    for table in tables:
        if not table.is_array:
            _collect(table.entries, None, entries)
    return _Document(tree, tables, entries)


def _collect(
    result: list[Entry], inline: Entry | None, entries: dict[Way, tuple[Entry, Entry | None]]
) -> None:
    for entry in result:
        entries[entry.way] = entry, inline
        _collect(entry.entries or [], entry, entries)
