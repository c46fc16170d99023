"""Statements about releases that are published already: promote, grow, halt, roll back, withdraw.

Each is one new signed statement of the site. ``bundles.publisher.statements`` has the rules.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from bundles.errors import PublishError
from bundles.format.identity import parse_name, parse_version
from bundles.format.index import parse_channel
from bundles.format.release import Release
from bundles.publisher.edition import Edition
from bundles.publisher.keys import Passphrase
from bundles.publisher.pruning.prune import announce
from bundles.publisher.records import Record
from bundles.publisher.site import Site
from bundles.publisher.statements import (
    AT_ONCE,
    RolloutRequest,
    Statement,
    for_all,
    halted,
    published,
    reached_by,
    release_before,
    rolled_back,
    steered,
)
from foundation.problems import ProblemCode

Rule = Callable[[Record, Edition], Release | None]
"""From what is said now to what is to be said of one bundle in one channel."""


class Channels:
    """The channels of ``site``. Everything here raises `PublishError` for what cannot be said."""

    def __init__(self, site: Site, passphrase: Passphrase) -> None:
        self._site = site
        self._passphrase = passphrase

    def promote(self, bundle: str, source: str, channel: str, request: RolloutRequest = AT_ONCE) -> Statement:
        """Say of ``bundle`` in ``channel`` what the channel ``source`` says of it."""
        parse_channel(channel)
        if source == channel:
            raise PublishError(bundle, f"cannot be promoted from channel {channel!r} to itself")

        def rule(record: Record, edition: Edition) -> Release:
            release = _said(record, source)
            if release.rollout is not None and release.rollout.halted:
                raise PublishError(str(release), f"is halted in channel {source!r}, and stays there")
            return published(record.index.find(channel), for_all(release), request, edition.now)

        return self._say([bundle], channel, rule)[0]

    def steer(
        self, bundle: str, channel: str, request: RolloutRequest = AT_ONCE, *, resume: bool = False
    ) -> Statement:
        """`steer_all` of one."""
        return self.steer_all([bundle], channel, request, resume=resume)[0]

    def steer_all(
        self, bundles: Sequence[str], channel: str, request: RolloutRequest = AT_ONCE, *, resume: bool = False
    ) -> list[Statement]:
        """Let the rollouts that are going on grow as ``request`` says; ``resume`` also when they are halted."""

        def rule(record: Record, edition: Edition) -> Release:
            return steered(_said(record, channel), request, edition.now, resume=resume)

        return self._say(bundles, channel, rule)

    def halt(self, bundle: str, channel: str) -> Statement:
        """`halt_all` of one."""
        return self.halt_all([bundle], channel)[0]

    def halt_all(self, bundles: Sequence[str], channel: str) -> list[Statement]:
        """Let the rollouts that are going on take no more hosts."""
        return self._say(
            bundles, channel, lambda record, edition: halted(_said(record, channel), edition.now)
        )

    def stop_judged(self, judged: Mapping[str, str], channel: str, *, back: bool = False) -> list[Statement]:
        """Halt the rollouts of the versions that were judged, by bundle, or name the releases before them.

        Nothing is said where the channel has come to name another version since, or its rollout is over or was
        halted: that was somebody's decision, and nobody judged what it names.
        """

        def rule(record: Record, edition: Edition) -> Release | None:
            current = record.index.find(channel)
            if current is None or current.version != judged[current.bundle]:
                return current
            if current.rollout is None or current.rollout.halted:
                return current
            return release_before(current) if back else halted(current, edition.now)

        return self._say(list(judged), channel, rule)

    def grow_judged(
        self, judged: Mapping[str, str], channel: str, by: float, each: timedelta, heard: datetime | None
    ) -> list[Statement]:
        """Let the rollouts of the versions that were judged grow by so many percent of all hosts: all, or none.

        That is said only ``each`` after the last statement about them, by whoever, and when hosts were ``heard`` of
        since then: a second look at the same time, a clock that jumps and reports that stopped let nothing grow
        further than one step. Those that grow by a schedule, that are halted or of another version are left alone.
        """

        def may_grow(record: Record, now: datetime) -> bool:
            current = record.index.find(channel)
            if current is None or current.rollout is None or current.version != judged[current.bundle]:
                return False
            said = max((one.at for one in record.history.statements if one.channel == channel), default=None)
            is_due = said is not None and now - said >= each and heard is not None and heard > said
            return is_due and current.rollout.percent is not None and not current.rollout.halted

        def rule(record: Record, edition: Edition) -> Release | None:
            current = record.index.find(channel)
            records = [self._site.record_of(edition.published, bundle) for bundle in judged]
            if current is None or not all(may_grow(one, edition.now) for one in records):
                return current
            reached = min(round(reached_by(current, edition.now) + by, 2), 100)
            return steered(current, RolloutRequest(percent=reached), edition.now)

        return self._say(list(judged), channel, rule)

    def roll_back(self, bundle: str, channel: str, version: str | None = None) -> Statement:
        """`roll_back_all` of one."""
        return self.roll_back_all([bundle], channel, version)[0]

    def roll_back_all(
        self, bundles: Sequence[str], channel: str, version: str | None = None
    ) -> list[Statement]:
        """Name the releases before the rollouts, or any published ``version``, for all hosts at once."""

        def rule(record: Record, edition: Edition) -> Release:
            current = _said(record, channel)
            if version is None:
                return release_before(current)
            release = Release.of(current.bundle, parse_version(version))
            if record.find_artifact(release.version) is None:
                raise PublishError(
                    str(release), _why_missing(record, release.version), code=ProblemCode.NOT_PUBLISHED
                )
            return rolled_back(current, release, edition.now)

        return self._say(bundles, channel, rule)

    def withdraw(self, bundle: str, channel: str) -> Statement:
        """Say nothing of ``bundle`` any more; hosts keep what they have."""

        def rule(record: Record, edition: Edition) -> None:
            # What is not there cannot be withdrawn: a name that is mistyped is told.
            _said(record, channel)

        return self._say([bundle], channel, rule)[0]

    def _say(self, bundles: Sequence[str], channel: str, rule: Rule) -> list[Statement]:
        """Say it of all these bundles in one signed step, or of none."""
        with self._site.locked():
            edition = self._site.edition(self._passphrase)
            said: list[Record] = []
            statements: list[Statement] = []
            for bundle in dict.fromkeys(bundles):
                record = self._site.record_of(edition.published, parse_name(bundle))
                after = rule(record, edition)
                statements.append(Statement(channel, record.index.find(channel), after, edition.now))
                if statements[-1].changed:
                    said.append(record.with_statement(channel, after, edition.now))
            if said:  # otherwise no key is needed, and no passphrase asked for
                announce(self._site, edition, said)
            return statements


def _said(record: Record, channel: str) -> Release:
    if (release := record.index.find(channel)) is not None:
        return release
    others = sorted(record.index.channels)
    there = f"; it is in {', '.join(others)}" if others else ""
    raise PublishError(
        record.index.bundle, f"is not in channel {channel!r}{there}", code=ProblemCode.NOT_PUBLISHED
    )


def _why_missing(record: Record, version: str) -> str:
    known = record.history.versions.get(version)
    if known is None or known.pruned is None:
        return "is not published in this site"
    return f"was pruned on {known.pruned:%Y-%m-%d}: publish it again first"
