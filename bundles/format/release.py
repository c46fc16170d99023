"""Releases, and how each reaches its hosts: all at once, or in a rollout that grows.

* A host's place depends on its name, the bundle and the version, and on nothing else: the same for ever and on
  every machine, evenly spread, and in another order for each release. Rollouts of one wave have one order: there the
  name of the wave stands for bundle and version, and releases that belong together reach the same hosts.
* A rollout that grows never gives up a host that it has reached.
* Nothing here touches disk, network or clock: ``now`` is handed in.

Percentages are counted in whole hundredths, so that what is compared, written and shown is the same number.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Self

import msgspec

from bundles.errors import FormatError
from bundles.format.identity import parse_name, parse_version
from foundation.strict_json import excerpt
from foundation.timestamps import minute_text, zulu_text

STEPS = 10_000
"""Places there are, and steps in which a rollout grows: hundredths of a percent."""
LONGEST_ROLLOUT = timedelta(days=36_525)
"""Far from what anybody waits for, and small enough that no date overflows."""

# Not compiled here: few releases go out in steps.
_PERCENT = r"(?:0|[1-9][0-9]?)\.(?:[0-9][1-9]|[1-9])"
_TIME = r"2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout: ``percent`` of all hosts, or from none at ``start`` evenly to all of them ``duration`` later.

    ``before`` is what the hosts not reached should run; ``None`` when there was nothing. Raises `FormatError`,
    with the name of the field, for what cannot be a rollout.
    """

    percent: float | None = None
    start: datetime | None = None
    """UTC, whole seconds."""
    duration: timedelta | None = None
    """Whole seconds."""
    halted: bool = False
    """Hosts that run the release stay on it, no other gets it. Says how far it came, so it has a ``percent``."""
    before: "Release | None" = None
    wave: str | None = None
    """A name that rollouts of several bundles share."""

    def __post_init__(self) -> None:
        given = [field is not None for field in (self.percent, self.start, self.duration)]
        if given not in ([True, False, False], [False, True, True]):
            raise FormatError("percent", "wanted either this, or both 'start' and 'duration'")
        if self.percent is not None:
            _check_percent(self.percent)
        if self.start is not None and self.duration is not None:
            _check_time(self.start, self.duration)
        if self.halted and self.percent is None:
            raise FormatError("halted", "is true, and 'percent' does not say how far the rollout came")
        if self.before is not None and self.before.rollout is not None:
            raise FormatError("before", "has a rollout of its own", expected="a release for all hosts")

    @classmethod
    def parse(cls, fields: Mapping[str, Any], before: "Release | None", wave: str | None = None) -> Self:
        """From the fields of the signed index; raises `FormatError` with the name of one."""
        return cls(
            percent=_given(fields, "percent", _parse_percent),
            start=_given(fields, "start", parse_time),
            duration=_given(fields, "duration", _parse_seconds),
            halted=_given(fields, "halted", _parse_flag) or False,
            before=before,
            wave=wave,
        )

    def fields(self) -> dict[str, Any]:
        """As the index writes it, in its one spelling."""
        halted = {"halted": True} if self.halted else {}
        before = {"before": self.before.version} if self.before is not None else {}
        wave = {"wave": self.wave} if self.wave is not None else {}
        return {**self._growth(), **halted, **before, **wave}

    def _growth(self) -> dict[str, Any]:
        if self.start is None or self.duration is None:
            return {"percent": _written_percent(self.percent or 0)}
        seconds = self.duration // timedelta(seconds=1)
        return {"start": zulu_text(self.start), "duration": seconds}

    def reached(self, now: datetime) -> float:
        """Percent of hosts that this has reached by ``now``, in whole hundredths."""
        if self.start is None or self.duration is None:
            return self.percent or 0.0
        elapsed = min(max(now - self.start, timedelta(0)), self.duration)
        return elapsed * STEPS // self.duration / 100

    def takes(self, at: float, now: datetime) -> bool:
        """Whether a host whose `place` is ``at`` should run the release, if it does not run it yet."""
        return not self.halted and at < self.reached(now)

    def held(self, at: float, now: datetime) -> str:
        """Why a host whose `place` is ``at`` is not taken; goes on after the name of the release."""
        reached = shown_percent(self.reached(now))
        if not self.halted:
            return f"reaches this host at {shown_percent(at + 0.01)}, now {reached}{self._expected(at)}"
        if at < self.reached(now):
            return f"is halted by the publisher at {reached}, before this host took it"
        return f"is halted by the publisher at {reached}, this host's place is {shown_percent(at)}"

    def reaches(self, at: float) -> datetime | None:
        """When a rollout that grows by itself gets to a `place`; ``None`` for one that does not grow."""
        if self.start is None or self.duration is None:
            return None
        needed = round(at * 100) + 1
        return self.start + (self.duration * needed + timedelta.resolution * (STEPS - 1)) // STEPS

    def _expected(self, at: float) -> str:
        if (moment := self.reaches(at)) is None:
            return ""
        minute = moment.replace(second=0, microsecond=0)
        minute += timedelta(minutes=minute < moment)
        return f", at about {minute_text(minute)}"


