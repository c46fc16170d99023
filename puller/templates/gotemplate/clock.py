"""The calendar, time zones, a moment in both, and Go's ``time.Duration``.

* Any year is possible, so the calendar is computed here and not by ``datetime``.
* ``Local`` is the zone of the machine. Only installed zones are available.
* A duration is a number of nanoseconds, read and printed as ``1h15m30.5s``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, ClassVar, Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from puller.templates.gotemplate.function_calls import Struct, define_type
from puller.templates.govalue.types import INT64_MAX, Int64
from puller.templates.template_errors import FunctionError

DAY_SECONDS: Final = 86_400
YEAR_1: Final = -62_135_596_800
"""The first second of the year 1, counted from 1970. ``datetime`` starts there."""
_LAST_DATETIME: Final = 253_402_300_799
MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


class Zone(Protocol):
    """A time zone, whose name and offset change with the season and by law."""

    def at(self, seconds: int) -> tuple[str, int]:
        """Return abbreviation and offset in seconds, at a moment in seconds since 1970 in UTC."""


@dataclass(frozen=True, slots=True)
class FixedZone:
    """A constant offset in seconds with an abbreviation."""

    name: str
    offset: int

    def at(self, seconds: int) -> tuple[str, int]:
        return self.name, self.offset


UTC_ZONE: Final = FixedZone("UTC", 0)


@dataclass(frozen=True, slots=True)
class LocalZone:
    """The zone of the machine."""

    def at(self, seconds: int) -> tuple[str, int]:
        try:
            local = time.localtime(seconds)
        except (OverflowError, ValueError, OSError):
            return "UTC", 0
        return local.tm_zone, local.tm_gmtoff


@dataclass(frozen=True, slots=True)
class _NamedZone:
    """A zone of the tz database."""

    info: Any

    def at(self, seconds: int) -> tuple[str, int]:
        # A day from either limit, so that no offset exceeds the range of datetime.
        within = min(max(seconds, YEAR_1 + DAY_SECONDS), _LAST_DATETIME - DAY_SECONDS)
        moment = datetime.fromtimestamp(within, UTC).astimezone(self.info)
        offset = moment.utcoffset()
        return moment.tzname() or "", int(offset.total_seconds()) if offset else 0


def find_zone(name: str) -> Zone | None:
    """Return the zone ``UTC``, ``Local``, or a name such as ``Europe/Berlin``, or ``None`` if it is unknown."""
    if name in ("", "UTC"):
        return UTC_ZONE
    if name == "Local":
        return LocalZone()

    try:
        return _NamedZone(ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        return None


# The calendar --------------------------------------------------------------------------------------------------------


def days_since_epoch(year: int, month: int, day: int) -> int:
    """Return days from 1970-01-01. Month and day may be out of range, and then carry over."""
    year += (month - 1) // 12
    month = (month - 1) % 12 + 1
    # Years begin in March, so that the leap day is the last one.
    year -= month <= 2
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + day_of_year - 719_468


def days_in_month(year: int, month: int) -> int:
    """Return the length of a month, which may be out of range."""
    return days_since_epoch(year, month + 1, 1) - days_since_epoch(year, month, 1)


def date_on(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return 400 * era + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


class Clock(NamedTuple):
    """Calendar and clock of a moment."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    nanosecond: int
    weekday: int
    day_of_year: int
    zone: str
    offset: int


def clock_in(zone: Zone, seconds: int, nanosecond: int) -> Clock:
    """Return calendar and clock of the zone at the moment ``seconds`` after 1970 in UTC."""
    name, offset = zone.at(seconds)
    days, remainder = divmod(seconds + offset, DAY_SECONDS)
    year, month, day = date_on(days)
    hour, remainder = divmod(remainder, 3600)
    minute, second = divmod(remainder, 60)
    weekday = (days + 4) % 7  # 1970-01-01 was a Thursday
    day_of_year = days - days_since_epoch(year, 1, 1) + 1
    return Clock(year, month, day, hour, minute, second, nanosecond, weekday, day_of_year, name, offset)


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
    pieces = _PART.findall(unsigned)
    if "".join(number + unit for number, unit in pieces) != unsigned or not pieces:
        if unsigned == "0":
            return 0
        raise FunctionError(f"invalid duration {text!r}")
    # Fractions, since a float is not precise to the nanosecond for a long duration.
    total = sum(int(Fraction(f"0{number}".rstrip(".")) * _UNITS[unit]) for number, unit in pieces)
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
    minutes, remainder = divmod(size, MINUTE)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{text}{_decimal(remainder, SECOND)}s"


def _decimal(size: int, unit: int) -> str:
    whole, remainder = divmod(size, unit)
    digits = str(unit + remainder)[1:].rstrip("0")  # keeps the leading zeros
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
