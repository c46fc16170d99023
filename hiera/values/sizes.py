"""Limits on the size of a value, and on the size that a single step may produce.

* A text of ``'x' * 10**10`` or a power of a power is rejected before memory runs out. The error names the limit.
* The size of steps that multiply (repeating, padding, replacing, formatting, printing a value) is computed before the
  step runs.
* The size of a value is the size of all texts in it. Repeated values count each time, since printing repeats them.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from hiera.errors import ExpressionError, LimitError

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
