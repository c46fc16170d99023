"""Times read by example: a text in the form of a layout of Go, such as ``2006-01-02 15:04:05 MST``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from puller.templates.errors import FunctionError
from puller.templates.gotemplate.time.clock import (
    DAY_SECONDS,
    MONTHS,
    UTC_ZONE,
    WEEKDAYS,
    FixedZone,
    Zone,
    date_on,
    days_in_month,
    days_since_epoch,
)
from puller.templates.gotemplate.time.format import LAYOUT_PART
from puller.templates.gotemplate.time.times import Time, time_on

_ZONE_NAME: Final = re.compile(
    r"ChST|MeST|GMT(?:[+-](?:[0-9]|1[0-9]|2[0-3])(?![0-9]))?|[+-](?:[0-9]|1[0-9]|2[0-3])(?![0-9])"
    r"|WITA(?![A-Z])|[A-Z]{3}(?![A-Z])|[A-Z]{3}T(?![A-Z])|[A-Z]{4}T(?![A-Z])"
)
_NANOSECOND_DIGITS: Final = 9


def parse_time(layout: str, text: str, zone: Zone) -> Time:
    """The time that a text in the form of the layout means; in ``zone`` unless it names one. Raises FunctionError."""
    reader = _Reader(layout, text)
    reader.read()
    return reader.time(zone)


class _Reader:
    def __init__(self, layout: str, text: str) -> None:
        self.layout = layout
        self.text = text
        self.position = 0
        self.found: dict[str, int] = {}
        self.half = ""  # AM or PM
        self.is_utc = False
        self.zone_name = ""

    def _error(self, why: str) -> FunctionError:
        return FunctionError(f"{self.text!r} is not a time in the form {self.layout!r}: {why}")

    def read(self) -> None:
        """Go through the layout, taking from the text what each part asks for."""
        end = 0
        for part in LAYOUT_PART.finditer(self.layout):
            self._skip(self.layout[end : part.start()])
            end = part.end()
            self._read_part(part)
        self._skip(self.layout[end:])
        if self.position < len(self.text):
            raise self._error(f"extra text {self.text[self.position :]!r}")

    def _skip(self, literal: str) -> None:
        """Text between the parts; a space of the layout stands for any number of spaces, also none at the end."""
        for word in re.findall(r" +|[^ ]+", literal):
            rest = self.text[self.position :]
            if word[0] == " ":
                if rest and rest[0] != " ":
                    raise self._error(f"no space before {rest!r}")
                self.position += len(rest) - len(rest.lstrip(" "))
            elif rest.startswith(word):
                self.position += len(word)
            else:
                raise self._error(f"{word!r} is missing before {rest!r}")

    def _take(self, pattern: str, what: str) -> str:
        match = re.compile(pattern).match(self.text, self.position)
        if match is None:
            raise self._error(f"no {what} at {self.text[self.position :]!r}")
        self.position = match.end()
        return match[0]

    def _number(self, key: str, pattern: str, least: int, most: int) -> None:
        number = int(self._take(pattern, key))
        if not least <= number <= most:
            raise self._error(f"{key} out of range")
        self.found[key] = number

    def _name(self, names: Sequence[str], length: int | None, what: str) -> int:
        rest = self.text[self.position :].lower()
        for index, name in enumerate(names):
            if rest.startswith(name[:length].lower()):
                self.position += len(name[:length])
                return index
        raise self._error(f"no {what} at {rest!r}")

    def _read_part(self, part: re.Match[str]) -> None:
        if part["zone"]:
            self._read_offset(part["zone"])
        elif part["fraction"]:
            self._read_fraction(part["fraction"])
        elif part[0] in _NUMBERS:
            self._number(*_NUMBERS[part[0]])
            if part[0] in ("5", "05"):
                self._read_unasked_fraction(part.end())
        else:
            self._read_word(part[0])

    def _read_word(self, part: str) -> None:
        match part:
            case "January" | "Jan":
                self.found["month"] = self._name(MONTHS, 3 if part == "Jan" else None, "month") + 1
            case "Monday" | "Mon":
                self._name(WEEKDAYS, 3 if part == "Mon" else None, "day of the week")
            case "PM" | "pm":
                self.half = self._take("[AP]M" if part == "PM" else "[ap]m", "half of the day").upper()
            case "06":
                year = int(self._take("[0-9]{2}", "year"))
                # As in Go: in some zones Unix time starts in 1969.
                self.found["year"] = year + (1900 if year >= 69 else 2000)
            case "MST":
                self._read_zone_name()

    def _read_zone_name(self) -> None:
        if self.text.startswith("UTC", self.position):
            self.position += 3
            self.is_utc = True
        else:
            self.zone_name = self._take(_ZONE_NAME.pattern, "zone")

    def _read_offset(self, part: str) -> None:
        if part[0] == "Z" and self.text.startswith("Z", self.position):
            self.position += 1
            self.is_utc = True
            return
        colon = ":" if ":" in part else ""
        count = len(part.replace(":", "")) // 2
        offset = self._take("[+-]" + colon.join(["[0-9]{2}"] * count), "offset")
        hours, minutes, seconds = [*map(int, re.findall("[0-9]{2}", offset)), 0, 0][:3]
        if hours > 24 or minutes > 60 or seconds > 60:
            raise self._error("offset out of range")
        self.found["offset"] = (hours * 3600 + minutes * 60 + seconds) * (-1 if offset[0] == "-" else 1)

    def _read_fraction(self, part: str) -> None:
        if part[1] == "0":
            self._keep_fraction(self._take(f"[.,][0-9]{{{len(part) - 1}}}", "fraction of a second"))
        elif re.compile("[.,][0-9]").match(self.text, self.position):
            self._keep_fraction(self._take("[.,][0-9]+", "fraction of a second"))

    def _read_unasked_fraction(self, end: int) -> None:
        """Seconds may have a fraction even if the layout shows none."""
        following = LAYOUT_PART.match(self.layout, end)
        if not (following and following["fraction"]):
            self._read_fraction(".9")

    def _keep_fraction(self, digits: str) -> None:
        self.found["nanosecond"] = int(digits[1 : _NANOSECOND_DIGITS + 1].ljust(_NANOSECOND_DIGITS, "0"))

    # What was found --------------------------------------------------------------------------------------------------

    def time(self, zone: Zone) -> Time:
        """Put together what was read."""
        seconds = self._days() * DAY_SECONDS + self._hour() * 3600
        seconds += self.found.get("minute", 0) * 60 + self.found.get("second", 0)
        nanosecond = self.found.get("nanosecond", 0)
        if self.is_utc:
            return Time(seconds, nanosecond, UTC_ZONE)
        if "offset" in self.found:
            return self._time_at_offset(seconds, nanosecond, zone)
        if self.zone_name:
            return self._time_in_named_zone(seconds, nanosecond, zone)
        return time_on(seconds, nanosecond, zone)

    def _days(self) -> int:
        year = self.found.get("year", 0)
        month, day = self.found.get("month", 1), self.found.get("day", 1)
        if "day of the year" in self.found:
            return self._day_of_year(year)
        if not 1 <= day <= days_in_month(year, month):
            raise self._error("day out of range")
        return days_since_epoch(year, month, day)

    def _day_of_year(self, year: int) -> int:
        days = days_since_epoch(year, 1, self.found["day of the year"])
        shown, month, day = date_on(days)
        if shown != year:
            raise self._error("day of the year out of range")
        if self.found.get("month", month) != month or self.found.get("day", day) != day:
            raise self._error("the day of the year is another day")
        return days

    def _hour(self) -> int:
        hour = self.found.get("hour", 0)
        if self.half == "PM" and hour < 12:
            return hour + 12
        return 0 if self.half == "AM" and hour == 12 else hour

    def _time_at_offset(self, seconds: int, nanosecond: int, zone: Zone) -> Time:
        moment = seconds - self.found["offset"]
        name, offset = zone.at(moment)
        # The zone itself is kept where it agrees: it prints with its name, and knows its summer time.
        if offset == self.found["offset"] and self.zone_name in ("", name):
            return Time(moment, nanosecond, zone)
        return Time(moment, nanosecond, FixedZone(self.zone_name, self.found["offset"]))

    def _time_in_named_zone(self, seconds: int, nanosecond: int, zone: Zone) -> Time:
        name, offset = zone.at(seconds)
        if name == self.zone_name:
            return Time(seconds - offset, nanosecond, zone)
        # As in Go: a name that the zone does not have stands for UTC, unless it says its offset: ``GMT+3``.
        hours = int(self.zone_name[3:]) if len(self.zone_name) > 3 and self.zone_name.startswith("GMT") else 0
        return Time(seconds - hours * 3600, nanosecond, FixedZone(self.zone_name, hours * 3600))


_NUMBERS: Final = {
    "2006": ("year", "[0-9]{4}", 0, 9999),
    "1": ("month", "[0-9]{1,2}", 1, 12),
    "01": ("month", "[0-9]{2}", 1, 12),
    "2": ("day", "[0-9]{1,2}", 0, 99),
    "_2": ("day", " ?[0-9]{1,2}", 0, 99),
    "02": ("day", "[0-9]{2}", 0, 99),
    "__2": ("day of the year", " {0,2}[0-9]{1,3}", 1, 366),
    "002": ("day of the year", "[0-9]{3}", 1, 366),
    "15": ("hour", "[0-9]{1,2}", 0, 23),
    "3": ("hour", "[0-9]{1,2}", 0, 12),
    "03": ("hour", "[0-9]{2}", 0, 12),
    "4": ("minute", "[0-9]{1,2}", 0, 59),
    "04": ("minute", "[0-9]{2}", 0, 59),
    "5": ("second", "[0-9]{1,2}", 0, 59),
    "05": ("second", "[0-9]{2}", 0, 59),
}
