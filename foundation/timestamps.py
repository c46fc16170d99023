"""Times as text, always in UTC.

* ``iso_text`` is for documents of state and reports: ``2026-11-20T12:00:00+00:00``, or with fractions of a second.
* ``zulu_text`` is for signed documents and exact times in sentences: ``2026-11-20T12:00:00Z``.
* ``minute_text`` is for sentences: ``2026-11-20 12:00 UTC``.
* Callers pass the current time.
"""

from datetime import UTC, datetime
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


def parse_until(text: str, now: datetime) -> datetime:
    """Parse a time in ISO 8601, or a duration from ``now`` on. Raises ``ValueError``, also for a past time.

    A number without a unit is rejected: 2026 could be seconds or a year.
    """
    try:
        # A time ends with a digit, or with Z.
        is_duration = text[-1:].isalpha() and text[-1:] != "Z"
        until = now + Duration.parse_text(text).delta if is_duration else parse_moment(text)
    except (ValueError, OverflowError):
        expected = (
            "a time such as '2026-11-21T06:00' (UTC unless it has an offset) or a duration such as '4h'"
        )
        raise ValueError(f"is {text!r}, expected {expected}") from None
    if until <= now:
        raise ValueError(f"is {minute_text(until)}, which is not after the current time {minute_text(now)}")
    return until
