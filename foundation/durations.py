"""Grammar of durations: ``30s``, ``1h30m``, ``1.5h``, ``7d`` (``docs/input.md``).

* A text is one or more pairs of a number and a unit, without blanks and signs.
* Properties of manifests and the configuration also accept a plain number of seconds (``Duration.parse``).
* Everywhere else a unit is required, because ``90`` could mean seconds or days (``Duration.parse_text``).
"""

import re
from datetime import timedelta
from typing import Self

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


def is_duration(value: object) -> bool:
    """Return whether a value is a text that ``Duration.parse_text`` accepts."""
    try:
        Duration.parse_text(value)
    except ValueError:
        return False
    return True


def _seconds(text: str) -> float | None:
    # findall skips unknown characters, so the parts must add up to the whole text.
    pieces = re.findall(_PART, text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in pieces)


def _invalid(value: object) -> ValueError:
    return ValueError(f"is {value!r}, expected a duration such as '30s', '1h30m' or '7d'")
