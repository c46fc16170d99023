"""One question to a tree (Puppet's ``Invocation``): what it brings along, and how far it has gone.

* A name that is asked for while it is being answered is a recursion, and an error.
* The work is limited: data that refers to itself in doubling ways ends in an error, not in a hang.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from hiera.errors import LimitError, LookupFailure

MAX_NESTING = 250  # names being answered at once; Puppet runs out of stack a little earlier
MAX_DEPTH = 1000  # lists and mappings inside one another, in one answer
MAX_LOOKUPS = 100_000
MAX_VALUES = 2_000_000
MAX_TEXT = 16 * 1024 * 1024  # characters of one interpolated text

_FRAMES = 12_000  # a nested lookup takes about twenty, a level of nested data one


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Let Python nest as deep as the limits here allow; its own limit of 1,000 frames is reached after 45 lookups.

    Since Python 3.11 a call from Python to Python takes no room on the C stack, which that limit is there to guard.
    What else the process does has no such limits of its own, so it gets its old one back.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


Outer = Callable[[str], Any]
"""Gives the value that data outside of the tree has for a whole key, or ``MISSING``."""


class Place(NamedTuple):
    """Where a value stands, for messages: in a data file, or in a ``hiera.yaml``."""

    file: str
    level: str = ""
    key: str = ""

    def __str__(self) -> str:
        parts = {
            "file: ": self.file,
            "level ": self.level and repr(self.level),
            "key ": self.key and repr(self.key),
        }
        return ", ".join(name + value for name, value in parts.items() if value)


class Invocation:
    """One question on its way through the tree.

    ``override`` beats the data, and ``defaults`` come after it; both are seen by interpolations too. ``outer`` gives
    what lookups in the data find outside of the tree, or ``MISSING``.
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
        """The place that is being read just now."""
        self._names: list[str] = []
        self._lookups = MAX_LOOKUPS
        self._values = MAX_VALUES
        self._depth = 0

    @contextmanager
    def resolving(self, name: str) -> Iterator[None]:
        """``name`` is being answered while the block runs; raises ``LookupFailure`` when it already was, ``LimitError``
        when too many are.
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
        """Count one key that data looks up; raises ``LimitError``."""
        self._lookups -= 1
        if self._lookups < 0:
            raise LimitError("", f"more than {MAX_LOOKUPS} lookups for one answer")

    def enter(self, count: int) -> None:
        """Count a list or mapping of ``count`` values that is walked through until ``leave``. Raises ``LimitError``."""
        self._values -= count
        self._depth += 1
        if self._values < 0:
            raise LimitError("", f"more than {MAX_VALUES} values for one answer")
        if self._depth > MAX_DEPTH:
            raise LimitError("", f"more than {MAX_DEPTH} lists and mappings inside one another")

    def leave(self) -> None:
        """The collection entered last is done."""
        self._depth -= 1
