"""The functions of a Go template by name: Go's own, Sprig's, and those of the renderer.

* A list of names avoids early imports. A group of functions is imported when a template uses any function of it.
* The renderer's functions take precedence, then Sprig's, then Go's. Both Sprig and Go have ``slice``.
* Go's comparisons are strict: numbers of one kind, strings with strings, booleans with booleans. Only nil may be
  compared with any value.
* An index outside a list is an error. A missing key of a map returns nil.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, Never

from puller.templates.gotemplate.function_calls import Rendering, Signature, signature_of
from puller.templates.gotemplate.sprig import GROUP_OF
from puller.templates.govalue.printf import sprint, sprintf, sprintln
from puller.templates.govalue.strconv import Complex
from puller.templates.govalue.text import escape_js, escape_query, escape_template_html
from puller.templates.govalue.types import (
    NilMap,
    NilSlice,
    StringMap,
    Uint8,
    byte_length,
    is_integer,
    kind_name,
    to_bytes,
    type_name,
)
from puller.templates.template_errors import FunctionError, similar_names

# Functions of Go's ``text/template``.

_ORDERED: Final = frozenset((int, float, str))
_BASIC: Final = {bool: "bool", int: "int", float: "float", str: "string", Complex: "complex"}


def _decide(first: Any, *remainder: Any) -> Never:
    """``and`` and ``or``: only their signature is used."""
    raise AssertionError("and, or are compiled, not called")


def _not(value: Any) -> bool:
    """``not``: whether the value is empty."""
    return not value


def _call(function: Any, *arguments: Any) -> Never:
    """``call``: rejected, since data contain no functions. Raises FunctionError."""
    shown = "nil" if function is None else f"a value of type {type_name(function)}"
    raise FunctionError(f"{shown} is not a function, with {len(arguments)} arguments")


# Comparison ----------------------------------------------------------------------------------------------------------


def _basic_kind(value: Any) -> str:
    """Return the kind for comparisons. Empty for lists, maps, objects and nil."""
    return next((kind for basic, kind in _BASIC.items() if isinstance(value, basic)), "")


def _eq(first: Any, *others: Any) -> bool:
    """``eq``: whether the first value equals any other argument. Raises FunctionError for types that do not compare."""
    if not others:
        raise FunctionError("missing argument for comparison")
    return any(_is_equal(first, other) for other in others)


def _ne(left: Any, right: Any) -> bool:
    """``ne``: whether the values differ. Raises FunctionError for types that do not compare."""
    return not _is_equal(left, right)


def _is_equal(left: Any, right: Any) -> bool:
    # Scalars of the same type, the common case, skip the checks below.
    if type(left) is type(right) and isinstance(left, (str, int, float)):
        return bool(left == right)
    kind = _basic_kind(left)
    if kind != _basic_kind(right):
        if left is None or right is None:
            return False
        raise _incompatible(left, right)
    return bool(left == right) if kind else _is_same(left, right)


def _is_same(left: Any, right: Any) -> bool:
    """Return whether lists, maps, objects or nil are equal. Only nil and objects can be compared."""
    if left is not None and right is not None and kind_name(left) != kind_name(right):
        raise _incompatible(left, right)
    if _is_nil(left) or _is_nil(right):
        return _is_nil(left) and _is_nil(right)
    if isinstance(right, (list, tuple, dict, bytes)):
        raise FunctionError(f"non-comparable type {type_name(right)}")
    return bool(left == right)


def _is_nil(value: Any) -> bool:
    return value is None or isinstance(value, (NilSlice, NilMap))


def _lt(left: Any, right: Any) -> bool:
    """``lt``: ``left < right``. Raises FunctionError for types without an order."""
    _check_order(left, right)
    return bool(left < right)


def _le(left: Any, right: Any) -> bool:
    """``le``: ``left <= right``. Raises FunctionError for types without an order."""
    _check_order(left, right)
    return bool(left <= right)


def _gt(left: Any, right: Any) -> bool:
    """``gt``: ``left > right``. Raises FunctionError for types without an order."""
    _check_order(left, right)
    return not left <= right  # as in Go, NaN is greater than any number


def _ge(left: Any, right: Any) -> bool:
    """``ge``: ``left >= right``. Raises FunctionError for types without an order."""
    _check_order(left, right)
    return not left < right


def _check_order(left: Any, right: Any) -> None:
    if type(left) in _ORDERED and type(left) is type(right):
        return
    kinds = [_basic_kind(left), _basic_kind(right)]
    for kind, value in zip(kinds, (left, right), strict=True):
        if kind not in ("int", "float", "string") and (not kind or kinds[0] == kinds[1]):
            raise FunctionError(f"invalid type for comparison: {type_name(value)}")
    if kinds[0] != kinds[1]:
        raise _incompatible(left, right)


def _incompatible(left: Any, right: Any) -> FunctionError:
    return FunctionError(f"incompatible types for comparison: {type_name(left)} and {type_name(right)}")


# Collections ---------------------------------------------------------------------------------------------------------


def _len(value: Any) -> int:
    """``len``: bytes of a text, items of a list, keys of a map. Raises FunctionError for other types."""
    if isinstance(value, str):
        return byte_length(value)
    if isinstance(value, (list, tuple, dict, bytes)):
        return len(value)
    raise FunctionError(f"len of type {type_name(value)}")


def _index(value: Any, *indexes: Any) -> Any:
    """``index``: the value below all the indexes and keys, nested in this order. Raises FunctionError."""
    if value is None:
        raise FunctionError("index of untyped nil")
    for index in indexes:
        if isinstance(value, dict):
            value = _entry(value, index)
        elif isinstance(value, (list, tuple)):
            value = value[_checked_index(index, len(value))]
        elif isinstance(value, str):
            value = Uint8(to_bytes(value)[_checked_index(index, byte_length(value))])
        else:
            raise FunctionError(
                "index of nil pointer" if value is None else f"can't index item of type {type_name(value)}"
            )
    return value


def _entry(mapping: dict[Any, Any], key: Any) -> Any:
    if not isinstance(key, str):
        raise FunctionError(f"the key has type {type_name(key)}; should be string")
    return mapping.get(key, "" if isinstance(mapping, StringMap) else None)


def _checked_index(index: Any, length: int) -> int:
    if not is_integer(index):
        raise FunctionError(f"cannot index slice/array with type {type_name(index)}")
    if not 0 <= index < length:
        raise FunctionError(f"index out of range: {index}")
    return int(index)


# Text ----------------------------------------------------------------------------------------------------------------


def _shown(values: tuple[Any, ...]) -> str:
    """Return the text that ``html`` and similar functions escape. Nil is printed as in an action."""
    return sprint(*("<no value>" if value is None else value for value in values))


def _html(*values: Any) -> str:
    """``html``: the values in the form of ``print``, escaped for HTML."""
    return escape_template_html(_shown(values))


def _js(*values: Any) -> str:
    """``js``: the values in the form of ``print``, escaped for JavaScript."""
    return escape_js(_shown(values))


def _urlquery(*values: Any) -> str:
    """``urlquery``: the values in the form of ``print``, escaped for the query of a URL."""
    return escape_query(_shown(values))


BUILTIN_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "and": _decide,
    "call": _call,
    "eq": _eq,
    "ge": _ge,
    "gt": _gt,
    "html": _html,
    "index": _index,
    "js": _js,
    "le": _le,
    "len": _len,
    "lt": _lt,
    "ne": _ne,
    "not": _not,
    "or": _decide,
    "print": sprint,
    "printf": sprintf,
    "println": sprintln,
    "urlquery": _urlquery,
}


# Functions that the renderer supplies.


def _render(rendering: Rendering, path: str, context: Any) -> Any:
    """``render``: the text of a partial, with this value as its dot."""
    return rendering.host("render")(path, context)


def _write(rendering: Rendering, path: str, text: str) -> Any:
    """``write``: writes the text to another file of the tree, and returns nothing."""
    return rendering.host("write")(path, text)


def _lookup(rendering: Rendering, path: str, *default: Any) -> Any:
    """``lookup``: the value at a path of the scope, or the default."""
    return rendering.host("lookup")(path, *default)


def _hiera(rendering: Rendering, key: str, *default: Any) -> Any:
    """``hiera``: the value of a key in the data, or the default."""
    return rendering.host("hiera")(key, *default)


def _read_file(rendering: Rendering, path: str) -> Any:
    """``readFile``: the text of a file of the bundle."""
    return rendering.host("readFile")(path)


HOST_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "file": _read_file,
    "hiera": _hiera,
    "lookup": _lookup,
    "readFile": _read_file,
    "render": _render,
    "write": _write,
}


@dataclass(frozen=True, slots=True)
class Function:
    """``stops_at`` is set for ``and`` (False) and ``or`` (True): the truth value that skips later arguments."""

    call: Callable[..., Any]
    signature: Signature
    stops_at: bool | None = None


_STOPS_AT: Final = {"and": False, "or": True}


@cache
def find_function(name: str) -> Function:
    """Return the function with this existing name. Imports its group."""
    call = _implementation(name)
    return Function(call, signature_of(call), _STOPS_AT.get(name))


def _implementation(name: str) -> Callable[..., Any]:
    if name in HOST_FUNCTIONS:
        return HOST_FUNCTIONS[name]
    if name in GROUP_OF:
        group = import_module(f"puller.templates.gotemplate.sprig.{GROUP_OF[name]}")
        functions: dict[str, Callable[..., Any]] = group.FUNCTIONS
        return functions[name]
    return BUILTIN_FUNCTIONS[name]


def unknown_function_message(name: str) -> str:
    """Return the complaint about an unknown function name, with similar names. Empty if the function exists."""
    if name in HOST_FUNCTIONS or name in GROUP_OF or name in BUILTIN_FUNCTIONS:
        return ""
    known = [*HOST_FUNCTIONS, *GROUP_OF, *BUILTIN_FUNCTIONS]
    return f"unknown function {name}{similar_names(name, known)}"
