"""Durations: text with units, or a number, to seconds."""

import re

_PART = r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(ms|us|µs|ns|[smhdwMy])"
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


class Duration(float):
    """A time in seconds, written ``30s``, ``5m``, ``1h30m``, ``500ms`` or as a number of seconds.

    The units (``docs/resources/exec.md``): ``ns us ms s m h``, and
    ``d w M y`` for days, weeks, months of 30 and years of 365 days.
    """

    @classmethod
    def parse(cls, value: object) -> "Duration":
        """Read a text or a number of seconds; raises ``ValueError``, also for what is below zero."""
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
            return cls(value)
        if isinstance(value, str):
            text = value.strip()
            if text.isascii() and text.isdecimal():
                return cls(int(text))
            # findall passes over what it does not know, so all of the text must come out again.
            parts = re.findall(_PART, text)
            if parts and "".join(number + unit for number, unit in parts) == text:
                return cls(sum(float(number) * _SECONDS[unit] for number, unit in parts))
        raise ValueError(f"is {value!r}, wanted a duration such as '30s' or '5m'")
