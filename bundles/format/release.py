"""Releases for all hosts at once, or with a rollout that grows, and the rule of their trial.

* The place of a host depends only on its name, the bundle and the version. Places are permanent, identical on every
  machine, evenly spread, and different for each release. Rollouts of one wave share one order: the name of the wave
  replaces bundle and version, and releases that belong together reach the same hosts.
* A growing rollout keeps every host that it has reached.
* A manifest, a release and the configuration of a host can state how long a new version stays on trial, as in
  ``trial: {duration: 10m, runs: 2}`` (``docs/failed-releases.md``). The index of a site has the rule of a release, so
  parsing there is strict.
* This module does not use disk, network or clock. The caller passes ``now``.

Percentages are counted in whole hundredths, so that compared, written and displayed values are identical.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

import msgspec

from bundles.digests import sha256
from bundles.errors import FormatError
from bundles.format import fields
from bundles.format.fields import parse_name, parse_version
from foundation.strict_json import excerpt
from foundation.times import Duration, zulu_text

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


STEPS = 10_000
"""Number of places, and of steps in which a rollout grows: hundredths of a percent."""
LONGEST_ROLLOUT = timedelta(days=36_525)
"""Longer than any real rollout, and short enough that no date overflows."""

# Not compiled at import, because few releases have rollouts.
_PERCENT = r"(?:0|[1-9][0-9]?)\.(?:[0-9][1-9]|[1-9])"
_TIME = r"2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout to ``percent`` of all hosts, or evenly from 0 % at ``start`` to 100 % after ``duration``.

    ``before`` is the release for all other hosts, or ``None``. Raises `FormatError` with the name of the field for an
    invalid rollout.
    """

    percent: float | None = None
    start: datetime | None = None
    """UTC, whole seconds."""
    duration: timedelta | None = None
    """Whole seconds."""
    halted: bool = False
    """Hosts that run the release keep it, and other hosts do not get it. Requires ``percent``, the share reached."""
    before: "Release | None" = None
    wave: str | None = None
    """A name that rollouts of several bundles share."""

    def __post_init__(self) -> None:
        provided = [field is not None for field in (self.percent, self.start, self.duration)]
        if provided not in ([True, False, False], [False, True, True]):
            raise FormatError("percent", "expected either 'percent', or both 'start' and 'duration'")
        if self.percent is not None:
            _check_percent(self.percent)
        if self.start is not None and self.duration is not None:
            _check_time(self.start, self.duration)
        if self.halted and self.percent is None:
            raise FormatError("halted", "is true, and 'percent' with the reached share is missing")
        if self.before is not None and self.before.rollout is not None:
            raise FormatError("before", "has a rollout of its own", expected="a release for all hosts")

    @classmethod
    def parse(cls, fields: Mapping[str, Any], before: "Release | None", wave: str | None = None) -> Self:
        """Parse the fields of the signed index. Raises `FormatError` with the name of a field."""
        return cls(
            percent=_given(fields, "percent", _parse_percent),
            start=_given(fields, "start", parse_time),
            duration=_given(fields, "duration", _parse_seconds),
            halted=_given(fields, "halted", _parse_flag) or False,
            before=before,
            wave=wave,
        )

    def fields(self) -> dict[str, Any]:
        """Return the fields in the only spelling of the index."""
        halted = {"halted": True} if self.halted else {}
        wave = {"wave": self.wave} if self.wave is not None else {}
        return {**self._growth(), **halted, **self._before_fields(), **wave}

    def _before_fields(self) -> dict[str, Any]:
        if self.before is None:
            return {}
        trial = {} if self.before.trial is None else {"before_trial": self.before.trial.fields()}
        return {"before": self.before.version, **trial}

    def _growth(self) -> dict[str, Any]:
        if self.start is None or self.duration is None:
            return {"percent": _written_percent(self.percent or 0)}
        seconds = self.duration // timedelta(seconds=1)
        return {"start": zulu_text(self.start), "duration": seconds}

    def reached(self, now: datetime) -> float:
        """Return the percentage of hosts reached by ``now``, in whole hundredths."""
        if self.start is None or self.duration is None:
            return self.percent or 0.0
        elapsed = min(max(now - self.start, timedelta(0)), self.duration)
        return elapsed * STEPS // self.duration / 100

    def takes(self, at: float, now: datetime) -> bool:
        """Return whether a host whose `place` is ``at`` should switch to the release."""
        return not self.halted and at < self.reached(now)

    def reaches(self, at: float) -> datetime | None:
        """Return when the rollout reaches a `place`. ``None`` if it does not grow."""
        if self.start is None or self.duration is None:
            return None
        needed = round(at * 100) + 1
        return self.start + (self.duration * needed + timedelta.resolution * (STEPS - 1)) // STEPS


