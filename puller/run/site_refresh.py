"""The site in one run: its metadata, the releases that it offers, and their transfer into the store.

* Most runs find nothing new. For them a revalidation is enough (``bundles.client.revalidation``).
* A release arrives by the files that this host lacks, or by its archive. Both lead to the same tree and the same trust:
  the index names the archive and the description by their SHA-256, and the description names every file.
* After any problem with files, the archive is fetched. A missing file does not make a release unavailable.
"""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from bundles import progress
from bundles.client.partial_downloads import FILES
from bundles.client.revalidation import revalidate
from bundles.deadline import Deadline
from bundles.errors import BundleError, FormatError, SettingsError, StoreError
from bundles.filesystem.atomic import remove_any
from bundles.format.index import Artifact, Digest, Indexes
from bundles.format.release import Release
from bundles.format.size_limits import read_verified
from bundles.progress import RoutineNote
from bundles.store.contents import Installed
from bundles.store.store import Store
from puller.config.configuration import BundleChoice, Configuration
from puller.config.transport import transport_settings
from puller.errors import ConfigurationError
from puller.reporting.run_log import RunProblems
from puller.reporting.sinks import MessageId
from puller.run.policy.decision import (
    Decision,
    Offer,
    ReleaseSelector,
    Situation,
    Step,
    Usability,
    Version,
    decide,
)
from puller.state import Directories
from puller.system.trusted_files import find_trusted

if TYPE_CHECKING:
    from bundles.client.client import TrustClient


class SiteView(Protocol):
    """The verified metadata of the site."""

    @property
    def indexes(self) -> Indexes:
        """The version of each bundle by channel, and the site data."""

    @property
    def notes(self) -> list[str]:
        """Sentences about mirrors that failed, although another one succeeded, and about damaged state."""

    def digest(self, release: Release) -> str:
        """Return the signed SHA-256 of the archive of a release. Raise ``FormatError`` if it is not published."""


class RefreshedSite(msgspec.Struct, frozen=True):
    """The site after the client workflow, which can download its bundles."""

    client: "TrustClient"
    indexes: Indexes

    @classmethod
    def refreshed(
        cls, configuration: Configuration, directories: Directories, deadline: Deadline
    ) -> "RefreshedSite":
        """Fetch and verify the metadata: steps 3 and 4 of ``refresh``. Raise what ``refresh`` raises."""
        # 34 % of an idle run, for which a revalidation is enough
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
            client.discard_leftovers(directories.downloads)
            return cls(client, indexes)
        except SettingsError as error:
            raise ConfigurationError(problems=error.problems) from error

    @property
    def notes(self) -> list[str]:
        """Sentences about mirrors that failed, although another one succeeded, and about damaged state."""
        return self.client.notes

    def digest(self, release: Release) -> str:
        """See ``SiteView``."""
        return self.client.digest(release)

    def install(self, release: Release, store: Store, directories: Directories) -> Installed:
        """Download, verify and unpack a release, unless the store has it. Raise ``BundleError``."""
        if (installed := store.find(release.bundle, self.digest(release))) is not None:
            return installed
        return Arrival(self.client, release, store, directories.downloads).install()


class Arrival:
    """The download of one release into ``store``. ``directory`` contains downloads, also interrupted ones."""

    def __init__(self, client: "TrustClient", release: Release, store: Store, directory: Path) -> None:
        self._client = client
        self._release = release
        self._store = store
        self._artifact: Artifact = client.artifact(release)
        sha256 = self._artifact.archive.sha256
        self._archive = directory / f"{sha256}.tar.gz"
        self._files = directory / f"{sha256}{FILES}"

    def install(self) -> Installed:
        """Download and verify the release, and put it into the store. Raise ``BundleError``.

        1. Find the bundles in the store. Without one, files are no advantage.
        2. Fetch files (``_from_files``), if they are smaller than the archive.
        3. Otherwise, or after any problem with files, fetch the archive.
        4. Remove the downloads when the release is in the store. After an error, the next run resumes them.
        """
        self._archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (installed := self._by_files()) is None:
            installed = self._by_archive()
        # 4.
        self._forget_files()
        return installed

    def _by_files(self) -> Installed | None:
        try:
            # 1.
            directories = self._store.directories()
            # 2.
            return self._from_files(directories) if directories else None
        except (BundleError, OSError) as error:
            # 3. Also after an error of this machine: a file of another version may be damaged.
            self._client.notes.append(
                f"{error}, so the archive of {self._release} is fetched instead of single files"
            )
            return None

    def _from_files(self, directories: list[Path]) -> Installed | None:
        """Install the release by its files. ``None`` if the archive is smaller. Raise ``BundleError``, ``OSError``.

        1. Fetch the description, which the index names by its SHA-256.
        2. Find the files that no bundle of this host has, and compare their size with that of the archive.
        3. Fetch them.
        4. Assemble the tree.
        """
        # 6 % of an idle run, only for a new release
        from bundles.store.assembly import Assembly, is_promising

        if not is_promising(self._artifact):
            return None
        # 1.
        description = self._artifact.description
        (place,) = self._fetched([description]).values()
        assembly = Assembly(self._artifact, read_verified(place, description), directories)
        # 2.
        if not assembly.is_worth_it:
            self._forget_files()
            progress.expect(self._artifact.archive.length)
            return None
        # 3.
        fetched = self._fetched(assembly.missing)
        # 4.
        return self._store.assemble(
            assembly.parts(fetched),
            name=self._release.bundle,
            version=self._release.version,
            check=self._client.deadline.check,
        )

    def _fetched(self, files: list[Digest]) -> dict[str, Path]:
        return self._client.fetch_files(files, self._files)

    def _forget_files(self) -> None:
        if self._files.is_dir():
            remove_any(self._files)

    def _by_archive(self) -> Installed:
        try:
            self._client.fetch(self._release, self._archive)
            return self._store.install(
                self._archive,
                name=self._release.bundle,
                version=self._release.version,
                sha256=self._artifact.archive.sha256,
                check=self._client.deadline.check,
            )
        finally:  # an interrupted download has another name, and stays
            self._archive.unlink(missing_ok=True)


def refresh(
    configuration: Configuration,
    directories: Directories,
    downloads: Directories,
    selector: ReleaseSelector,
    deadline: Deadline,
) -> SiteView:
    """Return the current metadata of the site. ``downloads`` receives metadata and bundles.

    1. Revalidate: compare the stored metadata with the site (``bundles.client.revalidation``).
    2. Stop if they are unchanged and the store has every version that this host should run.
    3. Otherwise, run the client workflow of the TUF specification, section 5 (``bundles.client.client``).
    4. Remove partial downloads of other releases.

    Raise ``BundleError``, ``ConfigurationError`` for the settings of this host, and the errors of the deadline.
    """
    # 1. In a dry run with the metadata of this host, not with the copy
    known = _revalidated(configuration, directories, selector, deadline)
    # 2.
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
    """Return the names of the bundles whose metadata are needed."""
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
            raise StoreError(release.bundle, "was changed by another process during this run")
        sentence = f"{release}: fetching from the site"
        self.problems.log.notice(sentence, kind=MessageId.BUNDLE_FETCHING, bundle=release.bundle)
        reported = len(self.site.notes)
        try:
            with progress.transfer(str(release), announced=True):
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
    """Copy the trusted metadata of this host for a dry run, which must not change them. Raise ``OSError``."""
    if source.exists():
        import shutil  # see ``tempfile`` in puller.run.agent

        shutil.copytree(source, target, symlinks=True)
