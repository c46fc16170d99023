"""Go's ``time.Time``: a moment with a time zone, and its formatting and parsing.

Layouts are written by example, as in Go: ``2006-01-02 15:04:05 MST``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from puller.templates.gotemplate.clock import (
    DAY_SECONDS,
    MONTHS,
    SECOND,
    UTC_ZONE,
    WEEKDAYS,
    YEAR_1,
    Clock,
    Duration,
    FixedZone,
    LocalZone,
    Zone,
    clock_in,
    date_on,
    days_in_month,
    days_since_epoch,
)
from puller.templates.gotemplate.function_calls import Struct, define_type
from puller.templates.govalue.types import Int64
from puller.templates.template_errors import FunctionError

# Formatting.

LAYOUT_PART: Final = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST"
    r"|002|0[1-6]|15|1|2006|__2|_2(?!006)|2|3|4|5|PM|pm"
    r"|(?P<zone>[Z-]07(?:0000|:00:00|00|:00)?)"
    r"|(?P<fraction>[.,](?:0+|9+)(?![0-9]))"
)
"""A part of a layout that represents a part of a time. Other text in a layout is literal."""


def format_clock(clock: Clock, layout: str) -> str:
    """Return the moment formatted by the layout."""
    return LAYOUT_PART.sub(lambda part: _format_part(part, clock), layout)


def _format_part(part: re.Match[str], clock: Clock) -> str:
    if part["zone"]:
        return _format_offset(part["zone"], clock.offset)
    if part["fraction"]:
        return _format_fraction(part["fraction"], clock.nanosecond)
    return _WRITERS[part[0]](clock)


def _format_year(clock: Clock) -> str:
    return f"{'-' if clock.year < 0 else ''}{abs(clock.year):04d}"


def _hour12(clock: Clock) -> int:
    return clock.hour % 12 or 12


_WRITERS: Final[dict[str, Callable[[Clock], str]]] = {
    "January": lambda c: MONTHS[c.month - 1],
    "Jan": lambda c: MONTHS[c.month - 1][:3],
    "1": lambda c: str(c.month),
    "01": lambda c: f"{c.month:02d}",
    "Monday": lambda c: WEEKDAYS[c.weekday],
    "Mon": lambda c: WEEKDAYS[c.weekday][:3],
    "2": lambda c: str(c.day),
    "_2": lambda c: f"{c.day:2d}",
    "02": lambda c: f"{c.day:02d}",
    "__2": lambda c: f"{c.day_of_year:3d}",
    "002": lambda c: f"{c.day_of_year:03d}",
    "15": lambda c: f"{c.hour:02d}",
    "3": lambda c: str(_hour12(c)),
    "03": lambda c: f"{_hour12(c):02d}",
    "4": lambda c: str(c.minute),
    "04": lambda c: f"{c.minute:02d}",
    "5": lambda c: str(c.second),
    "05": lambda c: f"{c.second:02d}",
    "2006": _format_year,
    "06": lambda c: f"{max(c.year, 0) % 100:02d}",
    "PM": lambda c: "PM" if c.hour >= 12 else "AM",
    "pm": lambda c: "pm" if c.hour >= 12 else "am",
    "MST": lambda c: c.zone or _format_offset("-0700", c.offset),
}


def _format_offset(part: str, offset: int) -> str:
    if part[0] == "Z" and offset == 0:
        return "Z"
    minutes, seconds = divmod(abs(offset), 60)
    numbers = [minutes // 60, minutes % 60, seconds][: len(part.replace(":", "")) // 2]
    return ("-" if offset < 0 else "+") + (":" if ":" in part else "").join(
        f"{number:02d}" for number in numbers
    )


def _format_fraction(part: str, nanosecond: int) -> str:
    digits = f"{nanosecond:09d}".ljust(len(part), "0")[: len(part) - 1]
    if part[1] == "9":
        digits = digits.rstrip("0")
    return part[0] + digits if digits else ""


@dataclass(frozen=True, slots=True)
class _Numbered(Struct):
    """A number with a name as its text."""

    number: int

    go_kind: ClassVar[str] = "int"
    methods: ClassVar[Mapping[str, Callable[..., Any]]]

    def json_value(self) -> int:
        return self.number


class Month(_Numbered):
    """Go's ``time.Month``: 1 is January."""

    go_type: ClassVar[str] = "time.Month"

    def text(self) -> str:
        """Return the name in English."""
        return MONTHS[self.number - 1]


