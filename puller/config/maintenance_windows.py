"""Maintenance windows: when this host may apply what it has fetched.

* A window is wall-clock time in its zone. What the clock skips in spring is not open that day; what it shows twice in
  autumn is open twice.
* A window over midnight belongs to the day on which it starts: ``days: [fri]``, 22:00 to 04:00 ends on Saturday.
* No windows means always. Nothing here asks for the time; ``now`` is handed in, and knows its zone.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any

import msgspec

from foundation.formatting import did_you_mean
from foundation.timestamps import minute_text

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MIDNIGHT = 24 * 60
_SEARCHED = 22
"""Days within which the next opening is looked for: a zone may skip a whole day, and so a weekly window once."""


class Days(frozenset[int]):
    """Days of the week, Monday is 0; written as a list of days and ranges: ``[mon-fri, sun]``."""

    @classmethod
    def parse(cls, value: object) -> "Days":
        """Raises ``ValueError``."""
        if not isinstance(value, list):
            raise ValueError(f"is {value!r}, wanted a list of days such as [mon-fri, sun]")
        if not value:
            raise ValueError("names no day")
        return cls(day for item in value for day in _range(item))


def _range(item: object) -> Iterator[int]:
    """The days of ``mon-fri``; also over the weekend, ``sat-mon``."""
    first, dash, last = item.lower().partition("-") if isinstance(item, str) else ("", "", "")
    if first not in _DAYS or (dash and last not in _DAYS):
        raise ValueError(f"has {item!r}, wanted days such as mon, or ranges such as mon-fri")
    start = _DAYS.index(first)
    length = (_DAYS.index(last) - start) % 7 if dash else 0
    return ((start + number) % 7 for number in range(length + 1))


class ClockTime(int):
    """A time of day in minutes since midnight, 24:00 included.

    YAML 1.1 reads an unquoted ``22:00`` as a number to the base of 60: 1320, which is just these minutes.
    """

    @classmethod
    def parse(cls, value: object) -> "ClockTime":
        """Raises ``ValueError``."""
        minutes = -1
        if isinstance(value, int) and not isinstance(value, bool):
            minutes = value
        elif isinstance(value, str):
            hour, _, minute = value.partition(":")
            if (
                (hour.isascii() and hour.isdecimal())
                and (minute.isascii() and minute.isdecimal())
                and len(hour) <= 2 == len(minute)
                and int(minute) < 60
            ):
                minutes = 60 * int(hour) + int(minute)
        if not 0 <= minutes <= _MIDNIGHT:
            raise ValueError(f"is {value!r}, wanted a time such as '22:00', from 00:00 to 24:00")
        return cls(minutes)

    def __str__(self) -> str:
        return f"{self // 60:02}:{self % 60:02}"


class Zone(str):
    """A time zone by its name in the IANA database: ``Europe/Berlin``."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> "Zone":
        """Raises ``ValueError``."""
        if not isinstance(value, str):
            raise ValueError(f"is {value!r}, wanted the name of a time zone such as 'Europe/Berlin'")
        try:
            cls(value).rules()
        except (LookupError, ValueError, OSError):
            raise ValueError(
                f"is {value!r}, which is no time zone that this machine knows{_meant(value)}"
            ) from None
        return cls(value)

    def rules(self) -> tzinfo:
        """How its clocks run; raises ``LookupError``, ``ValueError`` or ``OSError`` when that is not known."""
        if self == "UTC":  # on every machine, also where nothing is known of other zones
            return UTC
        from zoneinfo import ZoneInfo

        return ZoneInfo(self)


