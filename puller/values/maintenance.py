"""Maintenance of a host: the windows in which it may apply releases and reboot, and a reboot that is due.

* A window is wall-clock time in its zone. A time that the clock skips in spring does not open on that day. A time that
  occurs twice in autumn opens twice.
* A window over midnight belongs to the day on which it starts: ``days: [fri]``, 22:00 to 04:00 ends on Saturday.
* Without windows the host is always open. The module never reads the clock. Callers pass ``now`` with its zone.
* Records, reports and the fleet show a pending reboot.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from foundation.formatting import did_you_mean
from foundation.times import minute_text, parse_moment

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MIDNIGHT = 24 * 60
_SEARCHED = 22
"""Days to search for the next opening. A zone may skip a whole day, and so a weekly window once."""


class Days(frozenset[int]):
    """Days of the week, Monday is 0. Written as a list of days and ranges: ``[mon-fri, sun]``."""

    @classmethod
    def parse(cls, value: object) -> "Days":
        """Parse the list. Raise ``ValueError``."""
        if not isinstance(value, list):
            raise ValueError(f"is {value!r}, expected a list of days such as [mon-fri, sun]")
        if not value:
            raise ValueError("is empty, expected at least one day")
        return cls(day for item in value for day in _range(item))


def _range(item: object) -> Iterator[int]:
    """Return the days of ``mon-fri``. Ranges may cross the weekend: ``sat-mon``."""
    first, dash, last = item.lower().partition("-") if isinstance(item, str) else ("", "", "")
    if first not in _DAYS or (dash and last not in _DAYS):
        raise ValueError(f"has {item!r}, expected days such as mon, or ranges such as mon-fri")
    start = _DAYS.index(first)
    length = (_DAYS.index(last) - start) % 7 if dash else 0
    return ((start + number) % 7 for number in range(length + 1))


class ClockTime(int):
    """A time of day in minutes since midnight, 24:00 included.

    YAML 1.1 reads an unquoted ``22:00`` as a number to the base of 60: 1320, which is the number of minutes.
    """

    @classmethod
    def parse(cls, value: object) -> "ClockTime":
        """Parse the time. Raise ``ValueError``."""
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
            raise ValueError(f"is {value!r}, expected a time such as '22:00', from 00:00 to 24:00")
        return cls(minutes)

    def __str__(self) -> str:
        return f"{self // 60:02}:{self % 60:02}"


class Zone(str):
    """A time zone by its name in the IANA database: ``Europe/Berlin``."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> "Zone":
        """Parse the name. Raise ``ValueError``."""
        if not isinstance(value, str):
            raise ValueError(f"is {value!r}, expected the name of a time zone such as 'Europe/Berlin'")
        try:
            cls(value).rules()
        except (LookupError, ValueError, OSError):
            raise ValueError(f"is {value!r}, an unknown time zone on this machine{_meant(value)}") from None
        return cls(value)

    def rules(self) -> tzinfo:
        """Return the rules of the zone. Raise ``LookupError``, ``ValueError`` or ``OSError`` if they are unknown."""
        if self == "UTC":  # works also on machines without a zone database
            return UTC
        from zoneinfo import ZoneInfo  # 2 % of an idle apply, and few configurations have a time zone

        return ZoneInfo(self)


def _meant(name: str) -> str:
    from zoneinfo import available_timezones  # as above

    return did_you_mean(name, available_timezones()) or " (an example is 'Europe/Berlin')"


class Opening(NamedTuple):
    """One opening of a window. The times are in UTC."""

    start: datetime
    end: datetime
    """The first moment at which the window is closed again."""


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A weekly window from ``start`` until before ``end``. If ``end`` is earlier, it is on the next day."""

    days: Days = Days(range(7))
    start: ClockTime = msgspec.field(name="from", default=ClockTime(0))
    end: ClockTime = msgspec.field(name="to", default=ClockTime(_MIDNIGHT))
    zone: Zone = Zone("UTC")

    def __str__(self) -> str:
        days = " ".join(_DAYS[day] for day in sorted(self.days)) if len(self.days) < 7 else "every day"
        return f"{days}, {self.start} to {self.end} {self.zone}"

    def is_open(self, now: datetime) -> bool:
        """Return whether ``now`` is inside of the window."""
        local = now.astimezone(self.zone.rules())
        minute, today = 60 * local.hour + local.minute, local.weekday()
        if self.start < self.end:
            return today in self.days and self.start <= minute < self.end
        return (today in self.days and minute >= self.start) or (
            (today - 1) % 7 in self.days and minute < self.end
        )

    def next_opening(self, now: datetime) -> datetime | None:
        """Return the next opening in UTC. ``now`` if it is open, ``None`` if it stays closed for weeks."""
        if self.is_open(now):
            return now.astimezone(UTC)
        moments = sorted(moment for moment in self._beginnings(now) if moment > now and self.is_open(moment))
        return moments[0] if moments else None

    def current_or_next_opening(self, now: datetime) -> Opening | None:
        """Return the opening that is open ``now``, otherwise the next one. ``None`` if it stays closed for weeks.

        A window of whole days has an opening for each day.
        """
        moment = self.next_opening(now)
        if moment is None:
            return None
        begun = [start for start in self._beginnings(moment - timedelta(days=2)) if start <= moment]
        start = max((start for start in begun if self.is_open(start)), default=moment)
        return Opening(start, self._end_of(start))

    def _end_of(self, start: datetime) -> datetime:
        """Return the end of the opening that begins at ``start``."""
        zone = self.zone.rules()
        first = start.astimezone(zone).date()
        ends = []
        for number in range(3):
            day, minutes = first + timedelta(days=number + self.end // _MIDNIGHT), self.end % _MIDNIGHT
            local = datetime.combine(day, time(*divmod(minutes, 60)), zone)
            ends += [local.replace(fold=fold).astimezone(UTC) for fold in (0, 1)]
        return min(end for end in ends if end > start)

    def _beginnings(self, now: datetime) -> Iterator[datetime]:
        """Yield all possible openings: the start time of each day, and each change of the clock."""
        zone = self.zone.rules()
        first = now.astimezone(zone).date()
        for number in range(_SEARCHED):
            day = first + timedelta(days=number)
            begins = datetime.combine(day, time(*divmod(self.start, 60)), zone)
            # In autumn a time of day may occur twice, and the window opens at both.
            yield from (begins.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
            if (change := _find_change(zone, day)) is not None:
                yield change


def _find_change(zone: tzinfo, day: date) -> datetime | None:
    """Return the moment of that day, in UTC, at which the zone's clocks change. Accurate to a second."""
    before = datetime.combine(day, time(), zone).astimezone(UTC)
    after = datetime.combine(day + timedelta(days=1), time(), zone).astimezone(UTC)
    offset = before.astimezone(zone).utcoffset()
    if after.astimezone(zone).utcoffset() == offset:
        return None
    # A zone has an offset for each time, but no list of its changes.
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        before, after = (middle, after) if middle.astimezone(zone).utcoffset() == offset else (before, middle)
    return after


