"""Operations of Jet on values: print, test, calculate, compare, index.

* Content of a mapping is reached by key only. Attributes of Python objects are out of reach for templates.
* A failure is a FunctionError (or ValueError, from ``govalue``) with a sentence. The evaluator adds the position.
* Odd results are Jet's own: an empty list is true, ``1 == 1.5`` compares integers when the integer stands left,
  ``true`` counts as 0 in arithmetic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from puller.templates.govalue.printf import format_value, sprint
from puller.templates.govalue.strconv import format_float, parse_float, parse_int, parse_uint
from puller.templates.govalue.types import (
    MISSING,
    UINT64_MAX,
    GoError,
    GoObject,
    Ints,
    StringMap,
    Strings,
    Uint8,
    Uint64,
    byte_length,
    byte_slice,
    ensure_small,
    float_to_int,
    from_bytes,
    int_to_float,
    is_number,
    map_keys,
    to_bytes,
    type_name,
    wrap_int64,
)
from puller.templates.scope import TemplateScope
from puller.templates.template_errors import FunctionError


class IntRange(GoObject):
    """The result of ``ints(from, to)``, for ``range``."""

    go_type = "*jet.intsRanger"
    go_kind = "ptr"

    def __init__(self, start: int, end: int) -> None:
        self.numbers = range(start, end)

    def text(self) -> str:
        """Return the form ``ints(1, 5)``."""
        return f"ints({self.numbers.start}, {self.numbers.stop})"


class Rendered(GoObject):
    """Complete output of ``writeJson`` and ``includeIfExists``. ``true`` is its value in a condition."""

    go_type = "jet.RendererFunc"
    go_kind = "func"

    def __init__(self, output: str, true: bool = True) -> None:
        self.output = output
        self.true = true

    def text(self) -> str:
        """Raises FunctionError: the output can only be printed, not joined or formatted."""
        raise FunctionError("what this function gives can only be printed")


Typed = Literal["none", "all", "keys"]


class Function:
    """A function that templates call: ``call(frame, arguments)``.

    ``typed`` names the parameters that have one type, for which Go rejects a *boxed* dot (``expressions.py``). ``keys``
    means every second parameter.
    """

    __slots__ = ("call", "name", "typed")

    def __init__(self, name: str, call: Callable[[Any, list[Any]], Any], typed: Typed = "none") -> None:
        self.name = name
        self.call = call
        self.typed = typed

    def __str__(self) -> str:
        return f"func {self.name}"


class Writer:
    """A function that prints its arguments, each through ``escape``. It must be the last function of a pipeline."""

    __slots__ = ("escape", "name")

    def __init__(self, name: str, escape: Callable[[str], str]) -> None:
        self.name = name
        self.escape = escape

    def __str__(self) -> str:
        return f"func {self.name}"


# Printing and testing -------------------------------------------------------------------------------------


def to_text(value: Any) -> str:
    """Return the value as ``[[ value ]]`` prints it: floats without an exponent, a missing value as empty text.

    Raises FunctionError for a function.
    """
    if type(value) is int:
        return str(value)
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return format_float(value, "f")
    if value is MISSING:
        return ""
    if isinstance(value, bytes):
        return from_bytes(value)
    if isinstance(value, Rendered):
        return value.output
    if isinstance(value, GoObject):
        return value.text()
    if isinstance(value, (Function, Writer)):
        raise FunctionError(f"{value.name} is a function: it cannot be printed, only called")
    return format_value(value)


def is_true(value: Any) -> bool:
    """Return whether ``if value`` takes the first branch: false for zero, "", false, nil and a missing value."""
    if isinstance(value, (list, tuple, dict, bytes)):
        return True
    if isinstance(value, Rendered):
        return value.true
    return bool(value)


# Arithmetic -----------------------------------------------------------------------------------------------


def add(left: Any, right: Any) -> Any:
    """Return ``left + right``: a sum, or text with anything joined to it. Raises FunctionError for other types."""
    if isinstance(left, str):
        return left + _joined(right)
    _require_both(left, right)
    return _calculate(left, right, operator.add)


def subtract(left: Any, right: Any) -> Any:
    """Return ``left - right``. Raises FunctionError for text and for a missing value."""
    if isinstance(left, str):
        raise FunctionError("minus does not work on strings")
    _require_both(left, right)
    return _calculate(left, right, operator.sub)


def multiply(left: Any, right: Any) -> Any:
    """Return ``left * right``. Raises FunctionError unless both are numbers."""
    return _calculate(left, right, operator.mul)


def divide(left: Any, right: Any) -> Any:
    """Return ``left / right``. Two integers give an integer, cut towards zero.

    Raises FunctionError for a ``right`` of 0.
    """
    return _calculate(left, right, _quotient)


def modulo(left: Any, right: Any) -> Any:
    """Return ``left % right`` of whole numbers, with fractions cut off first. The sign is the sign of ``left``.

    Raises FunctionError for a ``right`` of 0.
    """
    if isinstance(left, float):
        left = float_to_int(left)
    if isinstance(right, float):
        right = float_to_int(right)
    return _calculate(left, right, _remainder)


def negate(value: Any) -> Any:
    """Return ``-value``. Raises FunctionError unless it is a number."""
    if not is_number(value):
        raise FunctionError(f"minus needs a number, not {describe(value)}")
    return -value if isinstance(value, float) else wrap_int64(-int(value))


def affirm(value: Any) -> Any:
    """Return ``+value``. Raises FunctionError unless it is a number."""
    if not is_number(value):
        raise FunctionError(f"plus needs a number, not {describe(value)}")
    return value


def _joined(right: Any) -> str:
    if isinstance(right, str):
        return right
    if right is MISSING:
        raise FunctionError("the right side of + is missing")
    if isinstance(right, bytes):
        return from_bytes(right)
    if isinstance(right, (Function, Writer)):
        raise FunctionError(f"{right.name} is a function: it cannot be joined to text, only called")
    return sprint(right)


def _require_both(left: Any, right: Any) -> None:
    if left is MISSING or right is MISSING:
        raise FunctionError(f"the {'left' if left is MISSING else 'right'} side is missing")


def _calculate(left: Any, right: Any, operation: Callable[[Any, Any], Any]) -> Any:
    """Return the result on both sides as numbers of one type: the left side's, or float if any side is a float."""
    if type(left) is int and type(right) is int:
        return wrap_int64(operation(left, right))
    if isinstance(left, float):
        return operation(left, _to_float(right))
    if not is_number(left):
        raise FunctionError(f"the left side is {describe(left)}, not a number")
    if isinstance(right, float):
        return operation(_to_float(left), right)
    if isinstance(left, (Uint8, Uint64)):
        unsigned = parse_uint(right) if isinstance(right, str) else _to_int(right) & UINT64_MAX
        return Uint64(operation(int(left), unsigned) & UINT64_MAX)
    return wrap_int64(operation(int(left), _to_int(right)))


