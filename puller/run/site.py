"""The site as one run uses it: asked once what is published, then for releases and their bytes.

Most runs find nothing new. For them a revalidation is enough (``bundles.client.revalidation``); what verifies
signatures is imported only when it says that something may have changed.
"""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from bundles.client.notes import RoutineNote
from bundles.client.revalidation import revalidate
from bundles.deadline import Deadline
from bundles.errors import BundleError, FormatError, SettingsError, StoreError
from bundles.format.index import Indexes
from bundles.format.release import Release
from bundles.progress import transfer
from bundles.store.contents import Installed
from bundles.store.store import Store
from puller.config.configuration import BundleChoice, Configuration
from puller.config.transport import transport_settings
from puller.errors import ConfigurationError
from puller.exit_status import ExitStatus
from puller.reporting.fields import MessageId
from puller.reporting.report import BundleReport, HeldBecause
from puller.reporting.run_problems import RunProblems
from puller.run.policy.selection import Chooser
from puller.state.directories import Directories
from puller.system.trusted import find_trusted

if TYPE_CHECKING:
    from bundles.client.client import TrustClient


class SiteView(Protocol):
    """The site, as far as this host can trust it."""

    @property
    def indexes(self) -> Indexes:
        """Which version of each bundle a host should run, by channel; and the site data that it reads."""

    @property
    def notes(self) -> list[str]:
        """Sentences for people: mirrors that failed although another helped, damaged state."""

    def digest(self, release: Release) -> str:
        """SHA-256 of the archive of a release, as signed; raises ``FormatError`` when it is not published."""


class RefreshedSite(msgspec.Struct, frozen=True):
    """The site as it is now, verified, and the way to its bundles."""

    client: "TrustClient"
    indexes: Indexes

    @classmethod
    def refreshed(
        cls, configuration: Configuration, directories: Directories, deadline: Deadline
    ) -> "RefreshedSite":
        """Fetch and verify the metadata: steps 3 and 4 of ``refresh``.

        ``deadline`` is that of all that is fetched from the site, now and later. Raises as ``refresh``.
        """
        from bundles.client.client import TrustClient
        from bundles.transport.mirror import open_mirrors

        try:
            mirrors = open_mirrors(configuration.mirrors, transport_settings(configuration.http), deadline)
            anchor = find_trusted(configuration.trust_anchor)
            client = TrustClient(
                directories.trust,
                anchor,
                mirrors,
                _bundles(configuration),
                deadline=deadline,
                documents=configuration.signed_data,
            )
            # 3. Client workflow
            indexes = client.refresh()
            # 4. Partial downloads
            client.discard_left(directories.downloads)
            return cls(client, indexes)
        except SettingsError as error:
            raise ConfigurationError(problems=error.problems) from error

    @property
    def notes(self) -> list[str]:
        """Sentences for people: mirrors that failed although another helped, damaged state."""
        return self.client.notes

    def digest(self, release: Release) -> str:
        """See ``SiteView``."""
        return self.client.digest(release)

    def install(self, release: Release, store: Store, directories: Directories) -> Installed:
        """Download, verify and unpack; what is in the store already is not fetched again. Raises ``BundleError``."""
        if (installed := store.find(release.bundle, self.digest(release))) is not None:
            return installed
        from puller.run.arrival import Arrival  # with what compresses and compares, for something new only

        return Arrival(self.client, release, store, directories.downloads).install()


def refresh(
    configuration: Configuration,
    directories: Directories,
    downloads: Directories,
    chooser: Chooser,
    deadline: Deadline,
) -> SiteView:
    """The site as it is now. ``downloads`` is where metadata and bundles arrive, ``deadline`` that of all fetching.

    1. Revalidation: is the verified metadata of this host still the site's? (``bundles.client.revalidation``)
    2. Is all that this host should run by it in the store? Then there is nothing to fetch.
    3. Else the client workflow of the TUF specification, section 5 (``bundles.client.client``).
    4. Partial downloads that nobody goes on with are removed.

    Raises ``BundleError``, ``ConfigurationError`` for what is ours, and what the deadline's check raises.
    """
    # 1. Revalidation; in noop of what this host has, and not of the copy of it
    known = _revalidated(configuration, directories, chooser, deadline)
    # 2. All here?
    if known is not None and _is_complete(known, configuration, Store(directories.bundles), chooser):
        return known
    # 3. and 4.
    return RefreshedSite.refreshed(configuration, downloads, deadline)


