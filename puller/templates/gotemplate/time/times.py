"""Go's ``time.Time``: a moment, and the zone in which it is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from puller.templates.gotemplate.signature import define_type
from puller.templates.gotemplate.time.clock import (
    DAY_SECONDS,
    MONTHS,
    UTC_ZONE,
    WEEKDAYS,
    YEAR_1,
    Clock,
    LocalZone,
    Zone,
    clock_in,
    days_since_epoch,
)
from puller.templates.gotemplate.time.durations import SECOND, Duration
from puller.templates.gotemplate.time.format import format_clock
from puller.templates.gotemplate.values import Struct
from puller.templates.govalue.types import Int64


@dataclass(frozen=True, slots=True)
class _Numbered(Struct):
    """A number that prints as a name."""

    number: int

    go_kind: ClassVar[str] = "int"
    methods: ClassVar[Mapping[str, Callable[..., Any]]]

    def json_value(self) -> int:
        return self.number


class Month(_Numbered):
    """Go's ``time.Month``: 1 is January."""

    go_type: ClassVar[str] = "time.Month"

    def text(self) -> str:
        """The name in English."""
        return MONTHS[self.number - 1]


class Weekday(_Numbered):
    """Go's ``time.Weekday``: 0 is Sunday."""

    go_type: ClassVar[str] = "time.Weekday"

    def text(self) -> str:
        """The name in English."""
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
        """The moment as its zone shows it."""
        return clock_in(self.zone, self.seconds, self.nanoseconds)

    def text(self) -> str:
        """As Go's ``Time.String`` shows it."""
        return self.format("2006-01-02 15:04:05.999999999 -0700 MST")

    def json_value(self) -> str:
        """RFC 3339, with as many digits of a second as there are."""
        return self.format("2006-01-02T15:04:05.999999999Z07:00")

    def format(self, layout: str) -> str:
        """The time in the form of a layout."""
        return format_clock(self.clock(), layout)


define_type("Time", Time.go_type, lambda value: isinstance(value, Time))

ZERO_TIME: Final = Time(YEAR_1)
"""The first moment of the year 1: a time that is not set."""


def time_at(moment: int, zone: Zone) -> Time:
    """The time at a moment in nanoseconds since 1970."""
    return Time(*divmod(moment, SECOND), zone)


def time_now() -> Time:
    """The time now, in the zone of the machine."""
    return time_at(time.time_ns(), LocalZone())


def time_on(seconds: int, nanoseconds: int, zone: Zone) -> Time:
    """The time at which a calendar and clock in the zone show these ``seconds`` since 1970."""
    # The offset is that of the moment which is looked for, so it is looked up twice.
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
    seconds = date * DAY_SECONDS + clock.hour * 3600 + clock.minute * 60 + clock.second
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
