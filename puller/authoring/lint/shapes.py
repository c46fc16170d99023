"""Shapes of values: which keys a value can have on any host, as far as the files of a bundle tell.

* A shape is the union of all that may stand at a place: what one layer of data has, an expression may ask for.
* Below null, an expression, and an empty mapping or list anything goes: hosts and sites fill those.
* Items of a list or mapping that somebody loops over are examples: others may have other keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, Final

import msgspec


class Shape(msgspec.Struct, frozen=True):
    """All that can stand at one place."""

    keys: Mapping[str, Shape] = {}
    others: Shape | None = None
    """The value of every further key, where the keys are free."""
    items: Shape | None = None
    """Of lists: one of their items."""
    is_open: bool = False
    """Whether anything can stand here."""
    is_example: bool = False
    """Whether it is one of the items that a bundle knows, beside which there may be others."""
    is_loose: bool = False
    """Whether something of which nothing is known stands beside what is known."""

    def child(self, key: str | int) -> Shape | None:
        """The value at a key or index; ``None`` where no host has it."""
        if self.is_open:
            return ANY
        found = self.keys.get(str(key), self.others)
        if (
            found is None
            and self.items is not None
            and (str(key).lstrip("-").isascii() and str(key).lstrip("-").isdecimal())
        ):
            found = self.items
        return found if found is None or not self.is_example else example(found)

    def each(self) -> Shape:
        """One of its items: of a list those, of a mapping its values."""
        items = [*self.keys.values(), *(one for one in (self.others, self.items) if one is not None)]
        found = [item for item in items if not item.is_open]
        if self.is_open or not found:
            return ANY
        shape = example(union(found))
        # Null stands for an item that is left out; an expression may give any.
        return shape if len(found) == len(items) else msgspec.structs.replace(shape, is_loose=True)

    @property
    def is_scalar(self) -> bool:
        """Whether it is text, a number or the like, and nothing else."""
        return not (self.is_open or self.keys or self.items is not None or self.others is not None)


ANY: Final = Shape(is_open=True)
SCALAR: Final = Shape()


def example(shape: Shape) -> Shape:
    """A shape that is one of several items."""
    if shape.is_open or shape.is_example:
        return shape
    return msgspec.structs.replace(shape, is_example=True)


def union(shapes: Iterable[Shape]) -> Shape:
    """The shape with the keys of each of them; anything where there is none."""
    found = list(shapes)
    return reduce(_either, found) if found else ANY


def of_value(value: Any, mark: str = "{{") -> Shape:
    """The shape of what a file holds; ``mark`` begins the expressions in its texts."""
    if isinstance(value, Mapping):
        if not value or any(isinstance(key, str) and mark in key for key in value):
            return ANY
        return Shape({str(key): of_value(item, mark) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return Shape(items=union(of_value(item, mark) for item in value)) if value else ANY
    is_told = value is not None and not (isinstance(value, str) and mark in value)
    return SCALAR if is_told else ANY


def _either(one: Shape, other: Shape) -> Shape:
    if one.is_open or other.is_open:
        return ANY
    if one is other:
        return one
    keys = {**other.keys, **one.keys}
    for key in one.keys.keys() & other.keys.keys():
        keys[key] = _either(one.keys[key], other.keys[key])
    return Shape(
        keys,
        _any_of(one.others, other.others),
        _any_of(one.items, other.items),
        is_example=one.is_example or other.is_example,
        is_loose=one.is_loose or other.is_loose,
    )


def _any_of(one: Shape | None, other: Shape | None) -> Shape | None:
    return _either(one, other) if one is not None and other is not None else one or other
