"""Which release of a bundle this host should run: a pin, else what the signed index says of the channel.

* The answer comes from signed statements and this host's own records alone; nothing here asks anybody.
* A release that is held back is named with the reason; the host then runs the release before it, or what it has.
"""

from collections.abc import Callable
from datetime import datetime

import msgspec

from bundles.errors import FormatError
from bundles.format.index import Indexes
from bundles.format.release import Release, Selection
from bundles.store.contents import Installed
from foundation.problems import ProblemCode
from puller.config.configuration import BundleChoice
from puller.errors import ConfigurationError
from puller.reporting.report import HeldBecause
from puller.run.policy.pins import Pins
from puller.run.policy.quarantine import Quarantine


class Chooser(msgspec.Struct, frozen=True):
    """Chooses for one host at one time. ``host`` is its identity, asked for only when a rollout is going on."""

    host: Callable[[], str]
    now: datetime
    pins: Pins
    quarantine: Quarantine

    def choose(
        self,
        indexes: Indexes,
        choice: BundleChoice,
        digest: Callable[[Release], str],
        current: Installed | None,
    ) -> Selection:
        """The release of ``choice`` for this host, or why there is none; ``digest`` gives its SHA-256, as signed.

        1. A version that this host is held at, by a pin or its configuration.
        2. Else the release in the channel of the signed index.
        3. A rollout of it: how far that has come, this host's place in it, whether it is halted (docs/rollouts.md).
        4. The quarantine of this host.

        Raises ``ConfigurationError`` when what this host asks for is not published, and what ``digest`` raises.
        """
        # 1. Pin
        version = self.pins.version_for(choice.name, choice.version)
        if version is not None:
            selection = Selection(_pinned(choice.name, version, digest, current))
        else:
            # 2. Channel
            release = indexes.find(choice.name, choice.channel)
            if release is None:
                raise ConfigurationError(
                    f"{choice.name}: channel {choice.channel!r} of the site has no such bundle",
                    code=ProblemCode.NOT_PUBLISHED,
                )
            # 3. Rollout
            selection = self._reached(release, digest, current)
        # 4. Quarantine
        return self._unless_quarantined(selection, digest)

    def because(self, selection: Selection) -> HeldBecause:
        """The reason for which a selection is held, in one word."""
        given_up = any(str(entry) in selection.held for entry in self.quarantine.entries)
        return HeldBecause.QUARANTINE if given_up else HeldBecause.ROLLOUT

    def _reached(
        self, release: Release, digest: Callable[[Release], str], current: Installed | None
    ) -> Selection:
        """The release that a rollout gives to this host."""
        if release.rollout is None:
            return Selection(release)
        is_here = current is not None and current.sha256 == digest(release)
        return release.chosen_for(self.host(), self.now, is_here)

    def _unless_quarantined(self, selection: Selection, digest: Callable[[Release], str]) -> Selection:
        if selection.release is None:
            return selection
        entry = self.quarantine.find(digest(selection.release))
        if entry is None:
            return selection
        held = f"{selection.held}; {entry}" if selection.held else str(entry)
        return Selection(None, held, selection.waits_until)


def _pinned(
    bundle: str, version: str, digest: Callable[[Release], str], current: Installed | None
) -> Release | None:
    """The release that a person on this host has named; that it is not there is theirs to settle.

    ``None`` for whatever is here, when that is the version and the site offers it no more.
    """
    try:
        release = Release.of(bundle, version)
        digest(release)
    except FormatError as error:
        if current is not None and (current.name, current.version) == (bundle, version):
            return None
        raise ConfigurationError(
            f"{bundle}: is held at {version} by this host: {error}", code=ProblemCode.NOT_PUBLISHED
        ) from error
    return release
