"""Moments as they are kept, shown and typed: UTC to the second, whatever the clock of the reader.

Nothing here asks for the time; ``now`` is handed in.
"""

from datetime import UTC, datetime, timedelta

from foundation.durations import Duration


def written(moment: datetime) -> str:
    """A moment as state documents keep it: ``2026-11-20T12:00:00+00:00``."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def shown(moment: datetime) -> str:
    """A moment as sentences show it: ``2026-11-20 12:00 UTC``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def parse_moment(text: str) -> datetime:
    """A time in ISO 8601, UTC unless it says otherwise; raises ``ValueError``."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"is {text!r}, wanted a time such as '2026-11-21T06:00'") from None


def parse_until(text: str, now: datetime) -> datetime:
    """A time in ISO 8601, or how long from ``now`` (``4h``, ``2d``); raises ``ValueError`` for one that has passed."""
    try:
        until = now + timedelta(seconds=Duration.parse(text)) if _is_duration(text) else parse_moment(text)
    except (ValueError, OverflowError):
        wanted = "a time such as '2026-11-21T06:00' (UTC unless it has an offset) or a duration such as '4h'"
        raise ValueError(f"is {text!r}, wanted {wanted}") from None
    if until <= now:
        raise ValueError(f"is {shown(until)}, and it is {shown(now)} now")
    return until


def _is_duration(text: str) -> bool:
    """A number alone is neither: 2026 seconds and the year 2026 look the same."""
    return text[-1:].isalpha() and text[-1:] != "Z"
