"""Maps. As in Sprig, ``set``, ``unset`` and the merging functions change their argument.

Go walks maps in random order. Here ``keys`` and ``values`` return them in key order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from puller.templates.gotemplate.sprig.text import text_of
from puller.templates.govalue.types import NilMap, Strings, map_keys, type_name
from puller.templates.template_errors import FunctionError


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


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
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
