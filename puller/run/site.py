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
from puller.reporting.fields import MessageId
from puller.reporting.run_problems import RunProblems
from puller.run.decision import Decision, Situation, Step, Usability, Version, decide
from puller.run.policy.selection import Offer, ReleaseSelector
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
    selector: ReleaseSelector,
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
    known = _revalidated(configuration, directories, selector, deadline)
    # 2. All here?
    if known is not None and _is_complete(known, configuration, Store(directories.bundles), selector):
        return known
    # 3. and 4.
    return RefreshedSite.refreshed(configuration, downloads, deadline)


def _revalidated(
    configuration: Configuration, directories: Directories, selector: ReleaseSelector, deadline: Deadline
) -> SiteView | None:
    settings = transport_settings(configuration.http)
    anchor = find_trusted(configuration.trust_anchor)
    return revalidate(
        directories.trust,
        anchor,
        configuration.mirrors,
        _bundles(configuration),
        settings,
        selector.now,
        deadline,
        configuration.signed_data,
    )


def _bundles(configuration: Configuration) -> list[str]:
    """The bundles whose metadata is needed: those that are configured. What has left is taken away without the site."""
    return [choice.name for choice in configuration.bundles]


def _is_complete(
    known: SiteView, configuration: Configuration, store: Store, selector: ReleaseSelector
) -> bool:
    """Whether the store has every version that this host should run. ``False`` also if that cannot be determined."""
    try:
        for choice in configuration.bundles:
            current = store.current(choice.name)
            offer = selector.select(known.indexes, choice, known.digest, current)
            is_here = offer.release is not None and store.find(choice.name, offer.sha256) is not None
            if current is None or _decide_fetch(offer, None, is_here=is_here).step is Step.FETCH:
                return False
    except (BundleError, ConfigurationError):
        return False
    return True


class BundleSource(msgspec.Struct, frozen=True):
    """The releases that the site has for this host: the steps *choose* and *unpack* of ``puller.run.agent``."""

    site: SiteView
    selector: ReleaseSelector
    downloads: Directories
    """Where bundles arrive. In a dry run it is a private directory."""
    store: Store
    problems: RunProblems

    def published(self, choice: BundleChoice) -> str:
        """Return the version that the channel names. Empty if it has no such bundle."""
        release = self.site.indexes.find(choice.name, choice.channel)
        return release.version if release else ""

    def choose(self, choice: BundleChoice, current: Installed | None) -> Offer:
        """Return the release that this host should run. Raise what ``ReleaseSelector.select`` raises."""
        return self.selector.select(self.site.indexes, choice, self.site.digest, current)

    def unpack(self, choice: BundleChoice, offer: Offer, current: Installed | None) -> Installed | None:
        """Return the bundle of an offer. ``None``: the host keeps its version. Raise ``BundleError``, ``OSError``.

        A version in the store is not fetched again. If the offer has to wait and the current version is damaged, the
        current version is fetched again.
        """
        installed = self._find(choice.name, offer.sha256, current) if offer.release is not None else None
        is_waiting = offer.release is None or offer.is_quarantined
        damaged = self._find_damaged(choice.name) if is_waiting else None
        decision = _decide_fetch(offer, damaged, is_here=installed is not None)
        if decision.step is not Step.FETCH:
            return None if is_waiting else installed
        release = damaged.release if damaged is not None else offer.release
        return self._fetch(release) if release is not None else None

    def _find(self, name: str, sha256: str, current: Installed | None) -> Installed | None:
        if current is not None and current.sha256 == sha256:
            return current
        return self.store.find(name, sha256)

    def _find_damaged(self, name: str) -> Offer | None:
        """Return the current version as an offer, if it is damaged and still published."""
        named = self.store.named(name)
        if named is None or self.store.find(named.name, named.sha256):
            return None
        release = Release.of(named.name, named.version)
        with contextlib.suppress(FormatError):
            if self.site.digest(release) == named.sha256:
                is_quarantined = self.selector.quarantine.find(named.sha256) is not None
                return Offer(release, named.sha256, is_quarantined=is_quarantined)
        return None

    def _fetch(self, release: Release) -> Installed:
        """Download, verify and install a release."""
        if not isinstance(self.site, RefreshedSite):  # ``refresh`` has seen every version in the store
            raise StoreError(release.bundle, "was changed by somebody else during this run")
        sentence = f"{release}: fetching it from the site"
        self.problems.log.notice(sentence, kind=MessageId.BUNDLE_FETCHING, bundle=release.bundle)
        reported = len(self.site.notes)
        try:
            with transfer(str(release), announced=True):
                return self.site.install(release, Store(self.downloads.bundles), self.downloads)
        finally:
            for note in self.site.notes[
                reported:
            ]:  # of mirrors that failed while another one helped, or as well
                self.problems.note(note, is_routine=isinstance(note, RoutineNote))


def _decide_fetch(offer: Offer, damaged: Offer | None, *, is_here: bool) -> Decision:
    """Return the decision before an offer is unpacked. ``damaged`` is the current version, if it is damaged."""
    version = _version(offer, Usability.UNREAD if is_here else Usability.ABSENT)
    return decide(
        Situation(
            pinned=version if offer.is_pinned else None,
            published=None if offer.is_pinned else version,
            current=_version(damaged, Usability.ABSENT) if damaged is not None else None,
        )
    )


def _version(offer: Offer, usability: Usability) -> Version | None:
    if offer.release is None:
        return None
    return Version(offer.sha256, usability, offer.is_quarantined)


def copy_trust(source: Path, target: Path) -> None:
    """Copy the trusted metadata of this host, for a dry run that must not add to it; raises ``OSError``."""
    if source.exists():
        import shutil  # with all that it packs and unpacks by, which a real run does not

        shutil.copytree(source, target, symlinks=True)