def _revalidated(
    configuration: Configuration, directories: Directories, chooser: Chooser, deadline: Deadline
) -> SiteView | None:
    settings = transport_settings(configuration.http)
    anchor = find_trusted(configuration.trust_anchor)
    return revalidate(
        directories.trust,
        anchor,
        configuration.mirrors,
        _bundles(configuration),
        settings,
        chooser.now,
        deadline,
        configuration.signed_data,
    )


def _bundles(configuration: Configuration) -> list[str]:
    """The bundles whose metadata is needed: those that are configured. What has left is taken away without the site."""
    return [choice.name for choice in configuration.bundles]


def _is_complete(known: SiteView, configuration: Configuration, store: Store, chooser: Chooser) -> bool:
    """Whether this host has all that it should run; no is also the answer when that cannot be told."""
    try:
        for choice in configuration.bundles:
            current = store.current(choice.name)
            release = chooser.choose(known.indexes, choice, known.digest, current).release
            if current is None or (release and store.find(choice.name, known.digest(release)) is None):
                return False
    except (BundleError, ConfigurationError):
        return False
    return True


class Offer(msgspec.Struct, frozen=True):
    """The site's offer of one bundle to this host; reasons go into ``report`` and ``problems``.

    1. Selection: which release this host should run (``puller.run.policy.selection``); a held one is told.
    2. Without one, the release that this host stays on, when that is damaged here.
    3. What is current or in the store is not fetched again.
    4. Download, verification, installation (``bundles.client``, ``bundles.store``).
    """

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
            # 1. Selection
            named = self.site.indexes.find(self.choice.name, self.choice.channel)
            self.report.published = named.version if named else ""
            selection = self.chooser.choose(self.site.indexes, self.choice, self.site.digest, current)
            if selection.waits_until:
                self.report.waits_until = selection.waits_until.isoformat(timespec="seconds")
            if selection.held:
                self.report.held = selection.held
                self.report.held_because = self.chooser.because(selection)
                self._tell(MessageId.BUNDLE_HELD, f"held: {selection.held}")
                self.problems.count(ExitStatus.HELD)
            # 2. Damaged here?
            release = selection.release or self._damaged()
            # 3. and 4.
            return self._installed(release, current) if release else None
        except Exception as error:  # noqa: BLE001  whatever it is, what is here already is enforced
            self.report.held = self.problems.caught(error)
            self.report.held_because = HeldBecause.UNAVAILABLE
            return None

    def _tell(self, kind: MessageId, sentence: str) -> None:
        self.problems.log.notice(sentence, kind=kind, bundle=self.choice.name)

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

    def _installed(self, release: Release, current: Installed | None) -> Installed:
        digest = self.site.digest(release)
        # 3. Here already?
        if current is not None and digest == current.sha256:
            return current
        if (installed := self.store.find(release.bundle, digest)) is not None:
            return installed
        if not isinstance(self.site, RefreshedSite):  # all was here at step 2 of ``refresh``
            raise StoreError(release.bundle, "was changed by somebody else during this run")
        # 4. Download
        self._tell(MessageId.BUNDLE_FETCHING, f"{release}: fetching it from the site")
        told = len(self.site.notes)
        try:
            with transfer(str(release), announced=True):
                return self.site.install(release, Store(self.directories.bundles), self.directories)
        finally:
            for note in self.site.notes[told:]:  # of mirrors that failed while another one helped, or as well
                self.problems.note(note, is_routine=isinstance(note, RoutineNote))


def copy_trust(source: Path, target: Path) -> None:
    """Copy the trusted metadata of this host, for a dry run that must not add to it; raises ``OSError``."""
    if source.exists():
        import shutil  # with all that it packs and unpacks by, which a real run does not

        shutil.copytree(source, target, symlinks=True)
