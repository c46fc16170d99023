"""Choosing between values, examining their type, comparing and copying them.

A value is empty if it is nil, false, zero, or has no element: the same as false in ``if``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Never

from puller.templates.govalue.types import NilMap, NilSlice, StringMap, ensure_small, kind_name, type_name
from puller.templates.template_errors import FunctionError


def _default(fallback: Any, *provided: Any) -> Any:
    """``default``: the value, or the fallback for an empty value."""
    return provided[0] if provided and provided[0] else fallback


def _empty(value: Any) -> bool:
    """``empty``: whether the value is empty."""
    return not value


def _coalesce(*values: Any) -> Any:
    """``coalesce``: the first nonempty value, or nil."""
    return next((value for value in values if value), None)


def _all(*values: Any) -> bool:
    """``all``: whether all values are nonempty."""
    return all(values)


def _any(*values: Any) -> bool:
    """``any``: whether any value is nonempty."""
    return any(values)


def _ternary(if_true: Any, if_false: Any, condition: bool) -> Any:
    """``ternary``: the first or second value, depending on the condition."""
    return if_true if condition else if_false


def _fail(message: str) -> Never:
    """``fail``: ends the rendering with this message. Raises FunctionError."""
    raise FunctionError(message)


# Types ---------------------------------------------------------------------------------------------------------------


def _type_is(name: str, value: Any) -> bool:
    """``typeIs``: whether the value's type has this name."""
    return type_name(value) == name


def _type_is_like(name: str, value: Any) -> bool:
    """``typeIsLike``: whether the value's type has this name, or is a pointer to it."""
    return type_name(value) in (name, f"*{name}")


def _kind_is(name: str, value: Any) -> bool:
    """``kindIs``: whether the value's kind has this name."""
    return kind_name(value) == name


# Equality and copies -------------------------------------------------------------------------------------------------


def are_equal(left: Any, right: Any) -> bool:
    """``deepEqual``: whether two values have the same type and the same content at all levels. 1 differs from 1.0.

    Raises ValueError for a value that is nested too deeply or too large.
    """
    ensure_small(left)
    ensure_small(right)
    return _are_equal(left, right)


def _are_equal(left: Any, right: Any) -> bool:
    # Compare types first: for Python 1, 1.0 and True are equal, and a nil list equals an empty list.
    if type_name(left) != type_name(right) or _is_nil(left) != _is_nil(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_are_equal(item, right[key]) for key, item in left.items())
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(_are_equal, left, right))
    return bool(left == right)


def _is_nil(value: Any) -> bool:
    return isinstance(value, (NilSlice, NilMap))


def _deep_copy(value: Any) -> Any:
    """``deepCopy``: a copy with copies of all lists and maps. Raises ValueError for an endless value."""
    ensure_small(value)
    return _copy(value)


def _copy(value: Any) -> Any:
    if isinstance(value, (StringMap, NilMap)):
        return type(value)(value)
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return type(value)(map(_copy, value)) if isinstance(value, (list, tuple)) else value


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "all": _all,
    "any": _any,
    "coalesce": _coalesce,
    "deepCopy": _deep_copy,
    "deepEqual": are_equal,
    "default": _default,
    "empty": _empty,
    "fail": _fail,
    "kindIs": _kind_is,
    "kindOf": kind_name,
    "mustDeepCopy": _deep_copy,
    "ternary": _ternary,
    "typeIs": _type_is,
    "typeIsLike": _type_is_like,
    "typeOf": type_name,
}
