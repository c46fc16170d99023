"""The rule for how long a new version of a bundle stays on trial: ``trial: {duration: 10m, runs: 2}``.

A manifest, a release and the configuration of a host can state it (``docs/failed-releases.md``). The index of a site
has the rule of a release, so parsing there is strict.
"""

from typing import Any, NamedTuple, Self

import msgspec

from bundles.errors import FormatError
from bundles.format import fields
from foundation.strict_json import excerpt
from foundation.times import Duration

DEFAULT_DURATION = Duration(300.0)
"""The time for a bundle with health checks, in seconds. A service may start, and end a moment later."""
MOST_RUNS = 10_000
LONGEST_TRIAL = 366 * 86_400
"""The limit for a release, in seconds."""


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
        if type(value) is not int or not 1 <= value <= MOST_RUNS:  # a bool is an int in Python
            raise ValueError(f"is {value!r}, expected a number of runs from 1 to {MOST_RUNS}")
        return cls(value)


class TrialRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule as written. ``None`` is the default of a key."""

    duration: Duration | None = None
    runs: Runs | None = None

    @classmethod
    def parse_fields(cls, value: Any, place: str) -> Self:
        """Parse the rule of a release in a signed document. Raises `FormatError` with the place."""
        known = fields.known_fields(value, place, {"duration", "runs"})
        if not known:
            raise FormatError(place, "is empty", expected="duration, runs, or both")
        duration, runs = known.get("duration"), None
        if "duration" in known and (type(duration) is not int or not 0 <= duration <= LONGEST_TRIAL):
            expected = f"from 0 to {LONGEST_TRIAL} whole seconds"
            raise FormatError(f"{place}.duration", f"is {excerpt(duration)}", expected=expected)
        if "runs" in known:
            try:
                runs = Runs.parse(known["runs"])
            except ValueError:
                expected = f"a number from 1 to {MOST_RUNS}"
                raise FormatError(
                    f"{place}.runs", f"is {excerpt(known['runs'])}", expected=expected
                ) from None
        return cls(None if duration is None else Duration(duration), runs)

    def fields(self) -> dict[str, int]:
        """Return the fields in the only spelling of signed documents."""
        duration = {} if self.duration is None else {"duration": int(self.duration)}
        return duration if self.runs is None else {**duration, "runs": int(self.runs)}

    def __str__(self) -> str:
        """Return the rule for people, such as ``10m in 3 runs``."""
        parts = [] if self.duration is None else [f"for {self.duration.text}"]
        if self.runs is not None:
            parts.append(f"in {self.runs} runs" if self.runs > 1 else "in 1 run")
        return " and ".join(parts)


def requirement_of(*rules: TrialRule | None, has_health_checks: bool) -> Requirement:
    """Return what the rules require. The first rule with a key decides about the key."""
    given = [rule for rule in rules if rule is not None]
    default = DEFAULT_DURATION if has_health_checks else Duration(0.0)
    seconds = next((rule.duration for rule in given if rule.duration is not None), default)
    runs = next((rule.runs for rule in given if rule.runs is not None), 1)
    return Requirement(float(seconds), int(runs))  # plain numbers, as state documents have them
