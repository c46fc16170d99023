"""Arithmetic and conversions between numbers and text.

* Every argument is converted first. A value that cannot be converted counts as 0.
* Integers are 64 bits wide and wrap around. The functions ending in ``f`` calculate with decimal fractions, so that
  ``addf 0.1 0.2`` is 0.3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, Final

from puller.templates.govalue.printf import format_value
from puller.templates.govalue.strconv import parse_float, parse_int
from puller.templates.govalue.types import INT64_MAX, MAX_ITEMS, Int64, Ints, float_to_int, wrap_int64
from puller.templates.template_errors import FunctionError

_DECIMAL: Final = re.compile(r"([+-]?)([0-9]*)\.[0-9]*")
_DIGITS: Final = re.compile(r"[+-]?[0-9]+")
_DIVISION_PLACES: Final = 16


# Conversions ---------------------------------------------------------------------------------------------------------


def to_int64(value: Any) -> int:
    """``int``: a number, text or boolean as a 64-bit integer, with fractions cut off. Other values are 0."""
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float):
        return float_to_int(value)
    return _text_to_int(value) if isinstance(value, str) else 0


def _text_to_int(text: str) -> int:
    """Return the number in a text, which may have a prefix ``0x``, ``0b``, ``0o`` or ``0``."""
    match = _DECIMAL.fullmatch(text)
    try:
        return parse_int(f"{match[1]}{match[2] or 0}" if match else text, 0)
    except ValueError:
        return 0


def to_float(value: Any) -> float:
    """``float64``: a number, text or boolean as a float. Other values are 0."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if not isinstance(value, str):
        return 0.0
    try:
        return parse_float(value)
    except ValueError:
        return 0.0


def _int64(value: Any) -> Int64:
    """``int64``: the value as an ``int64``."""
    return Int64(to_int64(value))


def _atoi(text: str) -> int:
    """``atoi``: decimal digits as a number. Other text is 0."""
    try:
        return parse_int(text)
    except ValueError:
        if not _DIGITS.fullmatch(text):
            return 0
        return -INT64_MAX - 1 if text.startswith("-") else INT64_MAX  # out of range: the nearest value


def _to_decimal(value: Any) -> Int64:
    """``toDecimal``: octal digits as a number. 755 is 493."""
    try:
        return Int64(parse_int(format_value(value), 8))
    except ValueError:
        return Int64(0)


# Integers ------------------------------------------------------------------------------------------------------------


def _add(*values: Any) -> Int64:
    """``add``: the sum."""
    return Int64(wrap_int64(sum(map(to_int64, values))))


def _add1(value: Any) -> Int64:
    """``add1``: the number plus one."""
    return Int64(wrap_int64(to_int64(value) + 1))


def _sub(left: Any, right: Any) -> Int64:
    """``sub``: the difference."""
    return Int64(wrap_int64(to_int64(left) - to_int64(right)))


def _mul(first: Any, *others: Any) -> Int64:
    """``mul``: the product."""
    product = to_int64(first)
    for other in others:
        product = wrap_int64(product * to_int64(other))
    return Int64(product)


def _divide(left: Any, right: Any) -> tuple[int, int]:
    """Return the quotient, cut towards zero, and the remainder, with the sign of ``left``."""
    dividend, divisor = to_int64(left), to_int64(right)
    if divisor == 0:
        raise FunctionError("integer divide by zero")
    quotient, remainder = divmod(abs(dividend), abs(divisor))
    signed = quotient if (dividend < 0) == (divisor < 0) else -quotient
    return wrap_int64(signed), -remainder if dividend < 0 else remainder


def _div(left: Any, right: Any) -> Int64:
    """``div``: the quotient, cut towards zero. Raises FunctionError for a divisor of 0."""
    return Int64(_divide(left, right)[0])


def _mod(left: Any, right: Any) -> Int64:
    """``mod``: the remainder, with the sign of ``left``. Raises FunctionError for a divisor of 0."""
    return Int64(_divide(left, right)[1])


def _max(first: Any, *others: Any) -> Int64:
    """``max``: the largest of the integers."""
    return Int64(max(map(to_int64, (first, *others))))


def _min(first: Any, *others: Any) -> Int64:
    """``min``: the smallest of the integers."""
    return Int64(min(map(to_int64, (first, *others))))


# Floats --------------------------------------------------------------------------------------------------------------


def _fractions(values: Iterable[Any]) -> list[Fraction]:
    """Return the numbers as exact fractions of their shortest digits: 0.1 is one tenth."""
    numbers = [to_float(value) for value in values]
    for number in numbers:
        if not math.isfinite(number):
            raise FunctionError(f"cannot calculate with {format_value(number)}")
    return [Fraction(repr(number)) for number in numbers]


def _to_number(fraction: Fraction) -> float:
    try:
        return float(fraction)
    except OverflowError:
        return math.inf if fraction > 0 else -math.inf


