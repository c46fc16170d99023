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

from puller.values.file_mode import FileMode
from puller.values.identical import identical
from puller.values.removal_policy import KEEP

P = TypeVar("P", bound=msgspec.Struct)
Rule = Callable[[Any, Any], Any]
"""The value that is enough for two different ones; raises ``ValueError`` where there is none."""


fields = cache(msgspec.structs.fields)
"""The fields of a type of properties: finding them anew for each of ten thousand takes longer than comparing them."""


class Contradiction(Exception):
    """Two declarations of one resource that say different things: each property, with the value of either."""

    def __init__(self, differences: Sequence[tuple[str, Any, Any]]) -> None:
        super().__init__(", ".join(name for name, _, _ in differences))
        self.differences = tuple(differences)


def agree(first: P, second: P, *, exact: Container[str] = (), rules: Mapping[str, Rule] | None = None) -> P:
    """The properties that both say; raises ``Contradiction`` with all properties about which they do not agree.

    ``exact`` are properties whose default says something, ``rules`` give the value for two different ones.
    """
    rules = {**_OF_ALL, **(rules or {})}
    found: dict[str, Any] = {}
    differences = []
    for field in fields(type(first)):
        one, other = getattr(first, field.name), getattr(second, field.name)
        rule = rules.get(field.name) or (_equal if field.name in exact else _either(field))
        try:
            found[field.name] = one if identical(one, other) else rule(one, other)
        except ValueError:
            differences.append((field.encode_name, one, other))
    if differences:
        raise Contradiction(differences)
    return msgspec.structs.replace(first, **found)


def linked(first: P, second: msgspec.Struct) -> P:
    """The first with what the second says of order, checks and secrecy: where one of them cannot be read as a whole."""
    both = {name: _OF_ALL[name] for name in ("alias", "require", "after", "health_checks", "sensitive")}
    values = {name: rule(getattr(first, name), getattr(second, name)) for name, rule in both.items()}
    return msgspec.structs.replace(first, **values)


def _equal(one: Any, other: Any) -> Any:
    raise ValueError(f"{one!r} is not {other!r}")


def _either(field: msgspec.structs.FieldInfo) -> Rule:
    """The one that is given; masks of permissions where their digits agree, and an id as number or text."""
    default = field.default_factory() if callable(field.default_factory) else field.default

    def rule(one: Any, other: Any) -> Any:
        if isinstance(one, FileMode) and isinstance(other, FileMode):
            return one.merged(other)
        if identical(other, default):
            return one
        if identical(one, default):
            return other
        if {type(one), type(other)} == {int, str} and str(one) == str(other):
            return one
        raise ValueError(f"{one!r} is not {other!r}")

    return rule


def _both(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*one, *other)))


_OF_ALL: Mapping[str, Rule] = {
    "name": lambda one, other: one,
    "alias": lambda one, other: one or other,  # references know those of both
    "ensure": _equal,
    "noop": _equal,
    "require": _both,
    "after": _both,
    "subscribe": _both,
    # A resource that one of them manages in any case is managed in any case.
    "control": lambda one, other: None if one is None or other is None else one,
    "health_checks": _both,
    "sensitive": lambda one, other: one or other,
    # What is declared by several is taken away when all of them say so: a bundle speaks for what is its own.
    "removed": lambda one, other: KEEP if KEEP in (one, other) else None,
}
