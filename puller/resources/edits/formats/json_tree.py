"""Settings of JSON documents: only the bytes of a value or a member change (``docs/resources/setting.md``).

* The standard library parses a document. A separate scan, which assumes a valid document, finds all positions.
* New lines have the indentation of the file's first indented line. A document of one line keeps one line.
* Comments, duplicate keys, and invalid numbers (``NaN``) are rejected.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

from puller.resources.base import PropertyError
from puller.resources.edits.formats.text_lines import (
    FormatError,
    Found,
    Setting,
    ending_of,
    indentation_of,
    remembered,
)
from puller.resources.edits.formats.trees import (
    MAX_DEPTH,
    MISSING,
    Way,
    edited_tree,
    find_in,
    line_at,
    line_start,
    nested,
    tree_problems,
    way_of,
)

NEW_TEXT = "{\n}\n"
_PIECE = re.compile(
    r'[ \t\r\n]*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign>[{}\[\]:,])|(?P<other>[^\s{}\[\]:,"]+))'
)
_INDENTED = re.compile(r"^([ \t]+)\S", re.MULTILINE)


class _Node(msgspec.Struct):
    start: int
    end: int = 0
    members: "dict[str, _Member] | None" = None
    """The members of an object."""


class _Member(msgspec.Struct):
    start: int
    key_end: int
    node: _Node


class _Document(msgspec.Struct, frozen=True):
    tree: Any
    root: _Node
    indentation: str
    """One step of indentation. Empty in a document of one line."""
    colon: str


def problems(setting: Setting) -> Iterator[PropertyError]:
    """Yield errors of a setting that are independent of the file."""
    yield from tree_problems(setting, special_floats=False)


def find(text: str, setting: Setting) -> Found:
    """Return the value and line of the key. Raises ``FormatError`` for an invalid document or a conflicting value."""
    document, key_path = _document(text), way_of(setting)
    return find_in(document.tree, key_path, lambda: line_at(text, _deepest(document.root, key_path)[0].start))


def with_value(text: str, setting: Setting) -> str:
    """Return the text with the value. Raises the exceptions of :func:`find`."""
    return edited_tree(text, setting, setting.value, _tree, _set)


def without(text: str, setting: Setting) -> str:
    """Return the text without the member. Raises the exceptions of :func:`find`."""
    return edited_tree(text, setting, MISSING, _tree, _set)


def _set(text: str, key_path: Way, value: Any) -> str:
    document = _document(text)
    if value is MISSING:
        return _removed(text, _deepest(document.root, key_path[:-1])[0], key_path[-1])
    node, depth = _deepest(document.root, key_path)
    if depth == len(key_path) or node.members is None:
        container = _deepest(document.root, key_path[: depth - 1])[0]
        is_long = depth > 0 and _has_lines(text, container, key_path[depth - 1])
        written = _written(text, document, node.start, nested(key_path[depth:], value), is_long=is_long)
        return f"{text[: node.start]}{written}{text[node.end :]}"
    return _inserted(text, document, node, key_path[depth], nested(key_path[depth + 1 :], value))


def _inserted(text: str, document: _Document, node: _Node, name: str, value: Any) -> str:
    """Return the text with a new member at the end of an object."""
    key = json.dumps(name, ensure_ascii=False) + document.colon
    newline = ending_of(text)
    if node.members:
        last = next(reversed(node.members))
        is_long, place = _has_lines(text, node, last), node.members[last].node.end
        indentation = _indentation_at(text, node.members[last].start)
        short = "," if document.colon == ":" else ", "
        separator = f",{newline}{indentation}" if is_long else short
        behind = text[place:]
    else:
        is_long, place = bool(document.indentation), node.start + 1
        base = _indentation_at(text, node.start)
        indentation = base + document.indentation
        separator = f"{newline}{indentation}" if is_long else ""
        behind = (f"{newline}{base}" if is_long else "") + text[node.end - 1 :]
    written = _dumped(document, value, indentation, newline, is_long=is_long)
    return f"{text[:place]}{separator}{key}{written}{behind}"


def _removed(text: str, node: _Node, name: str) -> str:
    members = list((node.members or {}).values())
    index = list(node.members or {}).index(name)
    if len(members) == 1:
        return f"{text[: node.start]}{{}}{text[node.end :]}"
    if index:
        return text[: members[index - 1].node.end] + text[members[index].node.end :]
    return text[: members[0].start] + text[members[1].start :]


def _written(text: str, document: _Document, start: int, value: Any, *, is_long: bool) -> str:
    return _dumped(document, value, _indentation_at(text, start), ending_of(text), is_long=is_long)


def _dumped(document: _Document, value: Any, indentation: str, newline: str, *, is_long: bool) -> str:
    colon = document.colon
    if not is_long:
        return json.dumps(value, ensure_ascii=False, separators=("," if colon == ":" else ", ", colon))
    dumped = json.dumps(value, ensure_ascii=False, indent=document.indentation, separators=(",", colon))
    return dumped.replace("\n", newline + indentation)


def _has_lines(text: str, node: _Node, name: str) -> bool:
    """Return whether a member of an object begins a line."""
    start = (node.members or {})[name].start
    return not text[line_start(text, start) : start].strip(" \t") and "\n" in text[node.start : start]


def _indentation_at(text: str, position: int) -> str:
    return indentation_of(text[line_start(text, position) : position] + ".")


def _deepest(root: _Node, key_path: Way) -> tuple[_Node, int]:
    """Return the last existing node on a path, and the number of names that lead to it."""
    node = root
    for depth, name in enumerate(key_path):
        if not node.members or name not in node.members:
            return node, depth
        node = node.members[name].node
    return node, len(key_path)


def _tree(text: str) -> Any:
    return _document(text).tree


@remembered
def _document(text: str) -> _Document:
    try:
        tree = json.loads(text, object_pairs_hook=_mapping, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"line {error.lineno} is not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        ) from None
    except RecursionError:
        raise FormatError(f"the document is nested more than {MAX_DEPTH} deep") from None
    except ValueError:  # an integer of thousands of digits
        raise FormatError("the document has a number that is too long") from None
    root = _scanned(text)
    indented = _INDENTED.search(text, root.start, root.end)
    step = (indented[1] if indented else "  ") if "\n" in text[root.start : root.end] else ""
    first = next(iter(root.members.values()), None) if root.members else None
    colon = text[first.key_end : first.node.start] if first else ": "
    return _Document(tree, root, step, colon if colon in (":", " : ") else ": ")


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for name, value in pairs:
        if name in mapping:
            raise FormatError(f"the key {name!r} is there twice")
        mapping[name] = value
    return mapping


def _refuse_constant(name: str) -> NoReturn:
    raise FormatError(f"the document has {name}, which json does not have")


def _scanned(text: str) -> _Node:
    """Return the positions of all nodes in a valid document."""
    top = _Node(0, members=None)
    stack: list[_Node] = []
    keys: list[re.Match[str] | None] = [None]
    position = 0
    while match := _PIECE.match(text, position):
        start, position = match.start(str(match.lastgroup)), match.end()
        sign = match["sign"]
        if sign in ("{", "["):
            stack.append(_Node(start, members={} if sign == "{" else None))
            keys.append(None)
            if len(stack) > MAX_DEPTH:
                raise FormatError(f"the document is nested more than {MAX_DEPTH} deep")
        elif sign in ("}", "]"):
            node = stack.pop()
            keys.pop()
            node.end = position
            top = _attached(node, stack, keys)
        elif sign is None and stack and stack[-1].members is not None and keys[-1] is None:
            keys[-1] = match
        elif sign is None:
            top = _attached(_Node(start, position), stack, keys)
    return top


def _attached(node: _Node, stack: list[_Node], keys: list[re.Match[str] | None]) -> _Node:
    """Add a complete value to its object, and return it."""
    key = keys[-1]
    if stack and (members := stack[-1].members) is not None and key is not None:
        members[json.loads(key["text"])] = _Member(key.start("text"), key.end("text"), node)
        keys[-1] = None
    return node
