"""Dates and durations. A date is a time, or seconds since 1970. Any other value means now."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from puller.templates.gotemplate.clock import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    UTC_ZONE,
    LocalZone,
    find_zone,
    format_duration,
    parse_duration,
    round_duration,
)
from puller.templates.gotemplate.times import ZERO_TIME, Time, parse_time, time_at, time_now
from puller.templates.govalue.types import Int64, is_integer, wrap_int64
from puller.templates.template_errors import FunctionError

_UNITS: Final = ((365 * DAY, "y"), (30 * DAY, "mo"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s"))
_HTML: Final = "2006-01-02"
_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,18}")  # fits an int64


def _moment(date: Any) -> Time:
    if isinstance(date, Time):
        return date
    return Time(int(date), 0, LocalZone()) if is_integer(date) else time_now()


def _since(date: Any) -> int:
    return time_now().moment() - _moment(date).moment()


# Writing and reading -------------------------------------------------------------------------------------------------


def _date(layout: str, date: Any) -> str:
    """``date``: the date in a layout, in the zone of the machine."""
    return _date_in_zone(layout, date, "Local")


def _date_in_zone(layout: str, date: Any, zone: str) -> str:
    """``dateInZone``: the date in a layout, in the zone, or in UTC for an unknown zone."""
    moment = _moment(date)
    return Time(moment.seconds, moment.nanoseconds, find_zone(zone) or UTC_ZONE).format(layout)


def _html_date(date: Any) -> str:
    """``htmlDate``: the date as ``2006-01-02``, in the zone of the machine."""
    return _date(_HTML, date)


def _html_date_in_zone(date: Any, zone: str) -> str:
    """``htmlDateInZone``: the date as ``2006-01-02``, in the zone."""
    return _date_in_zone(_HTML, date, zone)


def _must_to_date(layout: str, text: str) -> Time:
    """``mustToDate``: the time in a text with this layout. Raises FunctionError."""
    return parse_time(layout, text, LocalZone())


def _to_date(layout: str, text: str) -> Time:
    """``toDate``: the time in a text with this layout, or the first moment of the year 1 for invalid text."""
    try:
        return _must_to_date(layout, text)
    except FunctionError:
        return ZERO_TIME


def _unix_epoch(date: Time) -> str:
    """``unixEpoch``: seconds since 1970, as digits."""
    return str(date.seconds)


# Calculating ---------------------------------------------------------------------------------------------------------


def _must_date_modify(duration: str, date: Time) -> Time:
    """``mustDateModify``: the time plus a duration. Raises FunctionError for an invalid duration."""
    return time_at(date.moment() + parse_duration(duration), date.zone)


def _date_modify(duration: str, date: Time) -> Time:
    """``dateModify``: the time plus a duration. An invalid duration leaves the time unchanged."""
    try:
        return _must_date_modify(duration, date)
    except FunctionError:
        return date


def _ago(date: Any) -> str:
    """``ago``: the duration from a date to now, in whole seconds."""
    return format_duration(round_duration(_since(date), SECOND) if isinstance(date, (Time, int)) else 0)


def _duration(seconds: Any) -> str:
    """``duration``: seconds, an ``int64`` or digits, as a duration. A plain ``int`` is 0, as in Sprig."""
    count = int(seconds) if isinstance(seconds, Int64) else 0
    if isinstance(seconds, str) and _DIGITS.fullmatch(seconds):
        count = int(seconds)
    return format_duration(wrap_int64(count * SECOND))


def _duration_round(duration: Any) -> str:
    """``durationRound``: only the largest unit, ``2h`` for two hours and ten minutes."""
    size = abs(_nanoseconds(duration))
    return next((f"{size // unit}{letter}" for unit, letter in _UNITS if size > unit), "0s")


def _nanoseconds(duration: Any) -> int:
    if isinstance(duration, Time):
        return _since(duration)
    if isinstance(duration, Int64):
        return int(duration)
    try:
        return parse_duration(duration) if isinstance(duration, str) else 0
    except FunctionError:
        return 0


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "ago": _ago,
    "date": _date,
    "dateInZone": _date_in_zone,
    "dateModify": _date_modify,
    "date_in_zone": _date_in_zone,
    "date_modify": _date_modify,
    "duration": _duration,
    "durationRound": _duration_round,
    "htmlDate": _html_date,
    "htmlDateInZone": _html_date_in_zone,
    "mustDateModify": _must_date_modify,
    "mustToDate": _must_to_date,
    "must_date_modify": _must_date_modify,
    "now": time_now,
    "toDate": _to_date,
    "unixEpoch": _unix_epoch,
}
