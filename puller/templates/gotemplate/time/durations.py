"""Go's ``time.Duration``: nanoseconds, read and printed as ``1h15m30.5s``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

from puller.templates.gotemplate.signature import Struct, define_type
from puller.templates.govalue.types import INT64_MAX, Int64
from puller.templates.template_errors import FunctionError

SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

_UNITS: Final = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "μs": 1000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> int:
    """Return nanoseconds. Raises FunctionError for an invalid duration, or a duration of more than 292 years."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    parts = _PART.findall(unsigned)
    if "".join(number + unit for number, unit in parts) != unsigned or not parts:
        if unsigned == "0":
            return 0
        raise FunctionError(f"invalid duration {text!r}")
    # Fractions, since a float is not precise to the nanosecond for a long duration.
    total = sum(int(Fraction(f"0{number}".rstrip(".")) * _UNITS[unit]) for number, unit in parts)
    if total > INT64_MAX:
        raise FunctionError(f"invalid duration {text!r}: too long")
    return -total if text.startswith("-") else total


def format_duration(nanoseconds: int) -> str:
    """Return Go's shortest form: ``1h0m0s``, ``1.5s``, ``20ms``."""
    size = abs(nanoseconds)
    if size == 0:
        return "0s"
    sign = "-" if nanoseconds < 0 else ""
    for unit, below in (("ns", 1000), ("µs", 1_000_000), ("ms", SECOND)):
        if size < below:
            return f"{sign}{_decimal(size, _UNITS[unit])}{unit}"
    minutes, rest = divmod(size, MINUTE)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{text}{_decimal(rest, SECOND)}s"


def _decimal(size: int, unit: int) -> str:
    whole, rest = divmod(size, unit)
    digits = str(unit + rest)[1:].rstrip("0")  # keeps the leading zeros
    return f"{whole}.{digits}" if digits else str(whole)


def round_duration(nanoseconds: int, unit: int) -> int:
    """Round to a multiple of ``unit``, half away from zero."""
    rounded = (abs(nanoseconds) + unit // 2) // unit * unit
    return -rounded if nanoseconds < 0 else rounded


@dataclass(frozen=True, slots=True)
class Duration(Struct):
    """The difference of two times."""

    nanoseconds: int

    go_type: ClassVar[str] = "time.Duration"
    go_kind: ClassVar[str] = "int64"
    methods: ClassVar[Mapping[str, Callable[..., Any]]]

    def __bool__(self) -> bool:
        return self.nanoseconds != 0

    def text(self) -> str:
        """Return the form ``1h15m30.5s``."""
        return format_duration(self.nanoseconds)

    def as_integer(self) -> int:
        """Return nanoseconds: Go's duration is an ``int64``."""
        return self.nanoseconds

    def json_value(self) -> int:
        """Return nanoseconds."""
        return self.nanoseconds


define_type("Duration", Duration.go_type, lambda value: isinstance(value, Duration))


def _string(duration: Duration) -> str:
    return duration.text()


def _hours(duration: Duration) -> float:
    return duration.nanoseconds / HOUR


def _minutes(duration: Duration) -> float:
    return duration.nanoseconds / MINUTE


def _seconds(duration: Duration) -> float:
    return duration.nanoseconds / SECOND


def _milliseconds(duration: Duration) -> Int64:
    return Int64(int(Fraction(duration.nanoseconds, 1_000_000)))


def _nanoseconds(duration: Duration) -> Int64:
    return Int64(duration.nanoseconds)


Duration.methods = {
    "Hours": _hours,
    "Milliseconds": _milliseconds,
    "Minutes": _minutes,
    "Nanoseconds": _nanoseconds,
    "Seconds": _seconds,
    "String": _string,
}