class Release(msgspec.Struct, frozen=True):
    """One version of one bundle."""

    bundle: str
    version: str
    rollout: Rollout | None = None
    """``None``: all hosts at once."""
    trial: TrialRule | None = None
    """How long it stays on trial on each host. ``None``: the rule of its manifest."""

    @classmethod
    def of(cls, bundle: str, version: str) -> "Release":
        """Return the release of this name and version, for all hosts. Raises `FormatError`."""
        return cls(parse_name(bundle), parse_version(version))

    def chosen_for(self, host: str, now: datetime, current: bool) -> "Selection":
        """Return the selection for ``host`` if its channel names this release. ``current``: the host already runs it.

        A host that runs the release keeps it: neither growth nor a halt moves a host back.
        """
        if self.rollout is None or current:
            return Selection(self)
        at = self.place(host)
        if self.rollout.takes(at, now):
            return Selection(self)
        return Selection(self.rollout.before, self.rollout.reaches(at))

    def place(self, host: str) -> float:
        """Return the place of ``host`` in the rollout order of this release."""
        if self.rollout is not None and self.rollout.wave is not None:
            return place_in_wave(host, self.rollout.wave)
        return place(host, self.bundle, self.version)

    def fields(self) -> dict[str, Any]:
        """Return the fields in the only spelling of the index."""
        rollout = {} if self.rollout is None else {"rollout": self.rollout.fields()}
        trial = {} if self.trial is None else {"trial": self.trial.fields()}
        return {"version": self.version, **rollout, **trial}

    def __str__(self) -> str:
        return f"{self.bundle} {self.version}"


class Selection(msgspec.Struct, frozen=True):
    """The release that one host should run. ``None``: the installed release."""

    release: Release | None
    waits_until: datetime | None = None
    """When the rollout of the release that the channel names reaches the host, if known."""


def place(host: str, bundle: str, version: str) -> float:
    """Return the place of ``host`` in the rollout order of one release: from 0 to 99.99, in whole hundredths.

    It is the first 15 hexadecimal digits of the SHA-256 of three lines, bundle, version and host, modulo `STEPS`.
    Bundle and version cannot contain a line end, so the text is unique for each host and release.
    """
    return _place(f"{bundle}\n{version}\n{host}\n")


def place_in_wave(host: str, wave: str) -> float:
    """Return the place of ``host`` in all releases of one wave: like `place`, of the lines ``wave NAME`` and host.

    The name of a bundle cannot contain a space, so the text of a wave differs from the text of every release.
    """
    return _place(f"wave {wave}\n{host}\n")


def _place(text: str) -> float:
    digest = sha256(text.encode(errors="surrogateescape")).hexdigest()
    return int(digest[:15], 16) % STEPS / 100


def shown_percent(percent: float) -> str:
    """Format a percentage for users: ``10 %``, ``12.5 %``."""
    return f"{round(percent, 2):g} %"


def _check_percent(percent: float) -> None:
    if not 0 <= percent <= 100 or round(percent * 100) / 100 != percent:  # false for NaN
        raise FormatError(
            "percent", f"is {percent}", expected="a number from 0 to 100 with at most two decimals"
        )


def _check_time(start: datetime, duration: timedelta) -> None:
    if start.utcoffset() != timedelta(0) or start.microsecond or not 2000 <= start.year < 3000:
        raise FormatError("start", f"is {start}", expected="whole seconds in UTC, from year 2000 to 2999")
    if not timedelta(seconds=1) <= duration <= LONGEST_ROLLOUT or duration.microseconds:
        most = LONGEST_ROLLOUT // timedelta(seconds=1)
        raise FormatError(
            "duration", f"is {duration.total_seconds():g}", expected=f"from 1 to {most} whole seconds"
        )


def _given(fields: Mapping[str, Any], key: str, parse: Callable[[str, Any], Any]) -> Any:
    return parse(key, fields[key]) if key in fields else None


def _parse_percent(key: str, value: Any) -> float:
    """Parse a whole number, or text such as ``"12.5"``. JSON parsers disagree about fractions, so they are text."""
    if type(value) is int:  # excludes True
        return float(value)
    if isinstance(value, str) and re.fullmatch(_PERCENT, value):
        return float(value)
    raise FormatError(key, f"is {excerpt(value)}", expected='a whole number, or text such as "12.5"')


def _written_percent(percent: float) -> int | str:
    return int(percent) if percent == int(percent) else f"{percent:.2f}".rstrip("0")


def parse_time(key: str, value: Any) -> datetime:
    """Parse a time of a signed document. Raises `FormatError` at ``key``."""
    if isinstance(value, str) and re.fullmatch(_TIME, value):
        with contextlib.suppress(ValueError):  # such as the 30th of February
            return datetime.fromisoformat(value)
    raise FormatError(key, f"is {excerpt(value)}", expected='a time in UTC such as "2026-11-20T12:00:00Z"')


def _parse_seconds(key: str, value: Any) -> timedelta:
    longest = LONGEST_ROLLOUT // timedelta(seconds=1)
    if type(value) is not int or not 1 <= value <= longest:
        raise FormatError(key, f"is {excerpt(value)}", expected=f"from 1 to {longest} whole seconds")
    return timedelta(seconds=value)


def _parse_flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise FormatError(key, f"is {excerpt(value)}", expected="true or false")
    return value
