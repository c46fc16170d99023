"""Plain values (text, numbers, booleans, null, lists and mappings, also with secrets) and their merging.

* The later value wins in a merge. Null and empty values are values, too. Keys are never removed.
* A merge does not change its inputs. Unmerged parts are shared between input and result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hiera.errors import ExpressionError, LimitError
from hiera.values.secrets import Secret

TYPES: Final = frozenset({str, int, float, bool, type(None), list, dict})
"""The types of plain values."""

ITEM_LIMIT: Final = 4_000_000
"""Maximum items of a value, including nested lists and mappings."""

_KINDS: Final[tuple[tuple[Any, str], ...]] = (
    (str, "text"),
    (bool, "a boolean"),
    ((int, float), "a number"),
    (type(None), "null"),
    ((list, tuple), "a list"),
    (Mapping, "a mapping"),
    (Secret, "a secret"),
)


def described(value: Any) -> str:
    """Return the kind of a value, for a sentence. Never its content."""
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return "a function" if callable(value) else "no plain value"


def plain(value: Any) -> Any:
    """Return ``value`` with every mapping a dict and every iterable a list. A plain value is returned unchanged.

    Raises ExpressionError for a function or another object, LimitError for more than ``ITEM_LIMIT`` items.
    """
    return _Maker().made(value)


class _Maker:
    def __init__(self) -> None:
        self.left = ITEM_LIMIT

    def made(self, value: Any) -> Any:
        kind = type(value)
        if kind is dict or kind is list:
            return self.items(value, value.items() if kind is dict else enumerate(value))
        if kind in TYPES or isinstance(value, Secret):
            return value
        if isinstance(value, str):
            return str(value)
        if hasattr(kind, "_undefined_message"):
            return str(value)  # Jinja2's undefined: an error, or for a condition without else the empty text
        if isinstance(value, Mapping):
            return {key: self.counted(item) for key, item in value.items()}
        if isinstance(value, Iterable):
            return [self.counted(item) for item in value]
        raise ExpressionError("", f"is {described(value)}, not a value")

    def items(self, container: Any, items: Iterable[tuple[Any, Any]]) -> Any:
        copy = None
        for key, item in items:
            made = self.counted(item)
            if made is not item:
                copy = container.copy() if copy is None else copy
                copy[key] = made
        return container if copy is None else copy

    def counted(self, item: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise LimitError("", f"has more than {ITEM_LIMIT} items, counted with those inside them")
        return self.made(item)


# Merging.


def merge_first(base: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return ``base`` with top-level keys replaced by those in ``over``."""
    return {**base, **over}


def merge_deep(base: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return mappings merged recursively, and lists concatenated (``base`` first). Other values are replaced."""
    return _merged(base, over, join=True)


def merge_sources(base: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return mappings merged recursively. Lists and other values are replaced."""
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
