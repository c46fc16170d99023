"""Limits on the size of values, and on the size of the results and the time of one evaluation.

The size of a value, and the size that a single step may produce:

* A text of ``'x' * 10**10`` or a power of a power is rejected before memory runs out. The error names the limit.
* The size of steps that multiply (repeating, padding, replacing, formatting, printing a value) is computed before the
  step runs.
* The size of a value is the size of all texts in it. Repeated values count each time, since printing repeats them.

One evaluation:

* All results count against one budget, so that an endless loop is rejected quickly. The clock is checked at each
  count.
* ``total`` limits the results of all expressions and loops of a document or manifest together.
* A regular expression is a single step with its own limit (``hiera.regex``).
* Each thread has its own budget (`PerThread`).
"""

from __future__ import annotations

import functools
import re
import time
from _thread import _local
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import NoneType
from typing import Any, Final

from hiera.errors import ExpressionError, LimitError
from hiera.values import Secret, revealed

TEXT_LIMIT: Final = 16 << 20
"""Maximum characters of a text."""

ITEM_LIMIT: Final = 1_000_000
"""Maximum items of a list, including nested lists."""

NUMBER_BITS: Final = 8192
WIDTH_LIMIT: Final = 10_000
"""Maximum columns of padded, indented or formatted text."""

BITS_OF_A_DIGIT: Final = 3

_WRITABLE: Final = frozenset({str, int, float, bool, type(None)})


# -- as text --------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """Return ``str()`` with a limit. Raises LimitError."""
    if type(value) is str:
        return value
    if isinstance(value, (dict, list, tuple)):
        verify_printed(value)
    else:
        verify_writable(value)
    return str(value)


def verify_writable(value: Any) -> None:
    """Raise ExpressionError for a value without a text form: a function, or a lazy iterator.

    Python would write the address of such an object, which differs in every run.
    """
    kind = type(value)
    if kind in _WRITABLE or hasattr(kind, "_undefined_message"):  # Jinja2's undefined raises its own error
        return
    if callable(value):
        raise ExpressionError("", "a function cannot be printed. Call it")
    if isinstance(value, Iterator):
        raise ExpressionError("", "items that a filter gives one by one are written as text: add | list")
    own: Any = object
    if kind.__str__ is own.__str__ and kind.__repr__ is own.__repr__:
        raise ExpressionError("", f"an object of Jinja2 ({kind.__name__}) is written as text")


def verify_printed(value: Any, spelled: Callable[[str], str] = repr, indent: int = 0) -> None:
    """Raise LimitError if a value written as text exceeds the limit of one step.

    ``spelled`` writes a text inside the value. ``indent`` is the number of columns for each level.
    """
    # An upper bound is enough for most values, and needs no printing.
    if _printed(value, lambda text: _LONGEST_SPELLING * len(text), indent) > TEXT_LIMIT:
        verify_length("", _printed(value, lambda text: _spelled_length(text, spelled), indent))


def printed_length(value: Any) -> int:
    """Return the length of ``str()`` of a value. Stops at a number above the limit."""
    return _printed(value, lambda text: _spelled_length(text, repr), 0)


def verify_pretty(value: Any) -> None:
    """Raise LimitError if the output of ``pprint`` exceeds the limit.

    It indents values of a key by the width of the key, and breaks texts at blanks.
    """
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
"""Maximum items of a value in YAML: writing each needs half a kilobyte."""


def verify_yaml(value: Any, indent: int) -> None:
    """Raise LimitError if a value is too large for YAML."""
    items, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (dict, list, tuple)):
            items += len(item)
            if items > YAML_LIMIT:
                raise LimitError("", f"would write {items} items as YAML, at most {YAML_LIMIT} are written")
            waiting += item.values() if isinstance(item, dict) else item

    import json  # 1 % of an idle apply, which writes no YAML

    verify_printed(value, json.dumps, indent)


_LONGEST_SPELLING: Final = len("\\ud83d\\ude00")
_AROUND: Final = 4  # quotes, a comma or colon, a blank or line break
_LONGEST_FLOAT: Final = 25
_PIECE: Final = 1 << 16


def _spelled_length(text: str, spelled: Callable[[str], str]) -> int:
    return sum(len(spelled(text[start : start + _PIECE])) for start in range(0, len(text), _PIECE))


def _printed(value: Any, length: Callable[[str], int], indent: int) -> int:
    """Return the characters of a value as text. Stops at a number above the limit."""
    characters, columns, level = 0, 0, [value]
    while level:
        below: list[Any] = []
        for item in level:
            characters += _AROUND + columns
            kind = type(item)
            if kind is str:
                characters += length(item)
            elif kind is int:
                characters += item.bit_length() // BITS_OF_A_DIGIT + 1
            elif isinstance(item, dict):
                below += [*item, *item.values()]
            elif isinstance(item, (list, tuple)):
                below += item
            else:
                characters += _LONGEST_FLOAT
                verify_writable(item)
        if characters > _LONGEST_SPELLING * TEXT_LIMIT:
            break
        level, columns = below, columns + indent
    return characters