class Weekday(_Numbered):
    """Go's ``time.Weekday``: 0 is Sunday."""

    go_type: ClassVar[str] = "time.Weekday"

    def text(self) -> str:
        """Return the name in English."""
        return WEEKDAYS[self.number]


@dataclass(frozen=True, slots=True, eq=False)
class Time(Struct):
    """``seconds`` since 1970 in UTC, plus ``nanoseconds``, shown in ``zone``."""

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
        """Return nanoseconds since 1970."""
        return self.seconds * SECOND + self.nanoseconds

    def clock(self) -> Clock:
        """Return calendar and clock in its zone."""
        return clock_in(self.zone, self.seconds, self.nanoseconds)

    def text(self) -> str:
        """Return the time as Go's ``Time.String`` shows it."""
        return self.format("2006-01-02 15:04:05.999999999 -0700 MST")

    def json_value(self) -> str:
        """Return the time as RFC 3339, with as many fractional digits as needed."""
        return self.format("2006-01-02T15:04:05.999999999Z07:00")

    def format(self, layout: str) -> str:
        """Return the time formatted by a layout."""
        return format_clock(self.clock(), layout)


define_type("Time", Time.go_type, lambda value: isinstance(value, Time))

ZERO_TIME: Final = Time(YEAR_1)
"""The first moment of the year 1, which means an unset time."""


def time_at(moment: int, zone: Zone) -> Time:
    """Return the time at a moment in nanoseconds since 1970."""
    return Time(*divmod(moment, SECOND), zone)


def time_now() -> Time:
    """Return the current time, in the zone of the machine."""
    return time_at(time.time_ns(), LocalZone())


def time_on(seconds: int, nanoseconds: int, zone: Zone) -> Time:
    """Return the time at which a calendar and clock in the zone show these ``seconds`` since 1970."""
    # The offset depends on the resulting moment, so it is looked up twice.
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


# Parsing.

_ZONE_NAME: Final = re.compile(
    r"ChST|MeST|GMT(?:[+-](?:[0-9]|1[0-9]|2[0-3])(?![0-9]))?|[+-](?:[0-9]|1[0-9]|2[0-3])(?![0-9])"
    r"|WITA(?![A-Z])|[A-Z]{3}(?![A-Z])|[A-Z]{3}T(?![A-Z])|[A-Z]{4}T(?![A-Z])"
)
_NANOSECOND_DIGITS: Final = 9


def parse_time(layout: str, text: str, zone: Zone) -> Time:
    """Return the time in a text with this layout. Its zone is ``zone`` if the text has none. Raises FunctionError."""
    reader = _Reader(layout, text)
    reader.read()
    return reader.time(zone)


