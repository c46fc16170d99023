"""Shapes of values: the keys that data and facts can have on any host, according to the files of a bundle.

* A shape is the union of all possible values of a place. An expression may read each key of any layer of the data.
* Null, an expression, and an empty mapping or list allow any keys below them, since hosts and sites fill them.
* Items of a list or mapping that a loop iterates over are examples. Further items may have other keys.
* The built-in facts have a fixed list of names (``FACT_NAMES``).
* A top-level name outside this list may be a custom fact of some hosts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache, reduce
from typing import Any, Final

import msgspec

from hiera import parsing
from hiera.errors import HieraError
from puller.authoring.lint.findings import read_text
from puller.facts import custom
from puller.facts.fact_tree import BUILT_IN, FACT_NAMES, LEGACY_PATHS


class Shape(msgspec.Struct, frozen=True):
    """All possible values of one place."""

    keys: Mapping[str, Shape] = {}
    others: Shape | None = None
    """The value of every further key, if keys are free."""
    items: Shape | None = None
    """One item of a list."""
    is_open: bool = False
    """Whether any value is possible."""
    is_example: bool = False
    """Whether it is one known item of several. Further items may exist."""
    is_loose: bool = False
    """Whether unknown values are possible beside the known ones."""

    def child(self, key: str | int) -> Shape | None:
        """Return the value at a key or index, or ``None`` if no host has it."""
        if self.is_open:
            return ANY
        result = self.keys.get(str(key), self.others)
        if (
            result is None
            and self.items is not None
            and (str(key).lstrip("-").isascii() and str(key).lstrip("-").isdecimal())
        ):
            result = self.items
        return result if result is None or not self.is_example else example(result)

    def each(self) -> Shape:
        """Return one item: of a list an item, of a mapping a value."""
        items = [*self.keys.values(), *(one for one in (self.others, self.items) if one is not None)]
        results = [item for item in items if not item.is_open]
        if self.is_open or not results:
            return ANY
        shape = example(union(results))
        # Null stands for an omitted item. An expression may produce any item.
        return shape if len(results) == len(items) else msgspec.structs.replace(shape, is_loose=True)

    @property
    def is_scalar(self) -> bool:
        """Whether it is only a text, a number or another single value."""
        return not (self.is_open or self.keys or self.items is not None or self.others is not None)


ANY: Final = Shape(is_open=True)
SCALAR: Final = Shape()


def example(shape: Shape) -> Shape:
    """Return a shape as one of several items."""
    if shape.is_open or shape.is_example:
        return shape
    return msgspec.structs.replace(shape, is_example=True)


def union(shapes: Iterable[Shape]) -> Shape:
    """Return the shape with the keys of all shapes, or any shape without any."""
    results = list(shapes)
    return reduce(_either, results) if results else ANY


def of_value(value: Any, mark: str = "{{") -> Shape:
    """Return the shape of a file's content. ``mark`` begins the expressions in its texts."""
    if isinstance(value, Mapping):
        if not value or any(isinstance(key, str) and mark in key for key in value):
            return ANY
        return Shape({str(key): of_value(item, mark) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return Shape(items=union(of_value(item, mark) for item in value)) if value else ANY
    is_told = value is not None and not (isinstance(value, str) and mark in value)
    return SCALAR if is_told else ANY


def _either(first: Shape, other: Shape) -> Shape:
    if first.is_open or other.is_open:
        return ANY
    if first is other:
        return first
    keys = {**other.keys, **first.keys}
    for key in first.keys.keys() & other.keys.keys():
        keys[key] = _either(first.keys[key], other.keys[key])
    return Shape(
        keys,
        _any_of(first.others, other.others),
        _any_of(first.items, other.items),
        is_example=first.is_example or other.is_example,
        is_loose=first.is_loose or other.is_loose,
    )


def _any_of(first: Shape | None, other: Shape | None) -> Shape | None:
    return _either(first, other) if first is not None and other is not None else first or other


# Shapes of facts: the built-in facts, and the facts of a bundle.

RUN: Final = Shape(is_open=True, is_example=True)
"""The output of a program of the bundle."""


@cache
def built_in() -> Shape:
    """Return the facts that Puller gathers. Hosts may have further top-level names."""
    top: dict[str, object] = {
        **dict.fromkeys(BUILT_IN),
        **dict.fromkeys(LEGACY_PATHS),
        "interfaces": None,
    }
    for path, names in _groups():
        group = top
        for step in path:
            group = _below(group, step)
        group.update((name, group.get(name)) for name in names)
    return _shape(top)


def of_bundle(directories: Iterable[str]) -> dict[str, Shape]:
    """Return the facts in directories ``facts.d`` by name. Programs have any shape."""
    shapes: dict[str, Shape] = {}
    for directory in directories:
        try:
            names = [name for name in sorted(os.listdir(directory)) if not custom.is_leftover(name)]
        except OSError:
            continue
        for name in names:
            shapes[os.path.splitext(name)[0]] = _of_file(os.path.join(directory, name))
    return shapes


def _groups() -> Iterable[tuple[list[str], list[str]]]:
    for word in FACT_NAMES.replace("\n", " ").split("}"):
        if path := word.partition("{")[0].strip():
            yield path.split("."), word.partition("{")[2].split()


def _below(group: dict[str, object], step: str) -> dict[str, object]:
    below = group.get(step)
    if not isinstance(below, dict):
        below = group[step] = {}
    return below


def _shape(names: object) -> Shape:
    if not isinstance(names, dict):
        return ANY
    keys = {str(name): _shape(below) for name, below in names.items()}
    others = next((keys.pop(name) for name in list(keys) if name.isupper()), None)
    return Shape(keys, others)


def _of_file(path: str) -> Shape:
    if not path.endswith((".yaml", ".yml", ".json")):
        return ANY if path.endswith(".txt") else RUN
    text = read_text(path)
    try:
        return ANY if text is None else of_value(parsing.load_yaml(text, path), mark="\0")
    except HieraError:
        return ANY
