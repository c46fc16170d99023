"""Points and spans of time as Puppet reads and prints them: nanoseconds, UTC."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hiera.errors import LookupFailure

_NANOSECONDS = 1_000_000_000
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?)?\s*(Z|UTC|GMT|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_TIMESPAN = re.compile(
    r"(?:(\d{1,9})-(?=.*:))?(?:(?:(\d{1,9}):)?([0-5]?\d):)?(\d{1,18})(?:\.(\d{1,9}))?", re.ASCII
)


def timestamp(given: Any, formats: Any = None) -> str:
    """A point in time, from seconds since 1970 or a text; raises ``LookupFailure``."""
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return _printed(_since_1970(given))
    if not isinstance(given, str) or not given:
        raise LookupFailure("", f"a Timestamp is made of a number or a text, not of {given!r}")
    if formats is not None:
        return _printed(_by_formats(given, formats if isinstance(formats, list) else [formats]))
    found = _TIMESTAMP.fullmatch(given)
    if not found:
        raise _unreadable(given, "%FT%T.%N %Z, %FT%T %Z, %F %T.%N %Z, %F %T %Z, %F %Z and these without zone")
    # A date without a time is its midnight.
    numbers = [int(number or 0) for number in found.groups()[:6]]
    try:
        moment = datetime(*numbers, tzinfo=_zone(found[8]))  # type: ignore[misc, arg-type]  # six numbers, checked above
        return _printed((moment.astimezone(UTC), int((found[7] or "").ljust(9, "0"))))
    except (ValueError, OverflowError):
        raise LookupFailure("", f"there is no such time: '{given}'") from None


def _zone(name: str | None) -> timezone:
    if not name or name in ("Z", "UTC", "GMT"):
        return UTC
    minutes = int(name[1:3]) * 60 + int(name[-2:])
    return timezone(timedelta(minutes=-minutes if name[0] == "-" else minutes))


def _since_1970(seconds: float) -> tuple[datetime, int]:
    whole, rest = divmod(int(seconds * _NANOSECONDS), _NANOSECONDS)
    try:
        return datetime.fromtimestamp(whole, UTC), rest
    except (ValueError, OverflowError, OSError):
        raise LookupFailure("", f"{seconds} seconds since 1970 is out of range") from None


def _by_formats(given: str, formats: list[Any]) -> tuple[datetime, int]:
    for template in formats:
        template = str(template).replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S").replace("%N", "%f")
        try:
            moment = datetime.strptime(given, template)
        except (ValueError, re.error):
            continue
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC), moment.microsecond * 1000
    raise _unreadable(given, ", ".join(map(str, formats)))


def _printed(moment: tuple[datetime, int]) -> str:
    when, nanoseconds = moment
    return f"{when:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d} UTC"


def timespan(*given: Any) -> str:
    """A span of time, from seconds, a text, fields, or a mapping of them; raises ``LookupFailure``."""
    first = given[0]
    if isinstance(first, dict) and "string" not in first:
        return _span(first, bool(first.get("negative")))
    text = first["string"] if isinstance(first, dict) else first
    if isinstance(text, str):
        return _span(_fields_of(text), False)
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in given):
        raise LookupFailure("", "a Timespan is made of numbers, a text or a mapping")
    if len(given) == 1:
        total = int(text * _NANOSECONDS)
        return _span({"nanoseconds": abs(total)}, total < 0)
    return _span(dict(zip(_FIELDS, map(int, given), strict=False)), False)


_FIELDS = {
    "days": 86400 * _NANOSECONDS,
    "hours": 3600 * _NANOSECONDS,
    "minutes": 60 * _NANOSECONDS,
    "seconds": _NANOSECONDS,
    "milliseconds": 1_000_000,
    "microseconds": 1000,
    "nanoseconds": 1,
}


def _fields_of(text: str) -> dict[str, int]:
    found = _TIMESPAN.fullmatch(text)
    if not found:
        raise _unreadable(text, "%D-%H:%M:%S.%-N, %H:%M:%S.%-N, %M:%S.%-N, %S.%-N, %D-%H:%M:%S, %H:%M:%S, %S")
    days, hours, minutes, seconds, fraction = found.groups()
    if minutes and not hours and fraction is None:
        raise _unreadable(text, "%M:%S.%-N (minutes and seconds alone need a fraction)")
    names = ("days", "hours", "minutes", "seconds")
    fields = {name: int(part or 0) for name, part in zip(names, (days, hours, minutes, seconds), strict=True)}
    return {**fields, "nanoseconds": int((fraction or "").ljust(9, "0"))}


def _span(fields: dict[str, Any], negative: bool) -> str:
    if not all(isinstance(fields.get(name, 0), int) for name in _FIELDS):
        raise LookupFailure("", "the fields of a Timespan are integers")
    total = sum(fields.get(name, 0) * size for name, size in _FIELDS.items())
    seconds, fraction = divmod(abs(total), _NANOSECONDS)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    sign = "-" if negative != (total < 0) else ""
    digits = f"{fraction:09d}".rstrip("0") or "0"
    return f"{sign}{days}-{hours:02d}:{minutes:02d}:{seconds:02d}.{digits}"


def _unreadable(given: str, formats: str) -> LookupFailure:
    return LookupFailure("", f"Unable to parse '{given}' using any of the formats {formats}")