def _meant(name: str) -> str:
    from zoneinfo import available_timezones

    return did_you_mean(name, available_timezones()) or " (names are such as 'Europe/Berlin')"


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Recurs every week: from ``start`` until before ``end``, which is on the day after when it is the earlier one."""

    days: Days = Days(range(7))
    start: ClockTime = msgspec.field(name="from", default=ClockTime(0))
    end: ClockTime = msgspec.field(name="to", default=ClockTime(_MIDNIGHT))
    zone: Zone = Zone("UTC")

    def __str__(self) -> str:
        days = " ".join(_DAYS[day] for day in sorted(self.days)) if len(self.days) < 7 else "every day"
        return f"{days}, {self.start} to {self.end} {self.zone}"

    def is_open(self, now: datetime) -> bool:
        """Whether ``now`` is inside."""
        local = now.astimezone(self.zone.rules())
        minute, today = 60 * local.hour + local.minute, local.weekday()
        if self.start < self.end:
            return today in self.days and self.start <= minute < self.end
        return (today in self.days and minute >= self.start) or (
            (today - 1) % 7 in self.days and minute < self.end
        )

    def next_opening(self, now: datetime) -> datetime | None:
        """When it is open next, UTC; ``now`` itself when it is open now, ``None`` when that is not within weeks."""
        if self.is_open(now):
            return now.astimezone(UTC)
        moments = sorted(moment for moment in self._beginnings(now) if moment > now and self.is_open(moment))
        return moments[0] if moments else None

    def _beginnings(self, now: datetime) -> Iterator[datetime]:
        """All moments at which it may begin to be open: its time comes, or the clock is changed into it."""
        zone = self.zone.rules()
        first = now.astimezone(zone).date()
        for number in range(_SEARCHED):
            day = first + timedelta(days=number)
            begins = datetime.combine(day, time(*divmod(self.start, 60)), zone)
            # In autumn a time of day may come twice, and the window opens at both.
            yield from (begins.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
            if (change := _find_change(zone, day)) is not None:
                yield change


def _find_change(zone: tzinfo, day: date) -> datetime | None:
    """The moment of that day, UTC, at which the zone's clocks are changed; to the second."""
    before = datetime.combine(day, time(), zone).astimezone(UTC)
    after = datetime.combine(day + timedelta(days=1), time(), zone).astimezone(UTC)
    offset = before.astimezone(zone).utcoffset()
    if after.astimezone(zone).utcoffset() == offset:
        return None
    # A zone tells its offset at a time, and not when that changes next.
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        before, after = (middle, after) if middle.astimezone(zone).utcoffset() == offset else (before, middle)
    return after


def is_open(windows: Sequence[Window], now: datetime) -> bool:
    """Whether anything may be applied ``now``: in any window, or when there are none."""
    return not windows or any(window.is_open(now) for window in windows)


def next_opening(windows: Sequence[Window], now: datetime) -> datetime | None:
    """When something may be applied next, UTC; ``now`` itself when that is now."""
    if is_open(windows, now):
        return now.astimezone(UTC)
    openings = [opening for window in windows if (opening := window.next_opening(now)) is not None]
    return min(openings, default=None)


def why_closed(windows: Sequence[Window], now: datetime) -> str:
    """The sentence about windows that are closed; empty when nothing has to wait."""
    if is_open(windows, now):
        return ""
    opening = next_opening(windows, now)
    return f"outside the maintenance windows, the next one opens {minute_text(opening) if opening else 'in some weeks'}"


def find_problem(
    windows: Sequence[Window], raw: Sequence[Any], original: Callable[[tuple[str | int, ...]], str | None]
) -> tuple[tuple[str | int, ...], str] | None:
    """The first problem beyond types of windows that were written as ``raw``: where, and a sentence.

    ``original`` gives the text of a scalar as it was written: 800 is no time, though 13:20 is the same number.
    """
    for number, window in enumerate(windows):
        for key in ("from", "to"):
            place = ("windows", number, key)
            if isinstance(raw[number].get(key), int) and ":" not in (original(place) or ""):
                return place, f"{key} is {raw[number][key]}, wanted a time such as '22:00'"
        if window.start == window.end or window.start == _MIDNIGHT:
            sentence = f"goes from {window.start} to {window.end}; a whole day is from 00:00 to 24:00"
            return ("windows", number), sentence
    return None
