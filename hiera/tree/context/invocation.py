"""A single lookup in a tree (Puppet's ``Invocation``): its parameters and its limits.

* Looking up a name during its own lookup is a recursion, and an error.
* The work is limited: data with doubling references ends in an error, not in an endless lookup.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from hiera.errors import LimitError, LookupFailure

MAX_NESTING = 250  # nested lookups, slightly more than Puppet's stack allows
MAX_DEPTH = 1000  # nested lists and mappings in a result
MAX_LOOKUPS = 100_000
MAX_VALUES = 2_000_000
MAX_TEXT = 16 * 1024 * 1024  # characters of one interpolated text

_FRAMES = 12_000  # a nested lookup takes about twenty, a level of nested data one


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit to the limits of this module. The default of 1,000 frames allows only 45 lookups.

    Since Python 3.11 a call from Python to Python needs no space on the C stack, which the default limit protects.
    Other code of the process has no such limits, so the old limit is restored.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


Outer = Callable[[str], Any]
"""Returns the value of a whole key from outside of the tree, or ``MISSING``."""


class Place(NamedTuple):
    """The place of a value, for messages: in a data file, or in a ``hiera.yaml``."""

    file: str
    level: str = ""
    key: str = ""

    def __str__(self) -> str:
        pieces = {
            "file: ": self.file,
            "level ": self.level and repr(self.level),
            "key ": self.key and repr(self.key),
        }
        return ", ".join(name + value for name, value in pieces.items() if value)


class Invocation:
    """A single lookup in the tree.

    ``override`` has priority over the data, and ``defaults`` come after the data. Both also apply to interpolations.
    ``outer`` answers lookups in the data from outside of the tree, or returns ``MISSING``.
    """

    def __init__(
        self,
        override: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        outer: Outer | None = None,
    ) -> None:
        self.override = override or {}
        self.defaults = defaults or {}
        self.outer = outer
        self.place: Place | None = None
        """The place that is being read."""
        self._names: list[str] = []
        self._lookups = MAX_LOOKUPS
        self._values = MAX_VALUES
        self._depth = 0

    @contextmanager
    def resolving(self, name: str) -> Iterator[None]:
        """Mark ``name`` as being looked up in the block.

        Raises ``LookupFailure`` for a recursive lookup, ``LimitError`` for too many nested lookups.
        """
        if name in self._names:
            raise LookupFailure("", f"Recursive lookup detected in [{', '.join(self._names)}]")
        if len(self._names) >= MAX_NESTING:
            raise LimitError("", f"more than {MAX_NESTING} lookups inside one another")
        self._names.append(name)
        try:
            yield
        finally:
            self._names.pop()

    def spend_lookup(self) -> None:
        """Count a key that data looks up. Raises ``LimitError``."""
        self._lookups -= 1
        if self._lookups < 0:
            raise LimitError("", f"more than {MAX_LOOKUPS} lookups for one answer")

    def enter(self, count: int) -> None:
        """Count a list or mapping of ``count`` values that is processed until ``leave``. Raises ``LimitError``."""
        self._values -= count
        self._depth += 1
        if self._values < 0:
            raise LimitError("", f"more than {MAX_VALUES} values for one answer")
        if self._depth > MAX_DEPTH:
            raise LimitError("", f"more than {MAX_DEPTH} lists and mappings inside one another")

    def leave(self) -> None:
        """Leave the collection that was entered last."""
        self._depth -= 1
