"""Lists and maps.

* Functions of lists never change their arguments.
* As in Sprig, ``set``, ``unset`` and the merging functions change the map that is their argument.
* Go walks maps in random order. Here ``keys`` and ``values`` return them in key order.

Choosing between values, examining their type, comparing and copying them.

A value is empty if it is nil, false, zero, or has no element: the same as false in ``if``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Never

from puller.templates.gotemplate.function_calls import Rendering
from puller.templates.gotemplate.sprig.numbers import to_int64
from puller.templates.gotemplate.sprig.text import text_of
from puller.templates.govalue.types import (
    Lists,
    NilMap,
    NilSlice,
    StringMap,
    Strings,
    ensure_small,
    is_list,
    kind_name,
    map_keys,
    type_name,
)
from puller.templates.template_errors import FunctionError


def _default(fallback: Any, *provided: Any) -> Any:
    """``default``: the value, or the fallback for an empty value."""
    return provided[0] if provided and provided[0] else fallback


def _is_empty(value: Any) -> bool:
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


_DEFAULTS: Final[dict[str, Callable[..., Any]]] = {
    "all": _all,
    "any": _any,
    "coalesce": _coalesce,
    "deepCopy": _deep_copy,
    "deepEqual": are_equal,
    "default": _default,
    "empty": _is_empty,
    "fail": _fail,
    "kindIs": _kind_is,
    "kindOf": kind_name,
    "mustDeepCopy": _deep_copy,
    "ternary": _ternary,
    "typeIs": _type_is,
    "typeIsLike": _type_is_like,
    "typeOf": type_name,
}


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
            if _contains_value(rendering, item, containers):
                continue
            containers.append(item)
        retained.append(item)
    return retained


def _without(rendering: Rendering, items: Any, *omitted: Any) -> list[Any]:
    """``without``: the items that differ from all ``omitted`` items."""
    return [
        item for item in _items(items, "leave out of") if not _contains_value(rendering, item, list(omitted))
    ]


def _has(rendering: Rendering, item: Any, items: Any) -> bool:
    """``has``: whether the list contains the item. False for nil."""
    return items is not None and _contains_value(rendering, item, _items(items, "search"))


def _contains_value(rendering: Rendering, desired: Any, items: list[Any]) -> bool:
    for item in items:
        rendering.budget.step()
        if are_equal(desired, item):
            return True
    return False


_LISTS: Final[dict[str, Callable[..., Any]]] = {
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


def _dict(*words: Any) -> dict[str, Any]:
    """``dict``: keys and values in alternation. The value of a last key without a value is empty text."""
    values = [*words[1::2], ""]
    return {text_of(key): value for key, value in zip(words[::2], values, strict=False)}


def _get(mapping: dict[str, Any], key: str) -> Any:
    """``get``: the value of a key, or empty text."""
    return mapping.get(key, "")


def _set(mapping: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """``set``: the map itself, with the new value of the key. Raises FunctionError for a nil map."""
    if isinstance(mapping, NilMap):
        raise FunctionError("assignment to entry in nil map")
    mapping[key] = value
    return mapping


def _unset(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    """``unset``: the map itself, without the key."""
    mapping.pop(key, None)
    return mapping


def _has_key(mapping: dict[str, Any], key: str) -> bool:
    """``hasKey``: whether the map has the key."""
    return key in mapping


def _keys(*mappings: dict[str, Any]) -> Strings:
    """``keys``: the keys of all the maps, map by map."""
    return Strings(text_of(key) for mapping in mappings for key in map_keys(mapping))


def _values(mapping: dict[str, Any]) -> list[Any]:
    """``values``: the values, in the order of their keys."""
    return [mapping[key] for key in map_keys(mapping)]


def _pluck(key: str, *mappings: dict[str, Any]) -> list[Any]:
    """``pluck``: the values for the key in all maps that contain it."""
    return [mapping[key] for mapping in mappings if key in mapping]


def _pick(mapping: dict[str, Any], *keys: str) -> dict[str, Any]:
    """``pick``: a map with only these keys."""
    return {key: mapping[key] for key in keys if key in mapping}


def _omit(mapping: dict[str, Any], *keys: str) -> dict[str, Any]:
    """``omit``: a map without these keys."""
    return {key: value for key, value in mapping.items() if key not in keys}


def _dig(*words: Any) -> Any:
    """``dig KEY... DEFAULT MAP``: the value below the keys, or the default for a missing key."""
    if len(words) < 3:
        raise FunctionError("dig needs at least three arguments")
    *keys, default, value = words
    for key in keys:
        if not isinstance(key, str):
            raise FunctionError(f"a key of dig is of type {type_name(key)}, expected string")
        if type_name(value) != "map[string]interface {}":
            raise FunctionError(f"dig {key!r} in a value of type {type_name(value)}, expected a map")
        if key not in value:
            return default
        value = value[key]
    return value


# Merging -------------------------------------------------------------------------------------------------------------


def _merge(target: dict[str, Any], *sources: dict[str, Any]) -> Any:
    """``merge``: ``target`` itself, with empty or missing values filled from the sources. The first source wins."""
    return _merged(target, sources, overwrite=False)


def _merge_overwrite(target: dict[str, Any], *sources: dict[str, Any]) -> Any:
    """``mergeOverwrite``: ``target`` itself, overwritten by values of the sources. The last source wins."""
    return _merged(target, sources, overwrite=True)


def _merged(
    target: dict[str, Any], sources: tuple[dict[str, Any], ...], *, overwrite: bool
) -> dict[str, Any]:
    # A nil map cannot be written to. As in the library, a new map replaces it.
    if isinstance(target, NilMap) and any(not isinstance(source, NilMap) for source in sources):
        target = {}
    for source in sources:
        _merge_into(target, source, overwrite, [])
    return target


def _merge_into(target: dict[str, Any], source: dict[str, Any], overwrite: bool, above: list[int]) -> None:
    """Merge as in Sprig's library: maps are merged, lists are replaced, nil is ignored."""
    if id(target) in above:  # a map that contains itself
        return
    for key in map_keys(source):
        value, present = source[key], target.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            _merge_into(present, value, overwrite, [*above, id(target)])
            if present:
                continue
        if overwrite or (not present and value is not None):
            target[key] = value


_MAPS: Final[dict[str, Callable[..., Any]]] = {
    "dict": _dict,
    "dig": _dig,
    "get": _get,
    "hasKey": _has_key,
    "keys": _keys,
    "merge": _merge,
    "mergeOverwrite": _merge_overwrite,
    "mustMerge": _merge,
    "mustMergeOverwrite": _merge_overwrite,
    "omit": _omit,
    "pick": _pick,
    "pluck": _pluck,
    "set": _set,
    "unset": _unset,
    "values": _values,
}

FUNCTIONS: Final = {**_LISTS, **_MAPS, **_DEFAULTS}
