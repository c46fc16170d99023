"""Statements about releases that are published already: promote, grow, halt, roll back, withdraw.

Each is one new signed statement of the site. ``bundles.publisher.statements`` has the rules.
"""

from collections.abc import Callable

from bundles.errors import PublishError
from bundles.format.identity import parse_version
from bundles.format.index import Index, parse_channel
from bundles.format.release import Release
from bundles.publisher.keys import Passphrase
from bundles.publisher.signing import Edition
from bundles.publisher.site import Site
from bundles.publisher.statements import (
    AT_ONCE,
    RolloutRequest,
    Statement,
    for_all,
    halted,
    published,
    release_before,
    rolled_back,
    steered,
)

Rule = Callable[[Index, Edition], Release | None]
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

        def rule(index: Index, edition: Edition) -> Release:
            release = _said(index, bundle, source)
            if release.rollout is not None and release.rollout.halted:
                raise PublishError(str(release), f"is halted in channel {source!r}, and stays there")
            return published(index.find(bundle, channel), for_all(release), request, edition.now)

        return self._say(bundle, channel, rule)

    def steer(
        self, bundle: str, channel: str, request: RolloutRequest = AT_ONCE, *, resume: bool = False
    ) -> Statement:
        """Let the rollout that is going on grow as ``request`` says; ``resume`` also when it is halted."""
        return self._say(
            bundle,
            channel,
            lambda index, edition: steered(
                _said(index, bundle, channel), request, edition.now, resume=resume
            ),
        )

    def halt(self, bundle: str, channel: str) -> Statement:
        """Let the rollout that is going on take no more hosts."""
        return self._say(
            bundle, channel, lambda index, edition: halted(_said(index, bundle, channel), edition.now)
        )

    def roll_back(self, bundle: str, channel: str, version: str | None = None) -> Statement:
        """Name the release before the rollout, or any published ``version``, for all hosts at once."""

        def rule(index: Index, edition: Edition) -> Release:
            current = _said(index, bundle, channel)
            if version is None:
                return release_before(current)
            release = Release.of(bundle, parse_version(version))
            if release.target not in edition.published.targets.targets:
                raise PublishError(str(release), "is not published in this site")
            return rolled_back(current, release, edition.now)

        return self._say(bundle, channel, rule)

    def withdraw(self, bundle: str, channel: str) -> Statement:
        """Say nothing of ``bundle`` any more; hosts keep what they have."""

        def rule(index: Index, edition: Edition) -> None:
            # What is not there cannot be withdrawn: a name that is mistyped is told.
            _said(index, bundle, channel)

        return self._say(bundle, channel, rule)

    def _say(self, bundle: str, channel: str, rule: Rule) -> Statement:
        with self._site.locked():
            edition = self._site.edition(self._passphrase)
            index = self._site.index_of(edition.published)
            statement = Statement(channel, index.find(bundle, channel), rule(index, edition), edition.now)
            if statement.changed:  # otherwise no key is needed, and no passphrase asked for
                self._site.announce(edition, _updated(index, bundle, statement))
            return statement


def _updated(index: Index, bundle: str, statement: Statement) -> Index:
    if statement.after is None:
        return index.without_release(bundle, statement.channel)
    return index.with_release(statement.after, statement.channel)


def _said(index: Index, bundle: str, channel: str) -> Release:
    if (release := index.find(bundle, channel)) is not None:
        return release
    others = [name for name, releases in sorted(index.channels.items()) if bundle in releases]
    there = f"; it is in {', '.join(others)}" if others else ""
    raise PublishError(bundle, f"is not in channel {channel!r}{there}")
