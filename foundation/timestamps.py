"""Times as text, always in UTC.

* ``iso_text`` is for documents of state and reports: ``2026-11-20T12:00:00+00:00``, or with fractions of a second.
* ``zulu_text`` is for signed documents and exact times in sentences: ``2026-11-20T12:00:00Z``.
* ``minute_text`` is for sentences: ``2026-11-20 12:00 UTC``.
* Callers pass the current time.

Users write a time in ISO 8601, a duration, a time of day (``18:00``), or a day with an optional time of day:
``tomorrow``, ``monday 08:00``. Without an offset, all of these are in UTC (``docs/input.md``).
"""

from datetime import UTC, datetime, timedelta
from typing import Literal

from foundation.durations import Duration


def iso_text(
    moment: datetime, precision: Literal["seconds", "milliseconds", "microseconds"] = "seconds"
) -> str:
    """Return a time in the format of state documents."""
    return moment.astimezone(UTC).isoformat(timespec=precision)


def zulu_text(moment: datetime) -> str:
    """Return a time in the format of signed documents."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def minute_text(moment: datetime) -> str:
    """Return a time in the format of sentences."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def parse_moment(text: str) -> datetime:
    """Parse a time in ISO 8601, in UTC without an offset. Raises ``ValueError``."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"is {text!r}, expected a time such as '2026-11-21T06:00'") from None


_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_FORMS = "a time such as '2026-11-21T06:00', '18:00' or 'tomorrow 08:00' (UTC), or a duration such as '4h'"


def parse_until(text: str, now: datetime) -> datetime:
    """Parse a future time, or a duration from ``now`` on. Raises ``ValueError``, also for a past time.

    A number without a unit is rejected: 2026 could be seconds or a year.
    """
    until = _parse_time(text, now, direction=1)
    if until <= now:
        raise ValueError(f"is {minute_text(until)}, which is not after the current time {minute_text(now)}")
    return until


def parse_since(text: str, now: datetime) -> datetime:
    """Parse a past time, or a duration before ``now``. Raises ``ValueError``, also for a future time."""
    since = _parse_time(text, now, direction=-1)
    if since > now:
        raise ValueError(f"is {minute_text(since)}, which is after the current time {minute_text(now)}")
    return since


def is_moment(text: str) -> bool:
    """Return whether a text is a time in ISO 8601."""
    try:
        return bool(parse_moment(text))
    except ValueError:
        return False


def is_time(text: str, now: datetime) -> bool:
    """Return whether a text is a time, and not a duration."""
    try:
        return _day_and_time(text, now.astimezone(UTC), 1) is not None or is_moment(text)
    except ValueError:
        return False


def _parse_time(text: str, now: datetime, direction: Literal[-1, 1]) -> datetime:
    """Return the time nearest to ``now`` in this direction. Raises ``ValueError``."""
    try:
        if (moment := _day_and_time(text, now.astimezone(UTC), direction)) is not None:
            return moment
        # A time ends with a digit, or with Z.
        is_duration = text[-1:].isalpha() and text[-1:] != "Z"
        return now + direction * Duration.parse_text(text).delta if is_duration else parse_moment(text)
    except (ValueError, OverflowError):
        raise ValueError(f"is {text!r}, expected {_FORMS}") from None


def _day_and_time(text: str, now: datetime, direction: Literal[-1, 1]) -> datetime | None:
    """Return the time of a text with a day or a time of day, or ``None``. Raises ``ValueError``."""
    day, _, clock = text.lower().partition(" ")
    if day not in _DAYS and day not in _WEEKDAYS:
        if len(text) != len("18:00") or text[2] != ":":
            return None
        at = _at(now, 0, text)
        is_near = at > now if direction > 0 else at <= now
        return at if is_near else at + timedelta(days=direction)
    offset = _DAYS.get(day)
    if offset is None:
        offset = (_WEEKDAYS.index(day) - now.weekday()) % 7
        if direction < 0:
            offset -= 7 if offset or _at(now, 0, clock or "00:00") > now else 0
        elif offset == 0 and _at(now, 0, clock or "00:00") <= now:
            offset = 7
    return _at(now, offset, clock or "00:00")


def _at(now: datetime, days: int, clock: str) -> datetime:
    """Return the time of a day relative to today. Raises ``ValueError`` for an invalid time of day."""
    return datetime.combine(now.date() + timedelta(days=days), datetime.strptime(clock, "%H:%M").time(), UTC)
