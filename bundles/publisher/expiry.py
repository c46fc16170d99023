"""How long what a site signs is good for.

Short for the timestamp, because that bounds how long a mirror can hold hosts on old content without
being noticed; long for the root, because its key is best kept where it takes a person to get at it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta

from bundles.errors import PublishError
from foundation.problems import ProblemCode

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"([1-9][0-9]{0,4})([mhdw])")


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """From signing to expiry, by role."""

    root: timedelta = timedelta(days=365)
    targets: timedelta = timedelta(days=90)
    snapshot: timedelta = timedelta(days=30)
    timestamp: timedelta = timedelta(days=7)

    @classmethod
    def parse(cls, texts: Mapping[str, str], where: str) -> "Lifetimes":
        """From ``{"timestamp": "7d"}`` and the like, defaults for the rest; raises `PublishError`."""
        roles = [field.name for field in fields(cls)]
        for role in texts:
            if role not in roles:
                raise PublishError(
                    where, f"unknown role {role!r}, wanted {', '.join(roles)}", code=ProblemCode.UNKNOWN_KEY
                )
        return cls(**{role: parse_duration(text, f"{where}: {role}") for role, text in texts.items()})

    def of(self, role: str) -> timedelta:
        """The lifetime of one role."""
        value: timedelta = getattr(self, role)
        return value


def parse_duration(text: str, where: str) -> timedelta:
    """``90m``, ``12h``, ``7d`` or ``4w``; raises `PublishError`."""
    match = _DURATION.fullmatch(str(text))
    if not match:
        raise PublishError(
            where,
            f"is {text!r}, wanted a duration such as '12h', '7d' or '4w'",
            code=ProblemCode.INVALID_VALUE,
        )
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
