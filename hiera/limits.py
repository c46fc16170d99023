"""How much one evaluation may make, and how long it may take.

* A text of ``'x' * 10**10``, a power of a power, a loop without end: each is refused before memory or
  patience run out, and the error says which limit it met.
* What one step can multiply (repeating, padding, replacing, formatting, writing a value as text) is computed before it
  is done; everything that is made is counted against one budget; the clock is looked at on every step.
* A value is as large as all the texts in it, and one that is in it many times counts as often: that is what it
  takes to write it down.
* What all expressions of a document or manifest make together has a limit, too: ``total``.
* A regular expression is one step, which has a limit of its own: ``hiera.regex``.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from hiera.errors import LimitError
from hiera.values.secrets import Secret, revealed

BUDGET: Final = 8 << 20
"""What one evaluation may make, intermediate results included: list items, steps, and characters by fours."""

TEXT_LIMIT: Final = 16 << 20
"""Characters of one text."""

ITEM_LIMIT: Final = 1_000_000
"""Items of one list, with the items of the lists in it."""

TIME_LIMIT: Final = 10.0
"""Seconds for one evaluation."""

TOTAL_LIMIT: Final = 128 << 20
"""Characters of everything that the expressions of one document or manifest make."""

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
                characters += item.bit_length() // _BITS_OF_A_DIGIT
            elif isinstance(item, (dict, list, tuple)):
                waiting.append(item)
            elif isinstance(item, Secret):
                found = True
        verify_length("", characters)
    return found


class Total(threading.local):
    """What expressions have made for the document or manifest that is read in this thread; nothing outside of any."""

    def __init__(self) -> None:
        self.depth = 0
        self.left = 0

    def __enter__(self) -> None:
        if self.depth == 0:
            self.left = TOTAL_LIMIT
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


def text_of(value: Any) -> str:
    """``str()`` with an end."""
    if isinstance(value, (dict, list, tuple)):
        verify_printed(value)
    return str(value)


def verify_printed(value: Any, spelled: Callable[[str], str] = repr, indent: int = 0) -> None:
    """Raise LimitError when a value written as text is longer than one step may make.

    ``spelled`` writes one text as it stands in it; ``indent`` are the columns that each level is moved by.
    """
    if (
        _printed(value, _at_most, indent) > TEXT_LIMIT
    ):  # no text becomes longer than that, so that most need no more
        verify_length("", _printed(value, lambda text: _spelled_length(text, spelled), indent))


def printed_length(value: Any) -> int:
    """Characters of a value as ``str()`` writes it, or a number above the limit."""
    return _printed(value, lambda text: _spelled_length(text, repr), 0)


def verify_pretty(value: Any) -> None:
    """The same for ``pprint``, which moves what is below a key by the width of the key, and breaks texts at blanks."""
    columns = _widest_key(value)
    verify_length("", _printed(value, lambda text: len(repr(text)) + columns * (len(text) // 2), columns))


def _widest_key(value: Any) -> int:
    widest, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            widest = max([widest, *(len(repr(key)) for key in item)])
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            waiting += item
    return widest


YAML_LIMIT: Final = 200_000
"""Items of a value that is written as YAML: each takes half a kilobyte meanwhile."""


def verify_yaml(value: Any, indent: int) -> None:
    """Raise LimitError when a value is too large to be written as YAML."""
    items, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (dict, list, tuple)):
            items += len(item)
            if items > YAML_LIMIT:
                raise LimitError("", f"would write {items} items as YAML, at most {YAML_LIMIT} are written")
            waiting += item.values() if isinstance(item, dict) else item
    import json  # YAML quotes as JSON does

    verify_printed(value, json.dumps, indent)


_LONGEST_SPELLING: Final = len("\\ud83d\\ude00")
_AROUND: Final = 4  # quotes, a comma or colon, a blank or line break
_LONGEST_FLOAT: Final = 25
_BITS_OF_A_DIGIT: Final = 3
_PIECE: Final = 1 << 16


def _at_most(text: str) -> int:
    return _LONGEST_SPELLING * len(text)


def _spelled_length(text: str, spelled: Callable[[str], str]) -> int:
    return sum(len(spelled(text[start : start + _PIECE])) for start in range(0, len(text), _PIECE))


def _printed(value: Any, length: Callable[[str], int], indent: int) -> int:
    """Characters of a value as text, or a number above the limit as soon as there are as many."""
    characters, columns, level = 0, 0, [value]
    while level:
        below: list[Any] = []
        for item in level:
            characters += _AROUND + columns
            kind = type(item)
            if kind is str:
                characters += length(item)
            elif kind is int:
                characters += item.bit_length() // _BITS_OF_A_DIGIT + 1
            elif isinstance(item, dict):
                below += [*item, *item.values()]
            elif isinstance(item, (list, tuple)):
                below += item
            else:
                characters += _LONGEST_FLOAT
        if characters > _LONGEST_SPELLING * TEXT_LIMIT:
            break
        level, columns = below, columns + indent
    return characters


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