# -- results of a step ------------------------------------------------------------------------------


def verify_length(kind: Any, length: int) -> None:
    """Raise LimitError if ``length`` exceeds the limit of one step. ``kind`` is any text or list."""
    limit, detail = (TEXT_LIMIT, "characters") if isinstance(kind, str) else (ITEM_LIMIT, "items")
    if length > limit:
        raise LimitError("", f"would make {length} {detail}, at most {limit} are made at once")


def verify_width(width: Any) -> None:
    """Raise LimitError if text would be padded or indented to an unreasonable width."""
    columns = len(width) if isinstance(width, str) else width
    if columns > WIDTH_LIMIT:
        raise LimitError("", f"the width {columns} exceeds {WIDTH_LIMIT}")


# Not compiled here: few documents format anything.
_FIELD: Final = r"%(?:\([^)]*\))?[-#0 +]*(\*|\d+)?(?:\.(\*|\d+))?"


_REMEMBERED: Final = 256  # characters of a format whose check is cached


def verify_format(template: str) -> None:
    """Raise LimitError for a ``%`` format whose width or precision is large, or comes from the arguments."""
    (_verify_short if len(template) <= _REMEMBERED else _verify_format)(template)


def _verify_format(template: str) -> None:
    for field in re.finditer(_FIELD, template):
        for width in field.groups():
            if width == "*" or (width and (len(width) > 9 or int(width) > WIDTH_LIMIT)):
                raise LimitError("", f"the width in {field[0]!r} is more than {WIDTH_LIMIT}, or not fixed")


_verify_short: Final = functools.lru_cache(maxsize=128)(_verify_format)


def verify_product(left: Any, right: Any) -> None:
    """Raise LimitError if ``left * right`` exceeds the limit of one step."""
    if isinstance(left, int) and isinstance(right, int):
        verify_bits(left.bit_length() + right.bit_length())
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, (str, list, tuple)) and isinstance(count, int):
            verify_length(sequence, len(sequence) * count)


def verify_power(base: Any, exponent: Any) -> None:
    """Raise LimitError if ``base ** exponent`` is too long a number."""
    if isinstance(base, int) and isinstance(exponent, int):
        verify_bits(base.bit_length() * exponent)


def verify_bits(bits: int) -> None:
    """Raise LimitError for a number with too many bits."""
    if bits > NUMBER_BITS:
        raise LimitError("", f"would make a number of {bits} bits, at most {NUMBER_BITS} are possible")


class PerThread(_local):
    """Attributes with a value for each thread, like ``threading.local``, which is slow to import."""


BUDGET: Final = 8 << 20
"""Budget of an evaluation, including intermediate results: list items, steps, and characters divided by four."""

PRINT_LIMIT: Final = 4 * TEXT_LIMIT
"""Maximum characters of long text on its way into larger texts, more than ``BUDGET`` covers."""

TIME_LIMIT: Final = 10.0
"""Seconds for one evaluation."""

TOTAL_LIMIT: Final = 128 << 20
"""Characters of all results of expressions in a document or manifest."""

LOOP_LIMIT: Final = 100_000
"""Items that all loops of one manifest may process, including loops of its children."""

SCALARS: Final = frozenset({str, int, float, bool, NoneType})
"""Types of values without content of their own, and so without secrets."""

_TEXT: Final = frozenset({str})

_PIECES_AT_ONCE: Final = 256

_MOST_REMEMBERED: Final = 100_000  # collections without secrets that are remembered


class _Use:
    """The budget use of a thread's evaluation."""

    __slots__ = ("deadline", "depth", "left", "open", "printable", "secret")

    def __init__(self) -> None:
        self.depth = 0
        self.left = 0
        self.printable = 0
        self.deadline = 0.0
        self.secret = False
        self.open: dict[int, Any] = {}
        """Collections without secrets, by identity. They do not change during an evaluation."""


class _Thread(PerThread):
    def __init__(self) -> None:
        self.use = _Use()


_thread: Final = _Thread()


