"""Laws of fact values: plain mappings, lists, text, numbers, booleans and ``None``.

* A fact that could not be found is left out; it is never an empty stand-in.
* Merging is deep for mappings; anything else is replaced, so that a later source can also take away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ABSENT: Any = object()
"""Stands for *no such fact*, because ``None`` is a value that a custom fact may have."""


def present(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Without the facts that are ``None``: what a built-in source did not find."""
    return {name: value for name, value in facts.items() if value is not None}


def merged(lower: Any, upper: Any) -> Any:
    """``upper`` over ``lower``; neither is changed."""
    if not isinstance(lower, dict) or not isinstance(upper, dict):
        return lower if upper is ABSENT else upper
    result = dict(lower)
    for name, value in upper.items():
        result[name] = merged(result.get(name, ABSENT), value)
    return result


def find(facts: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value at a path of names, ``ABSENT`` where it leads nowhere."""
    value: Any = facts
    for name in path:
        try:
            value = value[name]
        except (KeyError, TypeError, IndexError):
            return ABSENT
    return value


def nested(path: Sequence[str], value: Any) -> dict[str, Any]:
    """The tree that holds only ``value``, at ``path``."""
    for name in reversed(path):
        value = {name: value}
    result: dict[str, Any] = value
    return result
