"""The site as one run uses it: asked once what is published, then for releases and their bytes.

Most runs find nothing new. For them a revalidation is enough (``bundles.client.revalidation``); what verifies
signatures is imported only when it says that something may have changed.
"""

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from bundles.client.revalidation import revalidate
from bundles.deadline import Deadline
from bundles.errors import BundleError, FormatError, SettingsError, StoreError
from bundles.format.index import Index, Release
from bundles.store.store import Installed, Store
from bundles.transport.download import open_mirrors
from puller.config.configuration import BundleChoice, Configuration
from puller.config.transport import transport_settings
from puller.errors import ConfigurationError
from puller.exit_status import ExitStatus
from puller.reporting.report import BundleReport
from puller.reporting.run_problems import RunProblems
from puller.run.policy.selection import Chooser
from puller.state.directories import Directories
from puller.system.trusted import find_trusted

if TYPE_CHECKING:
    from bundles.client.client import TrustClient


class SiteView(Protocol):
    """What the site publishes, as far as this host can trust it."""

    @property
    def index(self) -> Index:
        """Which version of each bundle a host should run, by channel."""

    @property
    def notes(self) -> list[str]:
        """Sentences for people: mirrors that failed although another helped, damaged state."""

    def digest(self, release: Release) -> str:
        """SHA-256 of the archive of a release, as signed; raises ``FormatError`` when it is not published."""


class RefreshedSite(msgspec.Struct, frozen=True):
    """What is published now, verified, and how to get it."""

    client: "TrustClient"
    index: Index

    @classmethod
    def refreshed(
        cls, configuration: Configuration, directories: Directories, deadline: Deadline
    ) -> "RefreshedSite":
        """Fetch and verify the metadata; ``deadline`` is that of all that is fetched from it, now and later.

        Raises ``BundleError``, ``ConfigurationError`` for what is ours, and what the deadline's check raises.
        """
        from bundles.client.client import TrustClient

        try:
            mirrors = open_mirrors(configuration.mirrors, transport_settings(configuration.http), deadline)
            anchor = find_trusted(configuration.trust_anchor)
            client = TrustClient(directories.trust, anchor, mirrors, deadline=deadline)
            index = client.refresh()
            client.discard_left(directories.downloads)
            return cls(client, index)
        except SettingsError as error:
            raise ConfigurationError(str(error)) from error

    @property
    def notes(self) -> list[str]:
        """Sentences for people: mirrors that failed although another helped, damaged state."""
        return self.client.notes

    def digest(self, release: Release) -> str:
        """See ``SiteView``."""
        return self.client.digest(release)

    def install(self, release: Release, store: Store, directories: Directories) -> Installed:
        """Download, verify and unpack; what is in the store already is not fetched again. Raises ``BundleError``."""
        digest = self.digest(release)
        if (installed := store.find(release.bundle, digest)) is not None:
            return installed
        archive = directories.downloads / f"{digest}.tar.gz"
        archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self.client.fetch(release, archive)
            return store.install(
                archive,
                name=release.bundle,
                version=release.version,
                sha256=digest,
                check=self.client.deadline.check,
            )
        finally:
            archive.unlink(missing_ok=True)


def unchanged(
    configuration: Configuration, directories: Directories, chooser: Chooser, deadline: Deadline
) -> SiteView | None:
    """What is published, when this host has all of it already; ``None`` when that takes more than a revalidation."""
    settings = transport_settings(configuration.http)
    anchor = find_trusted(configuration.trust_anchor)
    known = revalidate(directories.trust, anchor, configuration.mirrors, settings, chooser.now, deadline)
    if known is None:
        return None
    store = Store(directories.bundles)
    try:
        for choice in configuration.bundles:
            current = store.current(choice.name)
            release = chooser.choose(known.index, choice, known.digest, current).release
            if current is None or (release and store.find(choice.name, known.digest(release)) is None):
                return None
    except (BundleError, ConfigurationError):
        return None
    return known


class Offer(msgspec.Struct, frozen=True):
    """What the site has for this host of one bundle; reasons go into ``report`` and ``problems``."""

    site: SiteView
    chooser: Chooser
    choice: BundleChoice
    directories: Directories
    """Where bundles arrive; in noop not where they are."""
    store: Store
    report: BundleReport
    problems: RunProblems

    def obtained(self, current: Installed | None) -> Installed | None:
        """The bundle that this host should run, unpacked; ``None`` when what is here stays, with the reason noted."""
        try:
            wanted = self.chooser.choose(self.site.index, self.choice, self.site.digest, current)
            if wanted.held:
                self._hold(wanted.held)
            release = wanted.release or self._damaged()
            return self._installed(release, current) if release else None
        except Exception as error:  # noqa: BLE001  whatever it is, what is here already is enforced
            self.report.held = self.problems.caught(error)
            return None

    def _damaged(self) -> Release | None:
        """The release that this host stays on, when it has to be fetched anew and is still published."""
        named = self.store.named(self.choice.name)
        if named is None or self.store.find(named.name, named.sha256):
            return None
        release = Release.of(named.name, named.version)
        with contextlib.suppress(FormatError):
            if self.site.digest(release) == named.sha256 and not self.chooser.quarantine.find(named.sha256):
                return release
        return None

    def _hold(self, why: str) -> None:
        self.report.held = why
        self.problems.log.notice(f"held: {why}")
        self.problems.count(ExitStatus.HELD)

    def _installed(self, release: Release, current: Installed | None) -> Installed:
        digest = self.site.digest(release)
        if current is not None and digest == current.sha256:
            return current
        if (installed := self.store.find(release.bundle, digest)) is not None:
            return installed
        if not isinstance(
            self.site, RefreshedSite
        ):  # a revalidation said that all is here, and then the store changed
            raise StoreError(release.bundle, "was changed by somebody else during this run")
        self.problems.log.notice(f"{release}: fetching it from the site")
        told = len(self.site.notes)
        try:
            return self.site.install(release, Store(self.directories.bundles), self.directories)
        finally:
            for note in self.site.notes[told:]:  # of mirrors that failed while another one helped, or as well
                self.problems.warn(note)


def copy_trust(source: Path, target: Path) -> None:
    """What this host has trusted so far, for a dry run that must not add to it."""
    if source.exists():
        shutil.copytree(source, target, symlinks=True)
