"""The publisher's rules for the next statement of a channel, one function for each thing that a publisher asks.

* Saying the same again changes nothing. It neither completes a rollout that is going on nor resumes a halted one.
* A rollout only grows. Whoever was reached is moved back by a statement that names the older release, and by nothing
  else.
* The hosts that a new rollout has not reached run what the hosts run that the rollout before it had not reached.
* Nothing here touches disk, network or clock: ``now`` is handed in.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from bundles.errors import FormatError, PublishError
from bundles.format.release import STEPS, Release, Rollout, shown_percent
from foundation.problems import ProblemCode

_SECOND = timedelta(seconds=1)
_LONGEST_LINE = timedelta(days=3653)
"""Of a rollout that goes on; what is left of it is a part of this."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """How a publisher wants hosts to be reached; by default all of them at once. Raises `PublishError`."""

    percent: float | None = None
    """Of all hosts, and to stay there."""
    over: timedelta | None = None
    """Growing evenly until all hosts are reached."""
    start: datetime | None = None
    """When it begins to grow, if not now."""
    wave: str | None = None
    """A name that rollouts of several bundles share."""

    def __post_init__(self) -> None:
        useless = self.start if self.over is None else self.percent
        if useless is not None:
            raise PublishError(
                "rollout",
                "wanted a percentage, or a time to grow over and when that starts",
                code=ProblemCode.INVALID_COMMAND,
            )
        if self.wave is not None and self.percent is None and self.over is None:
            raise PublishError(
                "wave",
                "is for a rollout: wanted a percentage, or a time to grow over",
                code=ProblemCode.INVALID_COMMAND,
            )
        try:
            self.begin(None, self.start or datetime(2000, 1, 1, tzinfo=UTC))
        except FormatError as error:
            raise error.under(error.where, PublishError, code=ProblemCode.INVALID_COMMAND) from None

    def begin(self, before: Release | None, now: datetime) -> Rollout | None:
        """A new rollout; ``None`` for all hosts."""
        if self.over is not None:
            start = (self.start or now).replace(microsecond=0)
            return Rollout(start=start, duration=self.over, before=before, wave=self.wave)
        if self.percent is None or self.percent == 100:
            return None
        return Rollout(percent=self.percent, before=before, wave=self.wave)

    def go_on(self, rollout: Rollout, now: datetime) -> Rollout | None:
        """The rollout that takes the place of ``rollout``; without a wish of its own that one, no longer halted."""
        if self.over is not None:
            return _continued(rollout, self.over, now)
        if self.percent is not None:
            following = self.begin(rollout.before, now)
            return following and replace(following, wave=rollout.wave)
        return replace(rollout, halted=False) if rollout.reached(now) < 100 else None


AT_ONCE = RolloutRequest()


@dataclass(frozen=True, slots=True)
class Statement:
    """A channel's word on a bundle, ``before`` and ``after``; ``None`` is nothing."""

    channel: str
    before: Release | None
    after: Release | None
    now: datetime

    @property
    def changed(self) -> bool:
        return self.before != self.after


def published(current: Release | None, release: Release, request: RolloutRequest, now: datetime) -> Release:
    """``release``, new or from another channel, takes the place of ``current``; raises `PublishError`."""
    if current is not None and for_all(current) == release:
        return _again(current, request, now)
    if request.begin(None, now) is None:
        return release
    return replace(release, rollout=request.begin(_before(current, release, now), now))


def steered(current: Release, request: RolloutRequest, now: datetime, *, resume: bool = False) -> Release:
    """The rollout of ``current`` grows as ``request`` says; raises `PublishError`. At 100 % it is over."""
    rollout = _rollout(current)
    reached = rollout.reached(now)
    if rollout.halted and not resume:
        raise PublishError(str(current), f"is halted at {shown_percent(reached)}; --resume lets it go on")
    following = replace(current, rollout=request.go_on(rollout, now))
    if (wanted := reached_by(following, now)) < reached:
        raise PublishError(
            str(current),
            f"has reached {shown_percent(reached)} of the hosts, {shown_percent(wanted)} was asked for: a rollout never"
            " shrinks; `puller site halt` stops it, `puller site back` names the release before",
        )
    return following