def _quotient(left: Any, right: Any) -> Any:
    if right == 0:
        raise FunctionError("division by zero")
    if isinstance(left, float):
        return left / right
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise FunctionError("division by zero")
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _to_int(value: Any) -> int:
    if isinstance(value, bool):
        return 0 if value else 1  # as in Jet
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return parse_int(value)
    raise FunctionError(f"{describe(value)} cannot be converted to a whole number")


def _to_float(value: Any) -> float:
    if isinstance(value, bool):
        return 0.0 if value else 1.0  # as in Jet
    if isinstance(value, (int, float)):
        return int_to_float(value) if isinstance(value, int) else value
    if isinstance(value, str):
        return parse_float(value)
    raise FunctionError(f"{describe(value)} cannot be converted to a number")


def describe(value: Any) -> str:
    """Return the value's type, for messages."""
    if value is MISSING:
        return "no value"
    return _IN_WORDS.get(type_name(value)) or f"a {type_name(value)}"


_IN_WORDS: Final = {
    "<nil>": "nil",
    "bool": "a boolean",
    "int": "an integer",
    "float64": "a number",
    "string": "a string",
    "[]uint8": "bytes",
    "[]interface {}": "a list",
    "[]string": "a list",
    "map[string]interface {}": "a map",
}


# Comparison -----------------------------------------------------------------------------------------------


def less(left: Any, right: Any) -> bool:
    """Return ``left < right``."""
    return bool(_compare(left, right, operator.lt))


def less_or_equal(left: Any, right: Any) -> bool:
    """Return ``left <= right``."""
    return bool(_compare(left, right, operator.le))


def greater(left: Any, right: Any) -> bool:
    """Return ``left > right``."""
    return bool(_compare(left, right, operator.gt))


def greater_or_equal(left: Any, right: Any) -> bool:
    """Return ``left >= right``."""
    return bool(_compare(left, right, operator.ge))


def _compare(left: Any, right: Any, operation: Callable[[Any, Any], bool]) -> bool:
    if type(left) is not int and not is_number(left):
        raise FunctionError(f"the left side is {describe(left)}; only numbers have an order")
    return bool(_calculate(left, right, operation))


def equal(left: Any, right: Any) -> bool:
    """Return ``left == right``: numbers by value, lists and maps item by item, nil equal to a missing value."""
    if type(left) is int and type(right) in (int, float):
        return left == _whole(right)
    if isinstance(left, str) or isinstance(right, str):
        return isinstance(left, str) and isinstance(right, str) and left == right
    if _is_container(left) and _is_container(right):
        ensure_small(left)
        ensure_small(right)
        return _equal_containers(left, right)
    return _equal_scalars(left, right)


def _equal_scalars(left: Any, right: Any) -> bool:
    if _is_nothing(left) or _is_nothing(right):
        return _is_nothing(left) and _is_nothing(right)
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right  # in Python True equals 1, in Jet it does not
    if is_number(left) and is_number(right):
        return bool(left == right) if isinstance(left, float) else int(left) == _whole(right)
    return isinstance(left, (bytes, GoObject)) and type(left) is type(right) and bool(left == right)


def _whole(number: Any) -> int:
    return float_to_int(number) if isinstance(number, float) else int(number)


