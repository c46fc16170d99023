"""The rule for how long a new version of a bundle stays on trial: ``trial: {duration: 10m, runs: 2}``.

A manifest and the configuration of a host can state it. Each key of the configuration takes precedence.
"""

from typing import NamedTuple, Self

import msgspec

from foundation.times import Duration

DEFAULT_DURATION = Duration(300.0)
"""The time for a bundle with health checks, in seconds. A service may start, and end a moment later."""


class Requirement(NamedTuple):
    """Requirements for the end of a trial."""

    seconds: float
    """Minimum time between the first and the last run in order."""
    runs: int
    """Minimum number of runs in order, in a row."""


class Runs(int):
    """A number of runs, at least one."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Raise ``ValueError`` for any other value."""
        if type(value) is not int or value < 1:  # a bool is an int in Python
            raise ValueError(f"is {value!r}, expected a number of runs of at least 1")
        return cls(value)


class TrialRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule as written. ``None`` is the default of a key."""

    duration: Duration | None = None
    runs: Runs | None = None


def requirement_of(*rules: TrialRule | None, has_health_checks: bool) -> Requirement:
    """Return what the rules require. The first rule with a key decides about the key."""
    given = [rule for rule in rules if rule is not None]
    default = DEFAULT_DURATION if has_health_checks else Duration(0.0)
    seconds = next((rule.duration for rule in given if rule.duration is not None), default)
    runs = next((rule.runs for rule in given if rule.runs is not None), 1)
    return Requirement(float(seconds), int(runs))  # plain numbers, as state documents have them
