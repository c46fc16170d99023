"""Go's ``time.Time``: a moment, and the zone in which it is shown.

* Any year is possible, so the calendar is computed here and not by ``datetime``.
* ``Local`` is the zone of the machine; a zone that is not installed is UTC.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from puller.templates.gotemplate.signature import define_type
from puller.templates.gotemplate.time.durations import SECOND, Duration
from puller.templates.gotemplate.values import Struct
from puller.templates.govalue.types import Int64

_DAY: Final = 86_400
_FIRST_DATETIME: Final = -62_135_596_800
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
    def at(self, seconds: int) -> tuple[str, int]:
        """Abbreviation and offset in seconds, at a moment given in seconds since 1970 in UTC."""


@dataclass(frozen=True, slots=True)
class FixedZone:
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
        within = min(max(seconds, _FIRST_DATETIME + _DAY), _LAST_DATETIME - _DAY)
        moment = datetime.fromtimestamp(within, UTC).astimezone(self.info)
        offset = moment.utcoffset()
        return moment.tzname() or "", int(offset.total_seconds()) if offset else 0


def find_zone(name: str) -> Zone | None:
    """``UTC``, ``Local``, or a name such as ``Europe/Berlin``; None when it is not known here."""
    if name in ("", "UTC"):
        return UTC_ZONE
    if name == "Local":
        return LocalZone()
    from zoneinfo import ZoneInfo

    try:
        return _NamedZone(ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        return None


# The calendar --------------------------------------------------------------------------------------------------------


def days_since_epoch(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01; month and day may be outside of their ranges, and then count on."""
    year += (month - 1) // 12
    month = (month - 1) % 12 + 1
    # Years begin in March, so that the leap day is the last one.
    year -= month <= 2
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + day_of_year - 719_468


def days_in_month(year: int, month: int) -> int:
    return days_since_epoch(year, month + 1, 1) - days_since_epoch(year, month, 1)


