"""Shared parts of yaml, toml and json: paths into a tree of mappings, and verification of edits.

* The text is edited by positions, so that only the bytes of a value, key or entry change. Libraries that write a whole
  tree (ruamel.yaml, tomlkit) also keep comments, but not every blank, quote and line end.
* Every edited text is parsed again, and must be the old tree with that one change.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from puller.resources.base import PropertyError
from puller.resources.edits.formats.text_lines import FormatError, Found, Setting, is_text
from puller.values.plain_values import identical

MAX_DEPTH = 100
"""The maximum nesting depth of a document, and of a desired value."""
MISSING = msgspec.UNSET
"""The marker for a value that is missing in a tree."""
_KINDS: tuple[tuple[Any, str], ...] = (
    *((Mapping, "a mapping"), (list, "a list"), (str, "a text")),
    *((bool, "a truth value"), (int | float, "a number")),
)
Way = tuple[str, ...]


def way_of(setting: Setting) -> Way:
    """Return the names that lead to the value."""
    return tuple(setting.key.split(".")) if isinstance(setting.key, str) else setting.key


def look_up(tree: Any, way: Way) -> Any:
    """Return the value at a path in a tree, or ``MISSING``.

    Raises :class:`FormatError` if the path leads through another type than a mapping.

    ``null`` on the path counts as an empty mapping.
    """
    for depth, name in enumerate(way):
        if tree is None:
            return MISSING
        if not isinstance(tree, Mapping):
            where = ".".join(way[:depth]) or "the document"
            raise FormatError(f"{where} is {kind_of(tree)}, expected a mapping that can have {name}")
        tree = tree.get(name, MISSING)
        if tree is MISSING:
            return MISSING
    return tree


def kind_of(value: Any) -> str:
    """Return the kind of a value, for messages that must not show it."""
    return next((words for kind, words in _KINDS if isinstance(value, kind)), "no plain value")


def nested(names: Sequence[str], value: Any) -> Any:
    """Return the value inside mappings with these names."""
    for name in reversed(names):
        value = {name: value}
    return value


def changed(tree: Any, way: Way, value: Any) -> dict[str, Any]:
    """Return the tree with another value at the end of a path. ``MISSING`` removes the key."""
    name, remainder = way[0], way[1:]
    copy = dict(tree or {})
    if remainder:
        copy[name] = changed(copy.get(name), remainder, value)
    elif value is MISSING:
        del copy[name]
    else:
        copy[name] = value
    return copy


def find_in(tree: Any, key_path: Way, line_of: Callable[[], int | None]) -> Found:
    """Return the value and line at the end of a path."""
    value = look_up(tree, key_path)
    return Found(is_there=False) if value is MISSING else Found(is_there=True, value=value, line=line_of())


def edited_tree(
    text: str, setting: Setting, value: Any, read: Callable[[str], Any], edit: Callable[[str, Way, Any], str]
) -> str:
    """Return the text after ``edit`` has set a value, or removed it for ``MISSING``. Unchanged if in sync.

    ``read`` returns the tree of a text. Raises :class:`FormatError` if the new text differs in anything else.
    """
    key_path, tree = way_of(setting), read(text)
    result = look_up(tree, key_path)
    if identical(result, value):
        return text
    new = edit(text, key_path, value)
    try:
        is_right = identical(read(new), changed(tree, key_path, value))
    except FormatError:
        is_right = False
    if not is_right:
        raise FormatError(f"{'.'.join(key_path)} cannot be edited without changing something else")
    return new


def line_at(text: str, position: int) -> int:
    """Return the line of a position, counted from 1."""
    return text.count("\n", 0, position) + 1


def line_start(text: str, position: int) -> int:
    """Return the start of the line at a position."""
    return text.rfind("\n", 0, position) + 1


def line_end(text: str, position: int) -> int:
    """Return the end of the line at a position, after its LF."""
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1


def tree_problems(
    setting: Setting, *, null: bool = True, special_floats: bool = True
) -> Iterator[PropertyError]:
    """Yield errors of a key and a value in a tree."""
    key_path = way_of(setting)
    if not all(isinstance(name, str) and is_text(name) and "\0" not in name for name in key_path):
        yield PropertyError("key", f"is {list(key_path)!r}, expected texts", because=["format"])
    elif not key_path or (isinstance(setting.key, str) and "" in key_path):
        sentence = f"is {setting.key!r}, expected names with dots between them, or a list of names"
        yield PropertyError("key", sentence, because=["format"])
    if setting.value is not msgspec.UNSET:
        problem = _value_problem(setting.value, null=null, special_floats=special_floats, depth=len(key_path))
        if problem:
            yield PropertyError("value", problem, because=["format"])


def _value_problem(value: Any, *, null: bool, special_floats: bool, depth: int) -> str | None:
    if depth > MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} deep"
    if isinstance(value, Mapping | list | tuple):
        items = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
        problems = (
            _value_problem(item, null=null, special_floats=special_floats, depth=depth + 1) for item in items
        )
        if isinstance(value, Mapping) and not all(isinstance(key, str) for key in value):
            return "has a key that is not text: put it in quotes"
        return next(filter(None, problems), None)
    if value is None:
        return None if null else "is null, which this format does not have"
    if isinstance(value, float) and not special_floats and not math.isfinite(value):
        return f"is {value}, which this format does not have"
    if isinstance(value, str):
        return None if is_text(value) else "has half a character, which no file can hold"
    return None if isinstance(value, bool | int | float) else f"is {kind_of(value)}"