def halted(current: Release, now: datetime) -> Release:
    """The rollout of ``current`` takes no more hosts from now on; raises `PublishError`."""
    rollout = _rollout(current)
    if rollout.halted:
        return current
    stopped = Rollout(percent=rollout.reached(now), halted=True, before=rollout.before, wave=rollout.wave)
    return replace(current, rollout=stopped)


def release_before(current: Release) -> Release:
    """The release that hosts ran before the rollout of ``current``; raises `PublishError`."""
    if current.rollout is None or current.rollout.before is None:
        raise PublishError(
            str(current), "does not say what hosts ran before it; give the version to roll back to"
        )
    return current.rollout.before


def rolled_back(current: Release, release: Release, now: datetime) -> Release:
    """``release`` for all hosts at once; raises `PublishError` when that would complete the rollout of ``current``."""
    if release == for_all(current) and is_under_way(current, now):
        reached = shown_percent(reached_by(current, now))
        raise PublishError(str(current), f"is on its way at {reached}; `puller site rollout` steers it")
    return release


def for_all(release: Release) -> Release:
    """``release`` for all hosts at once."""
    return replace(release, rollout=None)


def reached_by(release: Release, now: datetime) -> float:
    """Percent of hosts that ``release`` has reached."""
    return 100.0 if release.rollout is None else release.rollout.reached(now)


def is_under_way(release: Release, now: datetime) -> bool:
    """Whether some hosts should not run ``release`` yet."""
    return release.rollout is not None and (release.rollout.halted or reached_by(release, now) < 100)


def _again(current: Release, request: RolloutRequest, now: datetime) -> Release:
    reached = reached_by(current, now)
    if current.rollout is not None and current.rollout.halted:
        raise PublishError(
            str(current), f"is halted at {shown_percent(reached)}; `puller site rollout --resume` goes on"
        )
    if reached_by(replace(current, rollout=request.begin(None, now)), now) > reached:
        raise PublishError(
            str(current),
            f"is on its way, now at {shown_percent(reached)} of the hosts; `puller site rollout` lets it grow",
        )
    return current


def _before(current: Release | None, release: Release, now: datetime) -> Release | None:
    """The release that hosts run which a new rollout of ``release`` has not reached."""
    if current is None:
        return None
    if current.rollout is None or not is_under_way(current, now):
        return for_all(current)
    if current.rollout.before == release:
        raise PublishError(
            str(release),
            f"is what all hosts run that {current} has not reached; `puller site back` gives it to the others",
        )
    return current.rollout.before


def _rollout(current: Release) -> Rollout:
    if current.rollout is None:
        raise PublishError(str(current), "is for all hosts already: no rollout of it is going on")
    return current.rollout


def _continued(rollout: Rollout, over: timedelta, now: datetime) -> Rollout | None:
    """From what ``rollout`` has reached evenly to all hosts: on a line that began in the past."""
    steps = round(rollout.reached(now) * STEPS / 100)
    if steps == STEPS:
        return None
    duration = _whole_seconds(over * STEPS / (STEPS - steps))
    if duration > _LONGEST_LINE:
        where = shown_percent(rollout.reached(now))
        raise PublishError("over", f"{over} is too long for the rest of a rollout that has reached {where}")
    start = now.replace(microsecond=0) - _whole_seconds(duration * steps / STEPS)
    return Rollout(start=start, duration=duration, before=rollout.before, wave=rollout.wave)


def _whole_seconds(duration: timedelta) -> timedelta:
    """Rounded up."""
    return -(-duration // _SECOND) * _SECOND
