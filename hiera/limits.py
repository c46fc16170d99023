"""How much one evaluation may make, and how long it may take.

* Everything that is made is counted against one budget, so that a loop without end is refused before patience runs
  out; the clock is looked at on every step.
* How much one step may make is known before it is done: ``hiera.values.sizes``.
* What all expressions and loops of a document or manifest make together has a limit, too: ``total``.
* A regular expression is one step, which has a limit of its own: ``hiera.regex``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import NoneType
from typing import Any, Final

from hiera.errors import LimitError
from hiera.threads import PerThread
from hiera.values.secrets import Secret, revealed
from hiera.values.sizes import BITS_OF_A_DIGIT, TEXT_LIMIT, verify_length

BUDGET: Final = 8 << 20
"""The most that one evaluation may make, intermediate results included: list items, steps, and characters by fours."""

TIME_LIMIT: Final = 10.0
"""Seconds for one evaluation."""

TOTAL_LIMIT: Final = 128 << 20
"""Characters of everything that the expressions of one document or manifest make."""

LOOP_LIMIT: Final = 100_000
"""Items that all loops of one manifest go over, those of its children included."""

SCALARS: Final = frozenset({str, int, float, bool, NoneType})
"""Types whose values hold nothing else, and so no secret."""

_MOST_REMEMBERED: Final = 100_000  # collections that are known to hold no secret


class Meter(PerThread):
    """The use that the evaluation in this thread has made of its budget; evaluations inside it share its budget.

    It also knows whether a secret was looked at, because whatever is made from one is a secret too.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.left = 0
        self.deadline = 0.0
        self.secret = False
        self._open: dict[int, Any] = {}
        """Collections that were found to hold no secret, by identity: nothing can be put into one meanwhile."""

    def __enter__(self) -> Meter:
        if self.depth == 0:
            self.left, self.deadline, self.secret = BUDGET, time.monotonic() + TIME_LIMIT, False
            self._open = {}
        self.depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.left = 0  # nothing is evaluated outside, so that compiling folds no constants
            self._open = {}

    def spend(self, amount: int) -> None:
        """Count ``amount`` items or steps. Raises LimitError."""
        # Each use of an attribute is a look for those of this thread, which is what this method costs.
        self.left = left = self.left - amount
        if left < 0:
            raise LimitError("", "makes too much text, too many items, or takes too many steps")
        if time.monotonic() > self.deadline:
            raise LimitError("", f"takes more than {TIME_LIMIT:g} seconds")

    def made(self, value: Any) -> Any:
        """Count a value that was made, and return it."""
        if isinstance(value, str):
            self.spend(1 + len(value) // 4)
        else:
            self.spend(1 + len(value) if isinstance(value, (list, tuple, dict)) else 1)
        return value

    def revealed(self, value: Any) -> Any:
        """``value`` without the masks on it or in it; from now on the result is a secret.

        Raises LimitError for a value that is small only because it holds the same lists many times.
        """
        if isinstance(value, Secret):
            self.secret = True
            return self.revealed(value.reveal())
        if not isinstance(value, (dict, list, tuple)) or self._open.get(id(value)) is value:
            return value
        seen: list[Any] = []
        if _holds_secret(value, seen):
            self.secret = True
            return revealed(value)
        if len(self._open) + len(seen) <= _MOST_REMEMBERED:
            self._open.update((id(collection), collection) for collection in seen)
        return value

    def masked(self, value: Any) -> Any:
        """``value`` as a secret when one was looked at; a boolean or null says too little to hide it."""
        hidden = self.secret and value is not None and not isinstance(value, (bool, Secret))
        return Secret(value) if hidden else value


meter: Final = Meter()


def _holds_secret(value: Any, seen: list[Any]) -> bool:
    """Whether there is a secret anywhere in a collection; ``seen`` gets it, and all collections in it."""
    count, characters, found, waiting = 0, 0, False, [value]
    while waiting:
        items = waiting.pop()
        seen.append(items)
        count += len(items)
        verify_length(items, count)
        if isinstance(items, dict):
            characters += sum(len(key) for key in items if type(key) is str)
            items = items.values()
        for item in items:
            kind = type(item)
            if kind is str:
                characters += len(item)
            elif kind is int:
                characters += item.bit_length() // BITS_OF_A_DIGIT
            elif isinstance(item, (dict, list, tuple)):
                waiting.append(item)
            elif isinstance(item, Secret):
                found = True
        verify_length("", characters)
    return found


class Total(PerThread):
    """The size of all that expressions and loops make for the document or manifest that this thread is reading."""

    def __init__(self) -> None:
        self.depth = 0
        self.left = 0
        self.items_left = 0

    def __enter__(self) -> None:
        if self.depth == 0:
            self.left = TOTAL_LIMIT
            self.items_left = LOOP_LIMIT
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1

    def count(self, value: Any) -> None:
        """Count a value that is kept. Raises LimitError."""
        if self.depth == 0:
            return
        self.left -= len(value) if type(value) is str else _size(value)
        if self.left < 0:
            what = f"with it, expressions make more than {TOTAL_LIMIT} characters together"
            raise LimitError("", what)

    def count_item(self) -> None:
        """Count one item of a loop. Raises LimitError."""
        self.items_left -= 1
        if self.items_left < 0 < self.depth:
            raise LimitError("", f"with it, loops go over more than {LOOP_LIMIT} items together")


total: Final = Total()


def _size(value: Any) -> int:
    """Characters of a value, and eight for every item."""
    size, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        size += len(item) if isinstance(item, str) else 8
        if isinstance(item, Secret):
            waiting.append(item.reveal())
        elif isinstance(item, dict):
            waiting += [*item, *item.values()]
        elif isinstance(item, list):
            waiting += item
    return size


def concat(pieces: Iterable[str]) -> str:
    """``"".join`` with an end: raises LimitError."""
    total, kept = 0, []
    for piece in pieces:
        total += len(piece)
        if total > TEXT_LIMIT:
            raise LimitError("", f"makes a text of more than {TEXT_LIMIT} characters")
        kept.append(piece)
    meter.spend(total // 4)
    return "".join(kept)