def _addf(*values: Any) -> float:
    """``addf``: the sum of decimal fractions."""
    return _to_number(sum(_fractions(values), Fraction(0)))


def _add1f(value: Any) -> float:
    """``add1f``: the decimal fraction plus one."""
    return _addf(value, 1)


def _subf(first: Any, *others: Any) -> float:
    """``subf``: the first decimal fraction less all further fractions."""
    start, *remainder = _fractions((first, *others))
    return _to_number(start - sum(remainder, Fraction(0)))


def _mulf(first: Any, *others: Any) -> float:
    """``mulf``: the product of decimal fractions."""
    return _to_number(math.prod(_fractions((first, *others)), start=Fraction(1)))


def _divf(first: Any, *others: Any) -> float:
    """``divf``: the first decimal fraction divided by each further fraction. Raises FunctionError for 0."""
    quotient, *divisors = _fractions((first, *others))
    for divisor in divisors:
        if divisor == 0:
            raise FunctionError("decimal division by 0")
        quotient = _rounded(quotient / divisor)
    return _to_number(quotient)


def _rounded(fraction: Fraction) -> Fraction:
    """Round to 16 decimal places, half away from zero."""
    scaled = abs(fraction) * 10**_DIVISION_PLACES
    whole = math.floor(scaled + Fraction(1, 2))
    return Fraction(whole if fraction > 0 else -whole, 10**_DIVISION_PLACES)


def _maxf(first: Any, *others: Any) -> float:
    """``maxf``: the largest of the floats. NaN if any float is NaN."""
    return _extreme(max, (first, *others))


def _minf(first: Any, *others: Any) -> float:
    """``minf``: the smallest of the floats. NaN if any float is NaN."""
    return _extreme(min, (first, *others))


def _extreme(choose: Callable[[Iterable[float]], float], values: Iterable[Any]) -> float:
    numbers = [to_float(value) for value in values]
    return math.nan if any(map(math.isnan, numbers)) else choose(numbers)


def _floor(value: Any) -> float:
    """``floor``: the next whole number below, as a float."""
    return _whole(math.floor, to_float(value))


def _ceil(value: Any) -> float:
    """``ceil``: the next whole number above, as a float."""
    return _whole(math.ceil, to_float(value))


def _whole(cut: Callable[[float], int], number: float) -> float:
    return math.copysign(float(cut(number)), number) if math.isfinite(number) else number


def _round(value: Any, places: int, *threshold: float) -> float:
    """beyond these limits, it overflows, or is 0 and divides"""
    power = math.pow(10.0, max(min(places, 308), -323))  # beyond, it overflows, or is 0 and divides
    scaled = power * to_float(value)
    if not math.isfinite(scaled):
        return scaled / power
    up = math.modf(scaled)[0] >= (threshold[0] if threshold else 0.5)
    return _whole(math.ceil if up else math.floor, scaled) / power


# Sequences -----------------------------------------------------------------------------------------------------------


def _numbers(start: int, stop: int, step: int) -> Ints:
    """``untilStep``: the numbers from ``start`` to before ``stop``. Empty if the step leads away from ``stop``."""
    wrong_way = step >= 0 if stop < start else step <= 0
    if wrong_way:
        return Ints()
    if abs(stop - start) > MAX_ITEMS * abs(step):
        raise FunctionError(f"the range from {start} to {stop} exceeds {MAX_ITEMS} numbers")
    return Ints(range(start, stop, step))


def _until(count: int) -> Ints:
    """``until``: the numbers from 0 to before ``count``, downwards for a negative count."""
    return _numbers(0, count, -1 if count < 0 else 1)


def _seq(*parameters: int) -> str:
    """``seq END``, ``seq START END`` or ``seq START STEP END``. The end is included."""
    if not 1 <= len(parameters) <= 3:
        return ""
    end = parameters[-1]
    start = parameters[0] if len(parameters) > 1 else 1
    direction = -1 if end < start else 1
    step = parameters[1] if len(parameters) == 3 else direction
    if end < start and step > 0:
        return ""
    return " ".join(map(str, _numbers(start, end + direction, step)))


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "add": _add,
    "add1": _add1,
    "add1f": _add1f,
    "addf": _addf,
    "atoi": _atoi,
    "biggest": _max,
    "ceil": _ceil,
    "div": _div,
    "divf": _divf,
    "float64": to_float,
    "floor": _floor,
    "int": to_int64,
    "int64": _int64,
    "max": _max,
    "maxf": _maxf,
    "min": _min,
    "minf": _minf,
    "mod": _mod,
    "mul": _mul,
    "mulf": _mulf,
    "round": _round,
    "seq": _seq,
    "sub": _sub,
    "subf": _subf,
    "toDecimal": _to_decimal,
    "until": _until,
    "untilStep": _numbers,
}
