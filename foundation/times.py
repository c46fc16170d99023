"""Times and durations as text.

Times are in UTC, and callers pass the current time:

* ``iso_text`` is for documents of state and reports: ``2026-11-20T12:00:00+00:00``, or with fractions of a second.
* ``zulu_text`` is for signed documents and exact times in sentences: ``2026-11-20T12:00:00Z``.
* ``minute_text`` is for sentences: ``2026-11-20 12:00 UTC``.
* Users write a time in ISO 8601, a duration, a time of day (``18:00``), or a day with an optional time of day:
  ``tomorrow``, ``monday 08:00``. Without an offset, all of these are in UTC (``docs/input.md``).

The grammar of durations: ``30s``, ``1h30m``, ``1.5h``, ``7d`` (``docs/input.md``).

* A text is one or more pairs of a number and a unit, without blanks and signs.
* Properties of manifests and the configuration also accept a plain number of seconds (``Duration.parse``).
* Everywhere else a unit is required, because ``90`` could mean seconds or days (``Duration.parse_text``).
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Literal, Self

_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 7 * 86400.0,
    "M": 30 * 86400.0,
    "y": 365 * 86400.0,
}
_PART = r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(ms|us|µs|ns|[smhdwMy])"
_LONGEST = 1000 * _SECONDS["y"]


class Duration(float):
    """A time in seconds."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read a text with units, or a number of seconds. Raises ``ValueError``, also for a negative number."""
        number = value
        if isinstance(value, str):
            text = value.strip()
            number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else _seconds(text)
        if isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= _LONGEST:
            return cls(number)
        raise _invalid(value)

    @classmethod
    def parse_text(cls, value: object, *, above_zero: bool = False) -> Self:
        """Read a text with units. Raises ``ValueError``."""
        seconds = _seconds(value) if isinstance(value, str) else None
        if seconds is None or seconds > _LONGEST:
            raise _invalid(value)
        if above_zero and seconds == 0:
            raise ValueError(f"is {value!r}, expected a duration of more than 0s")
        return cls(seconds)

    @property
    def delta(self) -> timedelta:
        """The duration for calculations with times, rounded to microseconds."""
        return timedelta(seconds=self)

    @property
    def text(self) -> str:
        """The duration in whole seconds as a text with units, such as ``1h30m``."""
        rest, parts = int(self), []
        for unit in "dhms":
            count, rest = divmod(rest, int(_SECONDS[unit]))
            parts += [f"{count}{unit}"] if count else []
        return "".join(parts) or "0s"


def is_duration(value: object) -> bool:
    """Return whether a value is a text that ``Duration.parse_text`` accepts."""
    try:
        Duration.parse_text(value)
    except ValueError:
        return False
    return True


def _seconds(text: str) -> float | None:
    if not re.fullmatch(f"({_PART})+", text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_PART, text))


def _invalid(value: object) -> ValueError:
    return ValueError(f"is {value!r}, expected a duration such as '30s', '1h30m' or '7d'")


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
