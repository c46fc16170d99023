"""Agreement between two declarations of one resource: comparing and merging their properties.

* A property that only one declaration sets has that value. A default value counts as unset, unless the type lists the
  property in ``exact``.
* ``ensure`` and ``noop`` always count as set, because a declaration without them means their defaults.
* ``require``, ``after``, ``subscribe`` and ``health_checks`` are joined. A resource is sensitive if either declaration
  says so, and is kept after removal from the manifest if either declaration keeps it.
* Only values are compared. The state of the machine is not read.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from puller.values.common_properties import KEEP
from puller.values.file_mode import FileMode
from puller.values.plain_values import identical

P = TypeVar("P", bound=msgspec.Struct)
Rule = Callable[[Any, Any], Any]
"""Returns a value that satisfies two different ones. Raises ``ValueError`` if none exists."""


fields = cache(msgspec.structs.fields)
"""The fields of a type of properties. Cached, because reading them takes longer than comparing the values."""


class Contradiction(Exception):
    """Two conflicting declarations of one resource: each property that differs, with both values."""

    def __init__(self, differences: Sequence[tuple[str, Any, Any]]) -> None:
        super().__init__(", ".join(name for name, _, _ in differences))
        self.differences = tuple(differences)


def agree(first: P, second: P, *, exact: Container[str] = (), rules: Mapping[str, Rule] | None = None) -> P:
    """Merge the properties of two declarations. Raises ``Contradiction`` with all properties that conflict.

    ``exact`` are properties whose default counts as set. ``rules`` merge two different values.
    """
    rules = {**_OF_ALL, **(rules or {})}
    result: dict[str, Any] = {}
    differences = []
    for field in fields(type(first)):
        one, other = getattr(first, field.name), getattr(second, field.name)
        rule = rules.get(field.name) or (_equal if field.name in exact else _either(field))
        try:
            result[field.name] = one if identical(one, other) else rule(one, other)
        except ValueError:
            differences.append((field.encode_name, one, other))
    if differences:
        raise Contradiction(differences)
    return msgspec.structs.replace(first, **result)


def linked(first: P, second: msgspec.Struct) -> P:
    """Return the first declaration with order, checks and secrecy of the second, which need not be valid as a whole."""
    both = {name: _OF_ALL[name] for name in ("alias", "require", "after", "health_checks", "sensitive")}
    values = {name: rule(getattr(first, name), getattr(second, name)) for name, rule in both.items()}
    return msgspec.structs.replace(first, **values)


def _equal(first: Any, other: Any) -> Any:
    raise ValueError(f"{first!r} is not {other!r}")


def _either(field: msgspec.structs.FieldInfo) -> Rule:
    """Return a rule that keeps the value that is set. It also merges compatible modes, and ids as number and text."""
    default = field.default_factory() if callable(field.default_factory) else field.default

    def rule(first: Any, other: Any) -> Any:
        if isinstance(first, FileMode) and isinstance(other, FileMode):
            return first.merged(other)
        if identical(other, default):
            return first
        if identical(first, default):
            return other
        if {type(first), type(other)} == {int, str} and str(first) == str(other):
            return first
        raise ValueError(f"{first!r} is not {other!r}")

    return rule


def _both(first: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*first, *other)))


_OF_ALL: Mapping[str, Rule] = {
    "name": lambda one, other: one,
    "alias": lambda one, other: one or other,  # references resolve both aliases
    "ensure": _equal,
    "noop": _equal,
    "require": _both,
    "after": _both,
    "subscribe": _both,
    # Unconditional management by one declaration takes precedence.
    "control": lambda one, other: None if one is None or other is None else one,
    "health_checks": _both,
    "sensitive": lambda one, other: one or other,
    # A shared resource is removed only if all declarations allow it.
    "removed": lambda one, other: KEEP if KEEP in (one, other) else None,
}