class Release(msgspec.Struct, frozen=True):
    """One version of one bundle."""

    bundle: str
    version: str
    rollout: Rollout | None = None
    """How it reaches hosts; ``None`` means all of them at once."""

    @classmethod
    def of(cls, bundle: str, version: str) -> "Release":
        """The release of this name and version, for all hosts; raises `FormatError`."""
        return cls(parse_name(bundle), parse_version(version))

    def chosen_for(self, host: str, now: datetime, current: bool) -> "Selection":
        """The selection for ``host`` when its channel names this; ``current`` says that it runs this already.

        Then it stays on it, whatever the rollout says: growing and halting move no host back.
        """
        if self.rollout is None or current:
            return Selection(self)
        at = self.place(host)
        if self.rollout.takes(at, now):
            return Selection(self)
        waits_until = None if self.rollout.halted else self.rollout.reaches(at)
        return Selection(self.rollout.before, f"{self} {self.rollout.held(at, now)}", waits_until)

    def place(self, host: str) -> float:
        """Where ``host`` stands in the queue for this."""
        if self.rollout is not None and self.rollout.wave is not None:
            return place_in_wave(host, self.rollout.wave)
        return place(host, self.bundle, self.version)

    def fields(self) -> dict[str, Any]:
        """As the index writes it, in its one spelling."""
        fields: dict[str, Any] = {"version": self.version}
        return fields if self.rollout is None else {**fields, "rollout": self.rollout.fields()}

    def __str__(self) -> str:
        return f"{self.bundle} {self.version}"


class Selection(msgspec.Struct, frozen=True):
    """The release that one host should run, ``None`` for whatever it has.

    ``held`` is a sentence, where that is not what its channel names: why not.
    """

    release: Release | None
    held: str = ""
    waits_until: datetime | None = None
    """When its rollout reaches the host, where that can be told."""


def place(host: str, bundle: str, version: str) -> float:
    """Where ``host`` stands in the queue for one release: from 0 to 99.99, in whole hundredths.

    The first 15 hexadecimal digits of the SHA-256 of three lines, bundle, version and host, modulo `STEPS`. The
    first two hold no line end, so no two hosts or releases make the same text.
    """
    return _place(f"{bundle}\n{version}\n{host}\n")


def place_in_wave(host: str, wave: str) -> float:
    """Where ``host`` stands in the queue for all releases of one wave: as `place`, of the lines ``wave NAME`` and host.

    No bundle's name holds a space, so that no wave has the text of a release.
    """
    return _place(f"wave {wave}\n{host}\n")


def _place(text: str) -> float:
    import hashlib

    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
    return int(digest[:15], 16) % STEPS / 100


def shown_percent(percent: float) -> str:
    """For people: ``10 %``, ``12.5 %``."""
    return f"{round(percent, 2):g} %"


def _check_percent(percent: float) -> None:
    if not 0 <= percent <= 100 or round(percent * 100) / 100 != percent:  # NaN is not between anything
        raise FormatError(
            "percent", f"is {percent}", expected="a number from 0 to 100 with at most two decimals"
        )


def _check_time(start: datetime, duration: timedelta) -> None:
    if start.utcoffset() != timedelta(0) or start.microsecond or not 2000 <= start.year < 3000:
        raise FormatError("start", f"is {start}", expected="whole seconds in UTC, in this millennium")
    if not timedelta(seconds=1) <= duration <= LONGEST_ROLLOUT or duration.microseconds:
        most = LONGEST_ROLLOUT // timedelta(seconds=1)
        raise FormatError(
            "duration", f"is {duration.total_seconds():g}", expected=f"from 1 to {most} whole seconds"
        )


def _given(fields: Mapping[str, Any], key: str, parse: Callable[[str, Any], Any]) -> Any:
    return parse(key, fields[key]) if key in fields else None


def _parse_percent(key: str, value: Any) -> float:
    """A whole number, or text such as ``"12.5"``: JSON that everybody reads alike has no fractions."""
    if type(value) is int:  # not True
        return float(value)
    if isinstance(value, str) and re.fullmatch(_PERCENT, value):
        return float(value)
    raise FormatError(key, f"is {excerpt(value)}", expected='a whole number, or text such as "12.5"')


def _written_percent(percent: float) -> int | str:
    return int(percent) if percent == int(percent) else f"{percent:.2f}".rstrip("0")


def parse_time(key: str, value: Any) -> datetime:
    """The time that a signed document spells; raises `FormatError` at ``key``."""
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
