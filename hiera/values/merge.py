"""Merging of plain values: inside a single document, and between sources of data.

* The later value wins; null and empty values are values and win too. Keys are never removed.
* Inputs are not changed. What was not merged is shared between input and result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_first(base: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """Top-level keys of ``over`` replace those of ``base``."""
    return {**base, **over}


def merge_deep(base: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """Mappings recurse, lists concatenate (``base`` first), anything else is replaced."""
    return _merged(base, over, join=True)


def merge_sources(base: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """Mappings recurse, lists and anything else are replaced."""
    return _merged(base, over, join=False)


def _merged(base: Mapping[Any, Any], over: Mapping[Any, Any], *, join: bool) -> dict[Any, Any]:
    result = dict(base)
    for key, value in over.items():
        present = result.get(key)
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            result[key] = _merged(present, value, join=join)
        elif join and isinstance(present, list) and isinstance(value, list):
            result[key] = present + value
        else:
            result[key] = value
    return result
