"""Selection of the release that the site offers to this host: by its pin, otherwise by the channel and its rollout.

* The selection uses signed statements and records of this host. No function here uses the network.
* A delayed offer has a reason. A rollout offers the previous release to hosts that it has not reached.
* Whether the offer is fetched and applied is decided later (``puller.run.policy.decision``).
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
from puller.reporting.report import HoldReason
from puller.run.policy.holds import Pins, Quarantine


class Offer(msgspec.Struct, frozen=True):
    """The release that a host should run."""

    release: Release | None = None
    """``None``: the current version of the host."""
    sha256: str = ""
    """The signed digest of its archive."""
    is_pinned: bool = False
    is_quarantined: bool = False
    held: str = ""
    """Why the host does not run the published release. Usually empty."""
    held_because: HoldReason | None = None
    waits_until: datetime | None = None
    """The time at which the rollout reaches this host, if it is known."""


class ReleaseSelector(msgspec.Struct, frozen=True):
    """Selects releases for one host at one time."""

    host: Callable[[], str]
    """Returns the identity of the host. Only rollouts need it."""
    now: datetime
    pins: Pins
    quarantine: Quarantine

    def select(
        self,
        indexes: Indexes,
        choice: BundleChoice,
        digest: Callable[[Release], str],
        current: Installed | None,
    ) -> Offer:
        """Return the offer for the bundle ``choice``. ``digest`` returns the signed SHA-256 of a release.

        Raise ``ConfigurationError`` if the site does not publish the required release, and the errors of ``digest``.
        """
        version = self.pins.version_for(choice.name, choice.version)
        if version is not None:
            selection = Selection(_pinned(choice.name, version, digest, current))
        else:
            selection = self._published(indexes, choice, digest, current)
        release, held = selection.release, selection.held
        because = HoldReason.ROLLOUT if held else None
        sha256 = digest(release) if release is not None else ""
        entry = self.quarantine.find(sha256) if release is not None else None
        if entry is not None:
            held = f"{held}; {entry}" if held else str(entry)
            because = HoldReason.QUARANTINE
        return Offer(
            release,
            sha256,
            is_pinned=version is not None,
            is_quarantined=entry is not None,
            held=held,
            held_because=because,
            waits_until=selection.waits_until,
        )

    def _published(
        self,
        indexes: Indexes,
        choice: BundleChoice,
        digest: Callable[[Release], str],
        current: Installed | None,
    ) -> Selection:
        """Return the release of the channel, or the release of its rollout for this host (docs/rollouts.md)."""
        release = indexes.find(choice.name, choice.channel)
        if release is None:
            raise ConfigurationError(
                f"{choice.name}: channel {choice.channel!r} of the site does not contain this bundle",
                code=ProblemCode.NOT_PUBLISHED,
            )
        if release.rollout is None:
            return Selection(release)
        is_here = current is not None and current.sha256 == digest(release)
        return release.chosen_for(self.host(), self.now, is_here)


def _pinned(
    bundle: str, version: str, digest: Callable[[Release], str], current: Installed | None
) -> Release | None:
    """Return the release of a pin. ``None`` if the host runs that version and the site has stopped publishing it.

    Raise ``ConfigurationError`` if the version is neither published nor on this host.
    """
    try:
        release = Release.of(bundle, version)
        digest(release)
    except FormatError as error:
        if current is not None and (current.name, current.version) == (bundle, version):
            return None
        raise ConfigurationError(
            f"{bundle}: this host is held at {version}: {error}", code=ProblemCode.NOT_PUBLISHED
        ) from error
    return release
