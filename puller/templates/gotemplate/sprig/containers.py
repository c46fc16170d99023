"""Lists and maps.

* Functions of lists never change their arguments.
* As in Sprig, ``set``, ``unset`` and the merging functions change the map that is their argument.
* Go walks maps in random order. Here ``keys`` and ``values`` return them in key order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from puller.templates.gotemplate.function_calls import Rendering
from puller.templates.gotemplate.sprig.defaults import are_equal
from puller.templates.gotemplate.sprig.numbers import to_int64
from puller.templates.gotemplate.sprig.text import text_of
from puller.templates.govalue.types import (
    Lists,
    NilMap,
    NilSlice,
    Strings,
    is_list,
    kind_name,
    map_keys,
    type_name,
)
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

FUNCTIONS: Final = {**_LISTS, **_MAPS}
