"""Lists. These functions never change their arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from puller.templates.gotemplate.rendering_state import Rendering
from puller.templates.gotemplate.sprig.defaults import are_equal
from puller.templates.gotemplate.sprig.numbers import to_int64
from puller.templates.govalue.types import Lists, NilSlice, is_list, kind_name
from puller.templates.template_errors import FunctionError


def _list(*items: Any) -> list[Any]:
    """``list``: a list of the arguments."""
    return list(items)


def _items(value: Any, action: str) -> list[Any]:
    """Return the items of a list. Raises FunctionError for other values."""
    if not is_list(value):
        raise FunctionError(f"cannot {action} a value of type {kind_name(value)}: it is not a list")
    return list(value)


# Adding --------------------------------------------------------------------------------------------------------------


def _append(items: Any, item: Any) -> list[Any]:
    """``append``: the list with one more item at its end."""
    return [*_items(items, "append to"), item]


def _prepend(items: Any, item: Any) -> list[Any]:
    """``prepend``: the list with one more item at its start."""
    return [item, *_items(items, "prepend to")]


def _concat(*lists: Any) -> Any:
    """``concat``: the items of all lists in one list, or nil if they are all empty."""
    joined = [item for items in lists for item in _items(items, "concat")]
    return joined or NilSlice()


# Taking --------------------------------------------------------------------------------------------------------------


def _first(items: Any) -> Any:
    """``first``: the first item, or nil."""
    return next(iter(_items(items, "take the first of")), None)


def _last(items: Any) -> Any:
    """``last``: the last item, or nil."""
    return next(reversed(_items(items, "take the last of")), None)


def _rest(items: Any) -> Any:
    """``rest``: all items except the first."""
    return _items(items, "take the rest of")[1:] if items else _none_of(items)


def _initial(items: Any) -> Any:
    """``initial``: all items except the last."""
    return _items(items, "take the initial part of")[:-1] if items else _none_of(items)


def _none_of(items: Any) -> NilSlice:
    _items(items, "take a part of")
    return NilSlice()


def _slice(items: Any, *bounds: Any) -> Any:
    """``slice``: the items from one place to before another. Nil for an empty list."""
    length = len(_items(items, "slice"))
    if length == 0:
        return None
    start, end = [*map(to_int64, bounds[:2]), *(0, length)[len(bounds[:2]) :]]
    if not 0 <= start <= end <= length:
        raise FunctionError(f"slice [{start}:{end}] of a list of {length}: out of bounds")
    return type(items)(items[start:end])


def _chunk(size: int, items: Any) -> Lists:
    """``chunk``: lists of ``size`` items each. The last list may be shorter."""
    whole = _items(items, "chunk")
    if size < 1:
        raise FunctionError(f"the size of a chunk is {size}, expected 1 or more")
    return Lists(whole[start : start + size] for start in range(0, len(whole), size))


# Selecting -----------------------------------------------------------------------------------------------------------


def _compact(items: Any) -> list[Any]:
    """``compact``: the nonempty items."""
    return [item for item in _items(items, "compact") if item]


def _reverse(items: Any) -> list[Any]:
    """``reverse``: the items in reverse order."""
    return _items(items, "reverse")[::-1]


def _uniq(rendering: Rendering, items: Any) -> list[Any]:
    """``uniq``: the items without duplicates."""
    visited: set[tuple[type, Any]] = set()
    retained: list[Any] = []
    containers: list[Any] = []
    for item in _items(items, "make unique"):
        rendering.budget.step()
        # Scalars are hashable and can be looked up. Lists and maps are compared with all earlier containers.
        if isinstance(item, (str, int, float)):
            key = (type(item), item)
            # NaN differs from everything, including itself.
            if key in visited and not (isinstance(item, float) and math.isnan(item)):
                continue
            visited.add(key)
        else:
            if _is_among(rendering, item, containers):
                continue
            containers.append(item)
        retained.append(item)
    return retained


def _without(rendering: Rendering, items: Any, *omitted: Any) -> list[Any]:
    """``without``: the items that differ from all ``omitted`` items."""
    return [item for item in _items(items, "leave out of") if not _is_among(rendering, item, list(omitted))]


def _has(rendering: Rendering, item: Any, items: Any) -> bool:
    """``has``: whether the list contains the item. False for nil."""
    return items is not None and _is_among(rendering, item, _items(items, "search"))


def _is_among(rendering: Rendering, desired: Any, items: list[Any]) -> bool:
    for item in items:
        rendering.budget.step()
        if are_equal(desired, item):
            return True
    return False


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "append": _append,
    "chunk": _chunk,
    "compact": _compact,
    "concat": _concat,
    "first": _first,
    "has": _has,
    "initial": _initial,
    "last": _last,
    "list": _list,
    "mustAppend": _append,
    "mustChunk": _chunk,
    "mustCompact": _compact,
    "mustFirst": _first,
    "mustHas": _has,
    "mustInitial": _initial,
    "mustLast": _last,
    "mustPrepend": _prepend,
    "mustPush": _append,
    "mustRest": _rest,
    "mustReverse": _reverse,
    "mustSlice": _slice,
    "mustUniq": _uniq,
    "mustWithout": _without,
    "prepend": _prepend,
    "push": _append,
    "rest": _rest,
    "reverse": _reverse,
    "slice": _slice,
    "tuple": _list,
    "uniq": _uniq,
    "without": _without,
}