def _is_nothing(value: Any) -> bool:
    return value is None or value is MISSING


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict))


def _equal_containers(left: Any, right: Any) -> bool:
    if type_name(left) != type_name(right) or len(left) != len(right):
        return False
    if isinstance(left, dict):
        return all(key in right and equal(value, right[key]) for key, value in left.items())
    return all(equal(a, b) for a, b in zip(left, right, strict=True))


# Indexing -------------------------------------------------------------------------------------------------


def field(value: Any, name: str) -> Any:
    """Return ``value.name``, or MISSING if a map lacks the key. Raises FunctionError unless the value is a map."""
    if isinstance(value, dict):
        if isinstance(value, TemplateScope):
            raise FunctionError(f"facts, data and environ are names: write {name}, not .{name}")
        return value.get(name, MISSING)
    if isinstance(value, GoError) and name == "Error":
        return Function("Error", lambda _, arguments: _error_text(value, arguments))
    raise FunctionError(f"unknown name {name!r} in {describe(value)}: only a map has keys")


def _error_text(error: GoError, arguments: list[Any]) -> str:
    if arguments:
        raise FunctionError("takes no arguments")
    return error.text()


def index(value: Any, position: Any) -> Any:
    """Return ``value[position]``: an item, the value of a key (or MISSING), or a byte of a string.

    Raises FunctionError for a position that is outside or of the wrong type, and for values without items.
    """
    if isinstance(value, dict) and not isinstance(position, str):
        raise FunctionError(f"{describe(position)} cannot be a key: keys are strings")
    if not isinstance(value, (str, list, tuple, bytes)):
        if isinstance(position, str):
            return field(value, position)
        raise FunctionError(f"{describe(value)} has no items")
    items = to_bytes(value) if isinstance(value, str) else value
    result = items[_position(position, len(items))]
    return Uint8(result) if isinstance(items, bytes) else result


def _position(position: Any, length: int) -> int:
    if not is_number(position):
        raise FunctionError(f"{describe(position)} is not an index: a list or string is indexed by number")
    whole = _whole(position)
    if not 0 <= whole < length:
        raise FunctionError(f"index out of range: {whole}")
    return whole


def cut(value: Any, start: Any, end: Any) -> Any:
    """Return ``value[start:end]`` of a list or the bytes of a string. A bound of ``None`` is open.

    Raises FunctionError for bounds that are outside, and for values that cannot be sliced.
    """
    if not isinstance(value, (str, list, tuple, bytes)):
        raise FunctionError(f"{describe(value)} cannot be sliced")
    length = byte_length(value) if isinstance(value, str) else len(value)
    first, last = _bound(start, 0), _bound(end, length)
    if not 0 <= first <= last <= length:
        raise FunctionError(f"slice bounds out of range [{first}:{last}] with length {length}")
    if isinstance(value, str):
        return byte_slice(value, first, last)
    # Keep the type of a typed list. Python's slice would be a plain list.
    return value[first:last] if type(value) in (bytes, list) else type(value)(value[first:last])


def _bound(bound: Any, default: int) -> int:
    if bound is None:
        return default
    if not is_number(bound):
        raise FunctionError(f"{describe(bound)} cannot bound a slice")
    return _whole(bound)


def rows(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return key and value of each item that ``range`` iterates over, maps in key order.

    Raises FunctionError that describes the value if it cannot be iterated over.
    """
    if isinstance(value, dict):
        return [(key, value[key]) for key in map_keys(value)]
    if isinstance(value, (list, tuple)):
        return enumerate(value)
    if isinstance(value, IntRange):
        return enumerate(value.numbers)
    if isinstance(value, bytes):
        return enumerate(map(Uint8, value))
    raise FunctionError("the value is missing" if value is MISSING else f"it is {describe(value)}")


def rows_are_boxed(value: Any) -> bool:
    """Return whether Go holds the items as *any* values, which cannot be calculated with as ``.``."""
    return not isinstance(value, (IntRange, bytes, Strings, Ints, StringMap))


# Arguments of typed parameters ----------------------------------------------------------------------------

_MAX_RUNE: Final = 0x10FFFF


def as_string(value: Any) -> str:
    """Return the value as an argument for a string parameter. An integer is a character, as in Go.

    Raises FunctionError for types that Go does not convert.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return from_bytes(value)
    if isinstance(value, int) and not isinstance(value, bool):
        is_rune = 0 <= value <= _MAX_RUNE and not 0xD800 <= value <= 0xDFFF
        return chr(value) if is_rune else "\ufffd"
    raise FunctionError(f"requires a string, not {describe(value)}")


def as_int(value: Any) -> int:
    """Return the value as an argument for an integer parameter. Raises FunctionError unless it is a number."""
    if not is_number(value):
        raise FunctionError(f"requires a number, not {describe(value)}")
    return _whole(value)


def as_any(value: Any) -> Any:
    """Return the value as an argument for a parameter of any type. Raises FunctionError if the value is missing."""
    if value is MISSING:
        raise FunctionError("requires a value")
    return value