def is_open(windows: Sequence[Window], now: datetime) -> bool:
    """Return whether changes may be applied ``now``: inside of any window, or without windows."""
    return not windows or any(window.is_open(now) for window in windows)


def next_opening(windows: Sequence[Window], now: datetime) -> datetime | None:
    """Return the next time in UTC at which changes may be applied. ``now`` if it is open."""
    if is_open(windows, now):
        return now.astimezone(UTC)
    openings = [opening for window in windows if (opening := window.next_opening(now)) is not None]
    return min(openings, default=None)


def why_closed(windows: Sequence[Window], now: datetime) -> str:
    """Return the sentence about closed windows. Empty if changes may be applied."""
    if is_open(windows, now):
        return ""
    opening = next_opening(windows, now)
    return f"outside the maintenance windows, the next one opens {minute_text(opening) if opening else 'in some weeks'}"


def find_problem(
    windows: Sequence[Window], raw: Sequence[Any], original: Callable[[tuple[str | int, ...]], str | None]
) -> tuple[tuple[str | int, ...], str] | None:
    """Return the first semantic error of windows that were written as ``raw``: its place, and a message.

    ``original`` returns the written text of a scalar: 800 is not a time, although 13:20 is the same number.
    """
    for number, window in enumerate(windows):
        for key in ("from", "to"):
            place = ("windows", number, key)
            if isinstance(raw[number].get(key), int) and ":" not in (original(place) or ""):
                return place, f"{key} is {raw[number][key]}, expected a time such as '22:00'"
        if window.start == window.end or window.start == _MIDNIGHT:
            sentence = f"goes from {window.start} to {window.end} (write 00:00 to 24:00 for a whole day)"
            return ("windows", number), sentence
    return None


class RebootState(StrEnum):
    """How far a reboot has come."""

    WAITING = "waiting"
    """It waits for a time, or for the end of other work."""
    REQUESTED = "requested"
    """The run restarts the machine at its end."""
    SCHEDULED = "scheduled"
    """systemd restarts the machine at a time."""
    CANCELLED = "cancelled"
    """An administrator cancelled it. It waits for the next time."""
    FAILED = "failed"
    """The reason has remained after a reboot, or the reboot is impossible."""


class PendingReboot(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A reboot that a resource requires. Times are UTC in ISO 8601."""

    resource: str
    """``reboot#NAME``."""
    reasons: list[str]
    """Why the machine must be restarted, a short text for each reason."""
    since: str
    """The first time at which a run noticed the oldest reason."""
    state: RebootState = RebootState.WAITING
    at: str = ""
    """The time of the reboot, or the earliest time if it waits. Empty if it is unknown."""
    waits_for: str = ""
    """What it waits for, besides the time."""

    def __str__(self) -> str:
        """Return a sentence."""
        since = minute_text(parse_moment(self.since))
        return f"{self.resource}: a reboot is due since {since} ({', '.join(self.reasons)}): {self.progress}"

    @property
    def progress(self) -> str:
        """The state of the reboot in words."""
        time = minute_text(parse_moment(self.at)) if self.at else ""
        match self.state:
            case RebootState.REQUESTED:
                return f"requested for {time}"
            case RebootState.SCHEDULED:
                return f"scheduled for {time}"
            case RebootState.FAILED:
                return self.waits_for
            case RebootState.CANCELLED:
                return f"cancelled, next attempt {f'from {time} on' if time else 'at an unknown time'}"
            case RebootState.WAITING:
                waits = self.waits_for or "for its time"
                return f"waits {waits}{f', from {time} on' if time else ''}"