class _Reader:
    def __init__(self, layout: str, text: str) -> None:
        self.layout = layout
        self.text = text
        self.position = 0
        self.found: dict[str, int] = {}
        self.half = ""  # AM or PM
        self.is_utc = False
        self.zone_name = ""

    def _error(self, why: str) -> FunctionError:
        return FunctionError(f"{self.text!r} is not a time in the form {self.layout!r}: {why}")

    def read(self) -> None:
        """Read the text, part by part, as the layout defines it."""
        end = 0
        for part in LAYOUT_PART.finditer(self.layout):
            self._skip(self.layout[end : part.start()])
            end = part.end()
            self._read_part(part)
        self._skip(self.layout[end:])
        if self.position < len(self.text):
            raise self._error(f"extra text {self.text[self.position :]!r}")

    def _skip(self, literal: str) -> None:
        """Skip literal text. A space of the layout matches any number of spaces, including zero at the end."""
        for word in re.findall(r" +|[^ ]+", literal):
            remainder = self.text[self.position :]
            if word[0] == " ":
                if remainder and remainder[0] != " ":
                    raise self._error(f"no space before {remainder!r}")
                self.position += len(remainder) - len(remainder.lstrip(" "))
            elif remainder.startswith(word):
                self.position += len(word)
            else:
                raise self._error(f"{word!r} is missing before {remainder!r}")

    def _take(self, pattern: str, what: str) -> str:
        match = re.compile(pattern).match(self.text, self.position)
        if match is None:
            raise self._error(f"no {what} at {self.text[self.position :]!r}")
        self.position = match.end()
        return match[0]

    def _number(self, key: str, pattern: str, least: int, most: int) -> None:
        number = int(self._take(pattern, key))
        if not least <= number <= most:
            raise self._error(f"{key} out of range")
        self.found[key] = number

    def _name(self, names: Sequence[str], length: int | None, what: str) -> int:
        remainder = self.text[self.position :].lower()
        for index, name in enumerate(names):
            if remainder.startswith(name[:length].lower()):
                self.position += len(name[:length])
                return index
        raise self._error(f"no {what} at {remainder!r}")

    def _read_part(self, part: re.Match[str]) -> None:
        if part["zone"]:
            self._read_offset(part["zone"])
        elif part["fraction"]:
            self._read_fraction(part["fraction"])
        elif part[0] in _NUMBERS:
            self._number(*_NUMBERS[part[0]])
            if part[0] in ("5", "05"):
                self._read_unasked_fraction(part.end())
        else:
            self._read_word(part[0])

    def _read_word(self, part: str) -> None:
        match part:
            case "January" | "Jan":
                self.found["month"] = self._name(MONTHS, 3 if part == "Jan" else None, "month") + 1
            case "Monday" | "Mon":
                self._name(WEEKDAYS, 3 if part == "Mon" else None, "day of the week")
            case "PM" | "pm":
                self.half = self._take("[AP]M" if part == "PM" else "[ap]m", "half of the day").upper()
            case "06":
                year = int(self._take("[0-9]{2}", "year"))
                # As in Go: in some zones Unix time starts in 1969.
                self.found["year"] = year + (1900 if year >= 69 else 2000)
            case "MST":
                self._read_zone_name()

    def _read_zone_name(self) -> None:
        if self.text.startswith("UTC", self.position):
            self.position += 3
            self.is_utc = True
        else:
            self.zone_name = self._take(_ZONE_NAME.pattern, "zone")

    def _read_offset(self, part: str) -> None:
        if part[0] == "Z" and self.text.startswith("Z", self.position):
            self.position += 1
            self.is_utc = True
            return
        colon = ":" if ":" in part else ""
        count = len(part.replace(":", "")) // 2
        offset = self._take("[+-]" + colon.join(["[0-9]{2}"] * count), "offset")
        hours, minutes, seconds = [*map(int, re.findall("[0-9]{2}", offset)), 0, 0][:3]
        if hours > 24 or minutes > 60 or seconds > 60:
            raise self._error("offset out of range")
        self.found["offset"] = (hours * 3600 + minutes * 60 + seconds) * (-1 if offset[0] == "-" else 1)

    def _read_fraction(self, part: str) -> None:
        if part[1] == "0":
            self._keep_fraction(self._take(f"[.,][0-9]{{{len(part) - 1}}}", "fraction of a second"))
        elif re.compile("[.,][0-9]").match(self.text, self.position):
            self._keep_fraction(self._take("[.,][0-9]+", "fraction of a second"))

    def _read_unasked_fraction(self, end: int) -> None:
        """Read a fraction of a second after the seconds, even if the layout shows none."""
        following = LAYOUT_PART.match(self.layout, end)
        if not (following and following["fraction"]):
            self._read_fraction(".9")

    def _keep_fraction(self, digits: str) -> None:
        self.found["nanosecond"] = int(digits[1 : _NANOSECOND_DIGITS + 1].ljust(_NANOSECOND_DIGITS, "0"))

    # Result -----------------------------------------------------------------------------------------------------------

    def time(self, zone: Zone) -> Time:
        """Return the time from the parts read so far."""
        seconds = self._days() * DAY_SECONDS + self._hour() * 3600
        seconds += self.found.get("minute", 0) * 60 + self.found.get("second", 0)
        nanosecond = self.found.get("nanosecond", 0)
        if self.is_utc:
            return Time(seconds, nanosecond, UTC_ZONE)
        if "offset" in self.found:
            return self._time_at_offset(seconds, nanosecond, zone)
        if self.zone_name:
            return self._time_in_named_zone(seconds, nanosecond, zone)
        return time_on(seconds, nanosecond, zone)

    def _days(self) -> int:
        year = self.found.get("year", 0)
        month, day = self.found.get("month", 1), self.found.get("day", 1)
        if "day of the year" in self.found:
            return self._day_of_year(year)
        if not 1 <= day <= days_in_month(year, month):
            raise self._error("day out of range")
        return days_since_epoch(year, month, day)

    def _day_of_year(self, year: int) -> int:
        days = days_since_epoch(year, 1, self.found["day of the year"])
        shown, month, day = date_on(days)
        if shown != year:
            raise self._error("day of the year out of range")
        if self.found.get("month", month) != month or self.found.get("day", day) != day:
            raise self._error("the day of the year is another day")
        return days

    def _hour(self) -> int:
        hour = self.found.get("hour", 0)
        if self.half == "PM" and hour < 12:
            return hour + 12
        return 0 if self.half == "AM" and hour == 12 else hour

    def _time_at_offset(self, seconds: int, nanosecond: int, zone: Zone) -> Time:
        moment = seconds - self.found["offset"]
        name, offset = zone.at(moment)
        # If the offset matches, keep the zone itself, with its name and its summer time.
        if offset == self.found["offset"] and self.zone_name in ("", name):
            return Time(moment, nanosecond, zone)
        return Time(moment, nanosecond, FixedZone(self.zone_name, self.found["offset"]))

    def _time_in_named_zone(self, seconds: int, nanosecond: int, zone: Zone) -> Time:
        name, offset = zone.at(seconds)
        if name == self.zone_name:
            return Time(seconds - offset, nanosecond, zone)
        # As in Go, a name unknown to the zone means UTC, unless it contains an offset: ``GMT+3``.
        hours = int(self.zone_name[3:]) if len(self.zone_name) > 3 and self.zone_name.startswith("GMT") else 0
        return Time(seconds - hours * 3600, nanosecond, FixedZone(self.zone_name, hours * 3600))


_NUMBERS: Final = {
    "2006": ("year", "[0-9]{4}", 0, 9999),
    "1": ("month", "[0-9]{1,2}", 1, 12),
    "01": ("month", "[0-9]{2}", 1, 12),
    "2": ("day", "[0-9]{1,2}", 0, 99),
    "_2": ("day", " ?[0-9]{1,2}", 0, 99),
    "02": ("day", "[0-9]{2}", 0, 99),
    "__2": ("day of the year", " {0,2}[0-9]{1,3}", 1, 366),
    "002": ("day of the year", "[0-9]{3}", 1, 366),
    "15": ("hour", "[0-9]{1,2}", 0, 23),
    "3": ("hour", "[0-9]{1,2}", 0, 12),
    "03": ("hour", "[0-9]{2}", 0, 12),
    "4": ("minute", "[0-9]{1,2}", 0, 59),
    "04": ("minute", "[0-9]{2}", 0, 59),
    "5": ("second", "[0-9]{1,2}", 0, 59),
    "05": ("second", "[0-9]{2}", 0, 59),
}
