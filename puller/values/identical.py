"""Identity of plain values, which is stricter than equality: ``1``, ``1.0`` and ``true`` differ."""

from collections.abc import Mapping
from typing import Any

from hiera.values.secrets import Secret


def identical(first: Any, other: Any) -> bool:
    """Return whether both values always have the same effect. Mappings have no order."""
    if first is other:
        return True
    if isinstance(first, Mapping) and isinstance(other, Mapping):
        same_keys = {(type(key), key) for key in first} == {(type(key), key) for key in other}
        return same_keys and all(identical(first[key], other[key]) for key in first)
    if isinstance(first, Secret) and isinstance(other, Secret):
        return identical(first.reveal(), other.reveal())
    if type(first) is not type(other):
        return False
    if isinstance(first, list | tuple):
        return len(first) == len(other) and all(map(identical, first, other))
    return bool(first == other) or (first != first and other != other)  # .nan of YAML never equals itself


def fingerprint(value: Any) -> int:
    """Return a number that is the same for identical values."""
    if isinstance(value, Mapping):
        return hash(frozenset((key, fingerprint(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return hash(tuple(map(fingerprint, value)))
    return hash((type(value), repr(value)))