class Meter:
    """The budget use of the evaluation in this thread. Nested evaluations share its budget.

    It also records whether a secret was used, since every value derived from a secret is secret.

    The budget of templates differs: each rendering has its own object, and short values cost nothing there.
    Here each value counts.
    """

    # Each method reads the thread's state once, since this read takes as long as the rest of the method.

    __slots__ = ()

    def __enter__(self) -> Meter:
        use = _thread.use
        if use.depth == 0:
            use.left, use.deadline, use.secret = BUDGET, time.monotonic() + TIME_LIMIT, False
            use.printable, use.open = PRINT_LIMIT, {}
        use.depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        use = _thread.use
        use.depth -= 1
        if use.depth == 0:
            use.left = 0  # outside of an evaluation nothing may run, so that compiling folds no constants
            use.open = {}

    @property
    def depth(self) -> int:
        """The number of nested evaluations."""
        return _thread.use.depth

    @property
    def secret(self) -> bool:
        """Whether a secret was used."""
        return _thread.use.secret

    @secret.setter
    def secret(self, secret: bool) -> None:
        _thread.use.secret = secret

    def spend(self, amount: int) -> None:
        """Count ``amount`` items or steps. Raises LimitError."""
        use = _thread.use
        use.left = remaining = use.left - amount
        if remaining < 0:
            raise LimitError("", "makes too much text, too many items, or takes too many steps")
        if time.monotonic() > use.deadline:
            raise LimitError("", f"takes more than {TIME_LIMIT:g} seconds")

    def print(self, length: int) -> None:
        """Count long text that becomes part of a larger text, which is counted on completion. Raises LimitError."""
        use = _thread.use
        use.printable -= length
        if use.printable < 0:
            raise LimitError("", "makes too much text, too many items, or takes too many steps")

    def made(self, value: Any) -> Any:
        """Count a new value, and return it. Raises LimitError."""
        amount = 1
        if isinstance(value, str):
            amount += len(value) // 4
        elif isinstance(value, (list, tuple, dict)):
            amount += len(value)
        use = _thread.use
        use.left = remaining = use.left - amount
        if remaining < 0 or time.monotonic() > use.deadline:
            self.spend(0)
        return value

    def opened(self, value: Any) -> Any:
        """Return ``value`` without its own mask, with inner secrets masked. A mask makes the result secret."""
        while isinstance(value, Secret):
            _thread.use.secret = True
            value = value.reveal()
        return value

    def revealed(self, value: Any) -> Any:
        """Return ``value`` without any masks on it or in it. A mask makes the evaluation's result secret.

        Raises LimitError for a value that is small only because it contains the same lists many times.
        """
        if isinstance(value, Secret):
            value = self.opened(value)
        if not isinstance(value, (dict, list, tuple)):
            return value
        use = _thread.use
        if use.open.get(id(value)) is value:
            return value
        seen: list[Any] = []
        if _holds_secret(value, seen):
            use.secret = True
            return revealed(value)
        if len(use.open) + len(seen) <= _MOST_REMEMBERED:
            use.open.update((id(collection), collection) for collection in seen)
        return value

    def masked(self, value: Any) -> Any:
        """Return ``value`` as a secret if a secret was used. Booleans and null reveal too little to be hidden."""
        hidden = _thread.use.secret and value is not None and not isinstance(value, (bool, Secret))
        return Secret(value) if hidden else value


meter: Final = Meter()


def _holds_secret(value: Any, seen: list[Any]) -> bool:
    """Return whether a collection contains a secret. Appends it and all collections in it to ``seen``."""
    count, characters, result, waiting = 0, 0, False, [value]
    while waiting:
        items = waiting.pop()
        seen.append(items)
        count += len(items)
        if count > ITEM_LIMIT:
            verify_length(items, count)
        if isinstance(items, dict):
            if _TEXT.issuperset(map(type, items)):
                characters += sum(map(len, items))
            else:
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
                result = True
        if characters > TEXT_LIMIT:
            verify_length("", characters)
    return result


class Total(PerThread):
    """The total size of results of expressions and loops in this thread's document or manifest."""

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
        """Count a stored value. Raises LimitError."""
        if self.depth == 0:
            return
        self.left -= len(value) if type(value) is str else _size(value)
        if self.left < 0:
            detail = f"with it, expressions make more than {TOTAL_LIMIT} characters together"
            raise LimitError("", detail)

    def count_item(self) -> None:
        """Count one item of a loop. Raises LimitError."""
        self.items_left -= 1
        if self.items_left < 0 < self.depth:
            raise LimitError("", f"with it, loops go over more than {LOOP_LIMIT} items together")


total: Final = Total()


def _size(value: Any) -> int:
    """Return the characters of a value, plus eight for every item."""
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
    """Return ``"".join`` with a limit. Raises LimitError."""
    length, retained, iterator = 0, [], iter(pieces)
    # Check in batches. Each single piece already counted when it was made.
    while batch := list(islice(iterator, _PIECES_AT_ONCE)):
        length += sum(map(len, batch))
        if length > TEXT_LIMIT:
            raise LimitError("", f"makes a text of more than {TEXT_LIMIT} characters")
        retained += batch
    meter.spend(length // 4)
    return "".join(retained)
