"""Lifetimes of a site's signatures.

The timestamp has a short lifetime, which limits how long a mirror can withhold new content unnoticed. The root has a
long one, because its key should be kept where access requires a person.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from bundles.errors import PublishError
from foundation.durations import Duration
from foundation.problems import ProblemCode

DEFAULT_LIFETIMES = {"root": "365d", "targets": "90d", "snapshot": "30d", "timestamp": "7d"}
"""By role. ``puller site init`` writes them into ``site.yaml``. They are also the defaults for missing roles."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Time from signing to expiry, by role."""

    root: timedelta
    targets: timedelta
    snapshot: timedelta
    timestamp: timedelta

    @classmethod
    def parse(cls, texts: Mapping[str, str], where: str) -> "Lifetimes":
        """Parse ``{"timestamp": "7d"}`` and the like. Other roles have their defaults. Raises `PublishError`."""
        for role in texts:
            if role not in DEFAULT_LIFETIMES:
                roles = ", ".join(DEFAULT_LIFETIMES)
                what = f"unknown role {role!r}"
                raise PublishError(where, what, code=ProblemCode.UNKNOWN_KEY, expected=roles)
        all_texts = {**DEFAULT_LIFETIMES, **texts}
        return cls(**{role: parse_duration(text, f"{where}: {role}") for role, text in all_texts.items()})

    def of(self, role: str) -> timedelta:
        """Return the lifetime of one role."""
        value: timedelta = getattr(self, role)
        return value


def parse_duration(text: object, where: str) -> timedelta:
    """Parse a duration of more than zero. Raises `PublishError`."""
    try:
        return Duration.parse_text(text, above_zero=True).delta
    except ValueError as error:
        raise PublishError(where, str(error), code=ProblemCode.INVALID_VALUE) from None
