"""How much one evaluation may make, and how long it may take.

* A text of ``'x' * 10**10``, a power of a power, a loop without end: each is refused before memory or
  patience run out, and the error says which limit it met.
* What one step can multiply (repeating, padding, replacing, formatting) is computed before it is done;
  everything that is made is counted against one budget; the clock is looked at on every step.
* A regular expression is one step, which has a limit of its own: ``hiera.regex``.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

from hiera.errors import LimitError
from hiera.secrets import Secret, revealed

BUDGET: Final = 8 << 20
"""What one evaluation may make, intermediate results included: list items, steps, and characters by fours."""

TEXT_LIMIT: Final = 16 << 20
"""Characters of one text."""

ITEM_LIMIT: Final = 1_000_000
"""Items of one list, with the items of the lists in it."""

TIME_LIMIT: Final = 10.0
"""Seconds for one evaluation."""

_MOST_REMEMBERED: Final = 100_000  # collections that are known to hold no secret

NUMBER_BITS: Final = 8192
WIDTH_LIMIT: Final = 10_000
"""Columns that text can be padded, indented or formatted to."""


class Meter(threading.local):
    """What the evaluation that runs in this thread has used; evaluations inside it share its budget.

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
        self.left -= amount
        if self.left < 0:
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

    def opened(self, value: Any) -> Any:
        """``value`` without the masks on it or in it; from now on the result is a secret.

        Raises LimitError for a value that is small only because it holds the same lists many times.
        """
        if isinstance(value, Secret):
            self.secret = True
            return self.opened(value.reveal())
        if not isinstance(value, (dict, list, tuple)) or self._open.get(id(value)) is value:
            return value
        seen: list[Any] = []
        if _holds_secret(value, seen):
            self.secret = True
            return revealed(value)
        if len(self._open) + len(seen) <= _MOST_REMEMBERED:
            self._open.update((id(collection), collection) for collection in seen)
        return value

    def sealed(self, value: Any) -> Any:
        """``value`` as a secret when one was looked at; a boolean or null says too little to hide it."""
        hidden = self.secret and value is not None and not isinstance(value, (bool, Secret))
        return Secret(value) if hidden else value


meter: Final = Meter()


def _holds_secret(value: Any, seen: list[Any]) -> bool:
    """Whether there is a secret anywhere in a collection; ``seen`` gets it, and all collections in it."""
    count, found, waiting = 0, False, [value]
    while waiting:
        items = waiting.pop()
        seen.append(items)
        count += len(items)
        verify_length(items, count)
        for item in items.values() if isinstance(items, dict) else items:
            if isinstance(item, (dict, list, tuple)):
                waiting.append(item)
            elif isinstance(item, Secret):
                found = True
    return found


def concat(pieces: Iterable[str]) -> str:
    """``"".join`` with an end."""
    total, kept = 0, []
    for piece in pieces:
        total += len(piece)
        if total > TEXT_LIMIT:
            raise LimitError("", f"makes a text of more than {TEXT_LIMIT} characters")
        kept.append(piece)
    meter.spend(total // 4)
    return "".join(kept)


def verify_length(kind: Any, length: int) -> None:
    """Raise LimitError when a text or list of that length is more than one step may make; ``kind`` is one."""
    limit, what = (TEXT_LIMIT, "characters") if isinstance(kind, str) else (ITEM_LIMIT, "items")
    if length > limit:
        raise LimitError("", f"would make {length} {what}, at most {limit} are made at once")


def verify_width(width: Any) -> None:
    """Raise LimitError when text would be padded or indented to more columns than anybody reads."""
    columns = len(width) if isinstance(width, str) else width
    if columns > WIDTH_LIMIT:
        raise LimitError("", f"a width of {columns} is asked for, at most {WIDTH_LIMIT} is possible")


_FIELD: Final = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|\d+)?(?:\.(\*|\d+))?")


def verify_format(template: str) -> None:
    """Raise LimitError for a ``%`` format whose width or precision is large, or comes from the arguments."""
    for field in _FIELD.finditer(template):
        for width in field.groups():
            if width == "*" or (width and (len(width) > 9 or int(width) > WIDTH_LIMIT)):
                raise LimitError("", f"the width in {field[0]!r} is more than {WIDTH_LIMIT}, or not fixed")


def verify_product(left: Any, right: Any) -> None:
    """Raise LimitError when ``left * right`` is larger than one step may make."""
    if isinstance(left, int) and isinstance(right, int):
        verify_bits(left.bit_length() + right.bit_length())
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, (str, list, tuple)) and isinstance(count, int):
            verify_length(sequence, len(sequence) * count)


def verify_power(base: Any, exponent: Any) -> None:
    """Raise LimitError when ``base ** exponent`` is a number too long to handle."""
    if isinstance(base, int) and isinstance(exponent, int):
        verify_bits(base.bit_length() * exponent)


def verify_bits(bits: int) -> None:
    """Raise LimitError for a number of that many bits."""
    if bits > NUMBER_BITS:
        raise LimitError("", f"would make a number of {bits} bits, at most {NUMBER_BITS} are possible")