def date_on(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return 400 * era + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


class Clock(NamedTuple):
    """A moment as a calendar and a clock show it."""

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


# Values --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Numbered(Struct):
    """A number that prints as a name."""

    number: int

    go_kind: ClassVar[str] = "int"
    methods: ClassVar[Mapping[str, Callable[..., Any]]]

    def json_value(self) -> int:
        return self.number


class Month(_Numbered):
    go_type: ClassVar[str] = "time.Month"

    def text(self) -> str:
        return MONTHS[self.number - 1]


class Weekday(_Numbered):
    go_type: ClassVar[str] = "time.Weekday"

    def text(self) -> str:
        return WEEKDAYS[self.number]


@dataclass(frozen=True, slots=True, eq=False)
class Time(Struct):
    """``seconds`` since 1970 in UTC, with ``nanoseconds`` above them, seen in ``zone``."""

    seconds: int
    nanoseconds: int = 0
    zone: Zone = UTC_ZONE

    go_type: ClassVar[str] = "time.Time"
    methods: ClassVar[Mapping[str, Callable[..., Any]]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and self.moment() == other.moment() and self.zone == other.zone

    def __hash__(self) -> int:
        return hash(self.moment())

    def moment(self) -> int:
        """Nanoseconds since 1970."""
        return self.seconds * SECOND + self.nanoseconds

    def clock(self) -> Clock:
        zone, offset = self.zone.at(self.seconds)
        days, rest = divmod(self.seconds + offset, _DAY)
        year, month, day = date_on(days)
        hour, rest = divmod(rest, 3600)
        minute, second = divmod(rest, 60)
        day_of_year = days - days_since_epoch(year, 1, 1) + 1
        return Clock(
            year,
            month,
            day,
            hour,
            minute,
            second,
            self.nanoseconds,
            (days + 4) % 7,
            day_of_year,
            zone,
            offset,
        )

    def text(self) -> str:
        return self.format("2006-01-02 15:04:05.999999999 -0700 MST")

    def json_value(self) -> str:
        return self.format("2006-01-02T15:04:05.999999999Z07:00")

    def format(self, layout: str) -> str:
        from puller.templates.gotemplate.time.layout import format_clock

        return format_clock(self.clock(), layout)


define_type("Time", Time.go_type, lambda value: isinstance(value, Time))

ZERO_TIME: Final = Time(_FIRST_DATETIME)
"""The first moment of the year 1: a time that is not set."""


def time_at(moment: int, zone: Zone) -> Time:
    """The time at a moment in nanoseconds since 1970."""
    return Time(*divmod(moment, SECOND), zone)


def time_now() -> Time:
    return time_at(time.time_ns(), LocalZone())


def time_on(seconds: int, nanoseconds: int, zone: Zone) -> Time:
    """The time at which a calendar and clock in the zone show these ``seconds`` since 1970."""
    offset = zone.at(seconds)[1]
    offset = zone.at(seconds - offset)[1] if offset else 0
    return Time(seconds - offset, nanoseconds, zone)


# Methods -------------------------------------------------------------------------------------------------------------


def _name(value: _Numbered) -> str:
    return value.text()


_Numbered.methods = {"String": _name}


def _format(value: Time, layout: str) -> str:
    return value.format(layout)


def _string(value: Time) -> str:
    return value.text()


def _year(value: Time) -> int:
    return value.clock().year


def _month(value: Time) -> Month:
    return Month(value.clock().month)


def _day(value: Time) -> int:
    return value.clock().day


def _hour(value: Time) -> int:
    return value.clock().hour


def _minute(value: Time) -> int:
    return value.clock().minute


def _second(value: Time) -> int:
    return value.clock().second


def _nanosecond(value: Time) -> int:
    return value.nanoseconds


def _weekday(value: Time) -> Weekday:
    return Weekday(value.clock().weekday)


def _year_day(value: Time) -> int:
    return value.clock().day_of_year


def _unix(value: Time) -> Int64:
    return Int64(value.seconds)


def _unix_milli(value: Time) -> Int64:
    return Int64(value.moment() // 1_000_000)


def _unix_micro(value: Time) -> Int64:
    return Int64(value.moment() // 1000)


def _unix_nano(value: Time) -> Int64:
    return Int64(value.moment())


def _utc(value: Time) -> Time:
    return replace(value, zone=UTC_ZONE)


def _local(value: Time) -> Time:
    return replace(value, zone=LocalZone())


def _is_zero(value: Time) -> bool:
    return value.moment() == ZERO_TIME.moment()


def _add(value: Time, duration: Duration) -> Time:
    return time_at(value.moment() + duration.nanoseconds, value.zone)


def _sub(value: Time, other: Time) -> Duration:
    return Duration(value.moment() - other.moment())


def _add_date(value: Time, years: int, months: int, days: int) -> Time:
    clock = value.clock()
    date = days_since_epoch(clock.year + years, clock.month + months, clock.day + days)
    seconds = date * _DAY + clock.hour * 3600 + clock.minute * 60 + clock.second
    return time_on(seconds, value.nanoseconds, value.zone)


def _before(value: Time, other: Time) -> bool:
    return value.moment() < other.moment()


def _after(value: Time, other: Time) -> bool:
    return value.moment() > other.moment()


def _equal(value: Time, other: Time) -> bool:
    return value.moment() == other.moment()


Time.methods = {
    "Add": _add,
    "AddDate": _add_date,
    "After": _after,
    "Before": _before,
    "Day": _day,
    "Equal": _equal,
    "Format": _format,
    "Hour": _hour,
    "IsZero": _is_zero,
    "Local": _local,
    "Minute": _minute,
    "Month": _month,
    "Nanosecond": _nanosecond,
    "Second": _second,
    "String": _string,
    "Sub": _sub,
    "UTC": _utc,
    "Unix": _unix,
    "UnixMicro": _unix_micro,
    "UnixMilli": _unix_milli,
    "UnixNano": _unix_nano,
    "Weekday": _weekday,
    "Year": _year,
    "YearDay": _year_day,
}
