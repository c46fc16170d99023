"""The calendar, time zones, and a moment in both.

* Any year is possible, so the calendar is computed here and not by ``datetime``.
* ``Local`` is the zone of the machine. Only installed zones are available.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo

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
    days, rest = divmod(seconds + offset, DAY_SECONDS)
    year, month, day = date_on(days)
    hour, rest = divmod(rest, 3600)
    minute, second = divmod(rest, 60)
    weekday = (days + 4) % 7  # 1970-01-01 was a Thursday
    day_of_year = days - days_since_epoch(year, 1, 1) + 1
    return Clock(year, month, day, hour, minute, second, nanosecond, weekday, day_of_year, name, offset)
