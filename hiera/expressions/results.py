"""Tests of Ansible that look at a value alone: results of tasks, as they are stored in data, and lists as sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hiera.errors import ExpressionError
from hiera.expressions.lists import contained
from hiera.values.plain import described, plain

_YES = frozenset({"1", "on", "t", "true", "y", "yes"})
_NO = frozenset({"", "0", "f", "false", "n", "no", "off"})


def _result(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ExpressionError(
            "", f"{name} wants the result of a task, a mapping, not {described(plain(value))}"
        )
    return value


def says(key: str, *, otherwise: bool = False) -> Callable[[Any], bool]:
    """A test: the result of a task is true at ``key``; ``otherwise`` is the answer for one that has no such key."""

    def test(value: Any) -> bool:
        return bool(_result(value, key).get(key, otherwise))

    return test


def says_not(key: str) -> Callable[[Any], bool]:
    """A test: the result of a task is not true at ``key``."""
    return lambda value: not _result(value, key).get(key)


def is_changed(value: Any) -> bool:
    """Test ``changed``: the result of a task says so, or one of its ``results``."""
    result = _result(value, "changed")
    parts = result.get("results")
    several = parts if isinstance(parts, list) else []
    return bool(
        result.get("changed", any(part.get("changed") for part in several if isinstance(part, Mapping)))
    )


def is_timed_out(value: Any) -> bool:
    """Test ``timedout``: the result of a task has a period after which it was ended."""
    found = _result(value, "timedout").get("timedout")
    return isinstance(found, Mapping) and bool(found.get("period"))


def is_nan(value: Any) -> bool:
    """Test ``nan``: no number, such as infinity minus infinity."""
    return isinstance(value, float) and math.isnan(value)


def is_any(value: Iterable[Any]) -> bool:
    """Test ``any``: one of the items is true."""
    return any(value)


def is_all(value: Iterable[Any]) -> bool:
    """Test ``all``: every item is true."""
    return all(value)


def contains(value: Any, item: Any) -> bool:
    """Test ``contains``: ``in`` the other way round, for ``selectattr('groups', 'contains', 'admin')``."""
    return item in value


def is_subset(value: Iterable[Any], other: Iterable[Any]) -> bool:
    """Test ``subset``: every item is in the other list."""
    return contained(value, other)


def is_superset(value: Iterable[Any], other: Iterable[Any]) -> bool:
    """Test ``superset``: every item of the other list is in this one."""
    return contained(other, value)


def is_truthy(value: Any, convert_bool: bool = False) -> bool:
    """Test ``truthy``: a value that ``if`` takes for true; ``convert_bool`` also reads yes and no."""
    text = str(value).strip().lower() if isinstance(value, str) else ""
    if convert_bool and isinstance(value, str) and text in _YES | _NO:
        return text in _YES
    return bool(value)


def is_falsy(value: Any, convert_bool: bool = False) -> bool:
    """Test ``falsy``: the opposite of ``truthy``."""
    return not is_truthy(value, convert_bool)


def is_vault(value: Any) -> bool:
    """Test ``vault_encrypted``: a text that Ansible's vault has encrypted, which nothing here reads."""
    return isinstance(value, str) and value.startswith("$ANSIBLE_VAULT;")
