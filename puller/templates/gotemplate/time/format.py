"""Times written by example: layouts of Go such as ``2006-01-02 15:04:05 MST``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from puller.templates.gotemplate.time.clock import MONTHS, WEEKDAYS, Clock

LAYOUT_PART: Final = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST"
    r"|002|0[1-6]|15|1|2006|__2|_2(?!006)|2|3|4|5|PM|pm"
    r"|(?P<zone>[Z-]07(?:0000|:00:00|00|:00)?)"
    r"|(?P<fraction>[.,](?:0+|9+)(?![0-9]))"
)
"""A part of a layout that stands for a part of a time. What is no such part stands for itself."""


def format_clock(clock: Clock, layout: str) -> str:
    """The moment in the form of the layout."""
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
