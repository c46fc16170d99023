"""One host's view of a site: what it publishes, as far as this host can trust it.

* Nothing is returned that enough of the site's keys did not sign, that has expired, or that is older
  than what this host has seen before. The trust anchor came with the machine.
* Every mirror is asked, and the highest version that one of them has wins: each can only withhold. One that is
  behind is noted; one that is down or hostile is noted and left alone for a while.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tuf.api.exceptions import DownloadError, RepositoryError

from bundles.client.files import fetch_file
from bundles.client.mirror_answers import View, find_behind, within, worst
from bundles.client.mirror_backoff import MEMORY, MirrorMemory
from bundles.client.notes import RoutineNote
from bundles.client.partial_downloads import discard_left
from bundles.client.published_indexes import SiteWorkflow, fetch_indexes
from bundles.client.stored_indexes import load_stored
from bundles.client.targets import explained, fetch_target
from bundles.client.trust_anchor import Anchor
from bundles.client.trusted_metadata import TrustDirectory
from bundles.client.tuf_errors import verdict
from bundles.deadline import Deadline
from bundles.errors import (
    BundleError,
    FormatError,
    TransportError,
    TrustError,
)
from bundles.format.artifact import Artifact, Digest
from bundles.format.index import Indexes
from bundles.format.release import Release
from bundles.format.tuf import TargetFile
from bundles.transport.mirror import Mirror


@dataclass(frozen=True, slots=True)
class Fetched:
    """A verified file in its place; ``size`` is bytes."""

    path: Path
    size: int
    sha256: str


class TrustClient:
    """One host's view of what a site publishes of some ``bundles`` and ``documents`` of site data, and of nothing else.

    ``directory`` keeps what was trusted; one process at a time may use it.

    ``notes`` collects sentences for people: mirrors that failed although another one helped, damaged state.
    """

    def __init__(
        self,
        directory: Path,
        anchor: Path | bytes,
        mirrors: Sequence[Mirror],
        bundles: Sequence[str],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        deadline: Deadline | None = None,
        documents: Sequence[str] = (),
    ) -> None:
        """``deadline`` is that of the mirrors: none of several takes all the time from those after it."""
        self.notes: list[str] = []
        self._anchor = anchor
        self._mirrors = list(mirrors)
        self._bundles = list(dict.fromkeys(bundles))
        self._documents = list(dict.fromkeys(documents))
        self._now = now
        self.deadline = deadline or Deadline(float("inf"))
        self._store = TrustDirectory(directory, self.notes, now)
        self._indexes: Indexes | None = None

    def refresh(self) -> Indexes:
        """Fetch and verify what is published of the bundles now.

        Raises `TransportError`, `TrustError` or `FormatError` of the mirror with the worst answer when
        none helped, `SettingsError` for the anchor, and `StoreError` for this machine's disk. What was
        trusted stays then.

        1. Load the trust anchor, and make the directory of what was trusted before usable (TUF 5.2).
        2. Run the client workflow on each mirror, those that failed before last, and fetch the index of each bundle,
           and the documents (TUF 5.3 to 5.7). Each is measured against what those before it had, so the last that
           helped has the newest.
        3. When none helped, raise the worst that one of them answered.
        4. Remember which failed and which helped, and tell which are behind.
        5. Mirrors that have the newest are asked first for bundles; what is not of these bundles is dropped here.
        """
        # 1.
        anchor = Anchor.load(self._anchor)
        with explained(self._store.path):
            self._store.prepare(anchor)
            memory = self._remembered()
        # 2.
        views, failures = self._ask_all(anchor, memory)
        # 3.
        if not views:
            raise self._worst(list(failures.values()))
        # 4.
        self._account_for(memory, views, failures)
        # 5.
        newest = views[-1]
        self._prefer([view.mirror for view in views if view.version == newest.version])
        with explained(self._store.path):
            self._store.keep_only(self._bundles, self._documents)
        self._indexes = newest.indexes
        return newest.indexes

    def indexes(self) -> Indexes:
        """The indexes that were trusted last, expired or not, from this machine alone.

        Raises `StoreError`, and `FormatError` for one that this version does not understand.
        """
        self._indexes = load_stored(self._store, self._bundles, self._documents)
        return self._indexes

    def digest(self, release: Release) -> str:
        """SHA-256 of the bundle of ``release``, as signed; raises as `fetch` without fetching."""
        return self.artifact(release).archive.sha256

    def artifact(self, release: Release) -> Artifact:
        """The files of ``release``, as signed; raises as `digest`, and comes after `refresh` or `indexes`."""
        if self._indexes is None:
            raise RuntimeError("artifact() comes after refresh() or indexes()")
        return self._indexes.artifact(release)

    def fetch(self, release: Release, destination: Path) -> Fetched:
        """Download the bundle of ``release``, verify it, and place it at ``destination``.

        What another attempt left beside ``destination`` is gone on with. After `refresh` or `indexes`. Raises
        `FormatError` for a release that is not published, `StoreError` when there is no space for it,
        otherwise as `refresh`.
        """
        archive = self.artifact(release).archive
        info = TargetFile(archive.length, {"sha256": archive.sha256}, archive.path)
        path = f"targets/{archive.path}"
        self._from_one(lambda mirror: fetch_target(mirror, info, path, destination, self.deadline.check))
        return Fetched(destination, archive.length, archive.sha256)

    def fetch_files(self, wanted: Sequence[Digest], directory: Path) -> dict[str, Path]:
        """Download files of a bundle into ``directory``, compressed; their places by SHA-256.

        All over one connection, and in half of the time that is left: the archive may be needed after all. What is in
        place already stays. Raises as `fetch`, for the first file that no mirror has.
        """
        places = {digest.sha256: directory / f"{digest.sha256}.gz" for digest in wanted}
        with self.deadline.share(2):
            for digest in wanted:
                place, check = places[digest.sha256], self.deadline.check
                self._from_one(partial(fetch_file, digest, place, check))
        return places

    def discard_left(self, directory: Path) -> None:
        """Remove what killed runs have left in ``directory`` of bundles, unless it is still worth going on with.

        After `refresh`; a problem with it is noted.
        """
        published = self._indexes.artifacts() if self._indexes else ()
        wanted = {artifact.archive.sha256 for artifact in published}
        try:
            discard_left(directory, wanted, self._now())
        except OSError as error:  # it is in nobody's way until the disk is full
            self.notes.append(f"{error.filename or directory}: cannot be removed: {error.strerror or error}")

    # Mirrors

    def _ask_all(self, anchor: Anchor, memory: MirrorMemory) -> tuple[list[View], dict[Mirror, BundleError]]:
        """The view of each mirror, or its failure; those in backoff are asked only when no other helps."""
        views: list[View] = []
        failures: dict[Mirror, BundleError] = {}
        for place, mirror in enumerate(sorted(self._mirrors, key=lambda mirror: memory.turn(str(mirror)))):
            if views and memory.backs_off(str(mirror)):
                continue
            try:
                with self.deadline.share(len(self._mirrors) - place):
                    views.append(self._refresh_from(mirror, anchor))
            except (TransportError, TrustError, FormatError) as error:
                failures[mirror] = error
        return views, failures

    def _refresh_from(self, mirror: Mirror, anchor: Anchor) -> View:
        with explained(self._store.path):
            workflow = SiteWorkflow(self._store, anchor, mirror, self._now())
            try:
                workflow.refresh()
                indexes = fetch_indexes(workflow, mirror, self._store, self._bundles, self._documents)
            except (RepositoryError, DownloadError) as error:
                raise verdict(error, workflow) from error
        return View(mirror, indexes, workflow.trusted.timestamp.version)

    def _account_for(
        self, memory: MirrorMemory, views: list[View], failures: dict[Mirror, BundleError]
    ) -> None:
        """Remember which mirrors failed and which helped, and say what is wrong with any."""
        names = [str(mirror) for mirror in self._mirrors]
        behind = dict(find_behind(views, failures))
        for mirror, error in failures.items():
            if mirror not in behind:
                memory.failed(str(mirror), within(mirror, error))
        # A mirror that is behind works. If it rested, the one that is ahead today could hide what is new tomorrow.
        for mirror in (*(view.mirror for view in views), *behind):
            memory.helped(str(mirror))
        memory.keep_only(names)
        refused = {str(mirror) for mirror, error in failures.items() if not isinstance(error, TransportError)}
        self.notes += memory.sentences(name for name in names if name not in refused)
        self.notes += map(str, memory.sentences(name for name in names if name in refused))
        self.notes += (f"{mirror}: is behind: {what}" for mirror, what in behind.items())
        self._remember(memory)

    def _remembered(self) -> MirrorMemory:
        data = self._store.read(MEMORY)
        if data is None:
            return MirrorMemory(self._now())
        try:
            return MirrorMemory.parse(data, self._now())
        except ValueError as error:
            self._store.set_aside(MEMORY, f"is damaged ({error}); every mirror is asked again")
            return MirrorMemory(self._now())

    def _remember(self, memory: MirrorMemory) -> None:
        try:
            self._store.write_or_remove(MEMORY, memory.to_bytes())
        except OSError as error:  # costs the next run a few requests, and nothing else
            self.notes.append(f"{self._store.path / MEMORY}: cannot be written: {error.strerror or error}")

    def _worst(self, failures: list[BundleError]) -> BundleError:
        """The failure to raise when no mirror helped; the others are noted."""
        found = worst(failures)
        self.notes += [str(error) for error in failures if error is not found]
        return found

    def _prefer(self, mirrors: list[Mirror]) -> None:
        """Ask first, for the rest of this run, the mirrors that helped in it."""
        self._mirrors = [*mirrors, *(mirror for mirror in self._mirrors if mirror not in mirrors)]

    def _from_one(self, fetch: Callable[[Mirror], None]) -> None:
        """Let ``fetch`` succeed with one mirror, which is asked first from then on; raises the worst failure."""
        failures: list[BundleError] = []
        for place, mirror in enumerate(self._mirrors):
            try:
                with self.deadline.share(len(self._mirrors) - place):
                    fetch(mirror)
            except (TransportError, TrustError, FormatError) as error:
                failures.append(error)
            else:
                self.notes += (
                    RoutineNote(error) if isinstance(error, TransportError) else str(error)
                    for error in failures
                )
                self._prefer([mirror])
                return
        raise self._worst(failures)
