"""Whether two plain values are the same value, and not only equal: ``1``, ``1.0`` and ``true`` are three."""

from collections.abc import Mapping
from typing import Any

from hiera.values.secrets import Secret


def identical(one: Any, other: Any) -> bool:
    """Whether nothing that is made of one would come out otherwise with the other. Mappings have no order."""
    if one is other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        same_keys = {(type(key), key) for key in one} == {(type(key), key) for key in other}
        return same_keys and all(identical(one[key], other[key]) for key in one)
    if isinstance(one, Secret) and isinstance(other, Secret):
        return identical(one.reveal(), other.reveal())
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(identical, one, other))
    return bool(one == other) or (one != one and other != other)  # YAML has .nan, which equals nothing


def fingerprint(value: Any) -> int:
    """A number that identical values have in common."""
    if isinstance(value, Mapping):
        return hash(frozenset((key, fingerprint(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return hash(tuple(map(fingerprint, value)))
    return hash((type(value), repr(value)))
