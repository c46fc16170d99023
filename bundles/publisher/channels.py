"""Channel statements about published releases: promote, grow, halt, roll back, withdraw.

Each operation publishes one new signed statement of the site. The rules for the next statement are one function for
each operation:

* Repeating a statement changes nothing. A repetition neither completes a running rollout nor resumes a halted one.
* A rollout only grows. Only a statement that names the older release moves hosts back.
* Hosts outside a new rollout run the release of the hosts outside the rollout before it.
* The rules do not use disk, network or clock. The caller passes the time as ``now``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from bundles.errors import FormatError, PublishError
from bundles.format.fields import parse_name, parse_version
from bundles.format.index import ChannelEntry, History, parse_channel
from bundles.format.release import STEPS, Release, Rollout, TrialRule, shown_percent
from bundles.publisher.edition import Edition
from bundles.publisher.pruning import announce
from bundles.publisher.published import Record
from bundles.publisher.signing_keys import Passphrase
from bundles.publisher.site import Site
from foundation.problems import ProblemCode

# The rules.

_SECOND = timedelta(seconds=1)
_LONGEST_LINE = timedelta(days=3653)
"""The longest duration of a continued rollout. Its remaining time is a part of the duration."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """The size and speed of a rollout. By default, the release goes to all hosts at once. Raises `PublishError`."""

    percent: float | None = None
    """Constant share of all hosts."""
    over: timedelta | None = None
    """Time in which the rollout grows evenly to all hosts."""
    start: datetime | None = None
    """When growth begins. Default: now."""
    wave: str | None = None
    """A name shared by the rollouts of several bundles."""

    def __post_init__(self) -> None:
        useless = self.start if self.over is None else self.percent
        if useless is not None:
            raise PublishError(
                "rollout",
                "expected a percentage, or a duration with a start",
                code=ProblemCode.INVALID_COMMAND,
            )
        if self.wave is not None and self.percent is None and self.over is None:
            raise PublishError(
                "wave",
                "requires a rollout: expected a percentage or a duration",
                code=ProblemCode.INVALID_COMMAND,
            )
        try:
            self.begin(None, self.start or datetime(2000, 1, 1, tzinfo=UTC))
        except FormatError as error:
            raise error.under(error.where, PublishError, code=ProblemCode.INVALID_COMMAND) from None

    def begin(self, before: Release | None, now: datetime) -> Rollout | None:
        """Return a new rollout, or ``None`` for all hosts."""
        if self.over is not None:
            start = (self.start or now).replace(microsecond=0)
            return Rollout(start=start, duration=self.over, before=before, wave=self.wave)
        if self.percent is None or self.percent == 100:
            return None
        return Rollout(percent=self.percent, before=before, wave=self.wave)

    def go_on(self, rollout: Rollout, now: datetime) -> Rollout | None:
        """Return the rollout that replaces ``rollout``. An empty request returns ``rollout``, no longer halted."""
        if self.over is not None:
            return _continued(rollout, self.over, now)
        if self.percent is not None:
            following = self.begin(rollout.before, now)
            return following and replace(following, wave=rollout.wave)
        return replace(rollout, halted=False) if rollout.reached(now) < 100 else None


AT_ONCE = RolloutRequest()


@dataclass(frozen=True, slots=True)
class Statement:
    """The release of a bundle in a channel, ``before`` and ``after`` a statement. ``None``: not in the channel."""

    channel: str
    before: Release | None
    after: Release | None
    now: datetime

    @property
    def changed(self) -> bool:
        return self.before != self.after


def published(current: Release | None, release: Release, request: RolloutRequest, now: datetime) -> Release:
    """Return ``release``, new or from another channel, as the successor of ``current``. Raises `PublishError`.

    A repetition keeps the rule of the trial unless it states another one.
    """
    if current is not None and current.version == release.version:
        return replace(_again(current, request, now), trial=release.trial or current.trial)
    if request.begin(None, now) is None:
        return release
    return replace(release, rollout=request.begin(_before(current, release, now), now))


def steered(current: Release, request: RolloutRequest, now: datetime, *, resume: bool = False) -> Release:
    """Return ``current`` with its rollout grown by ``request``. Ends the rollout at 100 %. Raises `PublishError`."""
    rollout = _rollout(current)
    reached = rollout.reached(now)
    if rollout.halted and not resume:
        raise PublishError(str(current), f"is halted at {shown_percent(reached)}", hint="--resume resumes it")
    following = replace(current, rollout=request.go_on(rollout, now))
    if (desired := reached_by(following, now)) < reached:
        raise PublishError(
            str(current),
            f"has reached {shown_percent(reached)} of the hosts, and a rollout cannot shrink to"
            f" {shown_percent(desired)}",
            hint="`puller site halt` stops it, and `puller site back` returns to the previous release",
        )
    return following


def halted(current: Release, now: datetime) -> Release:
    """Return ``current`` with its rollout halted. Raises `PublishError`."""
    rollout = _rollout(current)
    if rollout.halted:
        return current
    stopped = Rollout(percent=rollout.reached(now), halted=True, before=rollout.before, wave=rollout.wave)
    return replace(current, rollout=stopped)


def release_before(current: Release, history: History, channel: str) -> Release:
    """Return the release that hosts ran before ``current`` was published in its channel. Raises `PublishError`.

    A rollout contains the previous release. Otherwise it is the last release for all hosts before the first statement
    about the version, so that a second rollback goes back one version further.
    """
    if current.rollout is not None and current.rollout.before is not None:
        return current.rollout.before
    text = [
        statement
        for statement in history.statements
        if statement.channel == channel and statement.release is not None
    ]
    first = next(
        (number for number, statement in enumerate(text) if _version_of(statement) == current.version), 0
    )
    for statement in reversed(text[:first]):
        release = statement.release
        if release is None or release.version == current.version:
            continue
        # Hosts outside a halted rollout run the release before it.
        before = release.rollout.before if release.rollout is not None else None
        is_partial = before is not None and is_under_way(release, text[first].at)
        return for_all(before if is_partial and before is not None else release)
    raise PublishError(
        str(current), "is the first version of this channel", hint="specify the version to return to"
    )


def _version_of(text: ChannelEntry) -> str:
    return text.release.version if text.release is not None else ""


def rolled_back(current: Release, release: Release, now: datetime) -> Release:
    """Return ``release`` for all hosts. Raises `PublishError` if that would complete the rollout of ``current``."""
    if release.version != current.version:
        return release
    if is_under_way(current, now):
        reached = shown_percent(reached_by(current, now))
        raise PublishError(
            str(current), f"is in a rollout at {reached}", hint="`puller site rollout` changes it"
        )
    return for_all(current)


def for_all(release: Release) -> Release:
    """Return ``release`` for all hosts at once."""
    return replace(release, rollout=None)


def reached_by(release: Release, now: datetime) -> float:
    """Return the percentage of hosts that ``release`` has reached."""
    return 100.0 if release.rollout is None else release.rollout.reached(now)


def is_under_way(release: Release, now: datetime) -> bool:
    """Return whether some hosts should not run ``release`` yet."""
    return release.rollout is not None and (release.rollout.halted or reached_by(release, now) < 100)


def _again(current: Release, request: RolloutRequest, now: datetime) -> Release:
    reached = reached_by(current, now)
    if current.rollout is not None and current.rollout.halted:
        raise PublishError(
            str(current),
            f"is halted at {shown_percent(reached)}",
            hint="`puller site rollout --resume` resumes it",
        )
    if reached_by(replace(current, rollout=request.begin(None, now)), now) > reached:
        raise PublishError(
            str(current),
            f"is in a rollout at {shown_percent(reached)} of the hosts",
            hint="`puller site rollout` lets it grow",
        )
    return current


def _before(current: Release | None, release: Release, now: datetime) -> Release | None:
    """Return the release for hosts outside a new rollout of ``release``."""
    if current is None:
        return None
    if current.rollout is None or not is_under_way(current, now):
        return for_all(current)
    before = current.rollout.before
    if before is not None and before.version == release.version:
        raise PublishError(
            str(release),
            f"is the release of all hosts that {current} has not reached",
            hint="`puller site back` gives it to all hosts",
        )
    return before


def _rollout(current: Release) -> Rollout:
    if current.rollout is None:
        raise PublishError(str(current), "is already the release of all hosts, so it has no rollout")
    return current.rollout


def _continued(rollout: Rollout, over: timedelta, now: datetime) -> Rollout | None:
    """Return a rollout that grows evenly from the share that ``rollout`` has reached. Its start is in the past."""
    steps = round(rollout.reached(now) * STEPS / 100)
    if steps == STEPS:
        return None
    duration = _whole_seconds(over * STEPS / (STEPS - steps))
    if duration > _LONGEST_LINE:
        where = shown_percent(rollout.reached(now))
        raise PublishError("over", f"{over} is too long for a rollout that has already reached {where}")
    start = now.replace(microsecond=0) - _whole_seconds(duration * steps / STEPS)
    return Rollout(start=start, duration=duration, before=rollout.before, wave=rollout.wave)


def _whole_seconds(duration: timedelta) -> timedelta:
    """Round up to whole seconds."""
    return -(-duration // _SECOND) * _SECOND


Rule = Callable[[Record, Edition], Release | None]
"""Maps the record of a bundle to its next release in a channel."""


class Channels:
    """The channels of ``site``. Each method raises `PublishError` for an invalid statement.

    With ``noop``, the methods return the statements without signing or writing anything.
    """

    def __init__(self, site: Site, passphrase: Passphrase, *, noop: bool = False) -> None:
        self._site = site
        self._passphrase = passphrase
        self._noop = noop

    def promote(
        self,
        bundle: str,
        source: str,
        channel: str,
        request: RolloutRequest = AT_ONCE,
        trial: TrialRule | None = None,
    ) -> Statement:
        """Publish the release of ``bundle`` in channel ``source`` in ``channel`` also.

        ``trial`` replaces the rule of the release in channel ``source``.
        """
        parse_channel(channel)
        if source == channel:
            raise PublishError(bundle, f"cannot be promoted from channel {channel!r} to itself")

        def rule(record: Record, edition: Edition) -> Release:
            release = _said(record, source)
            if release.rollout is not None and release.rollout.halted:
                raise PublishError(str(release), f"is halted in channel {source!r}, so it is not promoted")
            promoted = replace(for_all(release), trial=trial or release.trial)
            return published(record.index.find(channel), promoted, request, edition.now)

        return self._say([bundle], channel, rule)[0]

    def steer(
        self, bundle: str, channel: str, request: RolloutRequest = AT_ONCE, *, resume: bool = False
    ) -> Statement:
        """Call `steer_all` for one bundle."""
        return self.steer_all([bundle], channel, request, resume=resume)[0]

    def steer_all(
        self, bundles: Sequence[str], channel: str, request: RolloutRequest = AT_ONCE, *, resume: bool = False
    ) -> list[Statement]:
        """Let running rollouts grow by ``request``. With ``resume``, halted rollouts grow again."""

        def rule(record: Record, edition: Edition) -> Release:
            return steered(_said(record, channel), request, edition.now, resume=resume)

        return self._say(bundles, channel, rule)

    def halt(self, bundle: str, channel: str) -> Statement:
        """Call `halt_all` for one bundle."""
        return self.halt_all([bundle], channel)[0]

    def halt_all(self, bundles: Sequence[str], channel: str) -> list[Statement]:
        """Halt the running rollouts."""
        return self._say(
            bundles, channel, lambda record, edition: halted(_said(record, channel), edition.now)
        )

    def stop_judged(self, judged: Mapping[str, str], channel: str, *, back: bool = False) -> list[Statement]:
        """Halt the rollouts of the ``judged`` versions, by bundle. With ``back``, return to the releases before them.

        Skips a bundle if the channel names another version by now, or if its rollout has ended or was halted. These are
        newer decisions of a publisher, and the judgement does not apply to them.
        """

        def rule(record: Record, edition: Edition) -> Release | None:
            current = record.index.find(channel)
            if current is None or current.version != judged[current.bundle]:
                return current
            if current.rollout is None or current.rollout.halted:
                return current
            return release_before(current, record.history, channel) if back else halted(current, edition.now)

        return self._say(list(judged), channel, rule)

    def grow_judged(
        self, judged: Mapping[str, str], channel: str, by: float, each: timedelta, heard: datetime | None
    ) -> list[Statement]:
        """Grow the rollouts of the ``judged`` versions by a percentage of all hosts: all rollouts, or none.

        They grow only if ``each`` has passed since the last statement about them, and if a host has reported since then
        (``heard``). Repeated checks, clock jumps or missing reports therefore cause at most one step. Nothing grows if
        one of the rollouts has a schedule, is halted or is of another version by now.
        """

        def may_grow(record: Record, now: datetime) -> bool:
            current = record.index.find(channel)
            if current is None or current.rollout is None or current.version != judged[current.bundle]:
                return False
            text = max(
                (item.at for item in record.history.statements if item.channel == channel), default=None
            )
            is_due = text is not None and now - text >= each and heard is not None and heard > text
            return is_due and current.rollout.percent is not None and not current.rollout.halted

        def rule(record: Record, edition: Edition) -> Release | None:
            current = record.index.find(channel)
            records = [self._site.record_of(edition.published, bundle) for bundle in judged]
            if current is None or not all(may_grow(item, edition.now) for item in records):
                return current
            reached = min(round(reached_by(current, edition.now) + by, 2), 100)
            return steered(current, RolloutRequest(percent=reached), edition.now)

        return self._say(list(judged), channel, rule)

    def roll_back(self, bundle: str, channel: str, version: str | None = None) -> Statement:
        """Call `roll_back_all` for one bundle."""
        return self.roll_back_all([bundle], channel, version)[0]

    def roll_back_all(
        self, bundles: Sequence[str], channel: str, version: str | None = None
    ) -> list[Statement]:
        """Name the releases before the rollouts, or any published ``version``, for all hosts at once."""

        def rule(record: Record, edition: Edition) -> Release:
            current = _said(record, channel)
            if version is None:
                release = release_before(current, record.history, channel)
                _require_files(record, release)
                return release
            release = Release.of(current.bundle, parse_version(version))
            _require_files(record, release)
            return rolled_back(current, release, edition.now)

        return self._say(bundles, channel, rule)

    def withdraw(self, bundle: str, channel: str) -> Statement:
        """Remove ``bundle`` from the channel. Hosts keep their installed release."""

        def rule(record: Record, edition: Edition) -> None:
            # Raises for a bundle that is not in the channel, such as a mistyped name.
            _said(record, channel)

        return self._say([bundle], channel, rule)[0]

    def _say(self, bundles: Sequence[str], channel: str, rule: Rule) -> list[Statement]:
        """Publish the statements about all ``bundles`` in one signed step, or none of them."""
        if self._noop:  # the lock is a file
            return self._plan(self._site.edition(self._passphrase), bundles, channel, rule)[0]
        with self._site.locked():
            edition = self._site.edition(self._passphrase)
            statements, records = self._plan(edition, bundles, channel, rule)
            if records:  # otherwise neither a key nor a passphrase is needed
                announce(self._site, edition, records)
            return statements

    def _plan(
        self, edition: Edition, bundles: Sequence[str], channel: str, rule: Rule
    ) -> tuple[list[Statement], list[Record]]:
        """Return the statements, and the records with the changed statements."""
        records: list[Record] = []
        statements: list[Statement] = []
        for bundle in dict.fromkeys(bundles):
            record = self._site.record_of(edition.published, parse_name(bundle))
            after = rule(record, edition)
            statements.append(Statement(channel, record.index.find(channel), after, edition.now))
            if statements[-1].changed:
                records.append(record.with_statement(channel, after, edition.now))
        return statements, records


def _said(record: Record, channel: str) -> Release:
    if (release := record.index.find(channel)) is not None:
        return release
    others = sorted(record.index.channels)
    there = f", only in {', '.join(others)}" if others else ""
    raise PublishError(
        record.index.bundle, f"is not in channel {channel!r}{there}", code=ProblemCode.NOT_PUBLISHED
    )


def _require_files(record: Record, release: Release) -> None:
    if record.find_artifact(release.version) is None:
        raise PublishError(
            str(release), _why_missing(record, release.version), code=ProblemCode.NOT_PUBLISHED
        )


def _why_missing(record: Record, version: str) -> str:
    known = record.history.versions.get(version)
    if known is None or known.pruned is None:
        return "is not published in this site"
    return f"was pruned on {known.pruned:%Y-%m-%d}: publish it again first"
