"""The client of a site: trusted indexes and site data from all of its mirrors.

* The client returns only data that enough of the site's keys signed, that has not expired, and that is not older than
  the data this host has seen before. The trust anchor was installed with the machine.
* The client asks every mirror, and the highest version wins, because a mirror can only withhold versions. The client
  notes mirrors that are behind. It also notes mirrors that fail or misbehave, and skips them for a while.
* `load_stored` returns the indexes and documents that were trusted last, without a mirror and whether or not they
  have expired. It still verifies signatures from the stored root down to each index and document.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tuf.api.exceptions import DownloadError, RepositoryError

from bundles.client.mirror_backoff import MEMORY, MirrorMemory
from bundles.client.notes import RoutineNote
from bundles.client.partial_downloads import discard_left
from bundles.client.targets import SiteWorkflow, explained, fetch_file, fetch_indexes, fetch_target, is_target
from bundles.client.trust import Anchor, TrustDirectory, document_file, index_file
from bundles.client.updater import verdict
from bundles.deadline import Deadline
from bundles.errors import (
    BundleError,
    FormatError,
    NotFoundError,
    RollbackError,
    StoreError,
    TransportError,
    TrustError,
)
from bundles.filesystem.atomic import read_limited
from bundles.format.index import Artifact, Digest, Index, Indexes, index_path
from bundles.format.release import Release
from bundles.format.site_data import SiteDocument, data_path, read_custom
from bundles.format.size_limits import LARGEST_STORED
from bundles.format.tuf import Metadata, Root, SuccinctRoles, TargetFile, Targets
from bundles.transport.mirror import Mirror

# Comparison of the mirrors' answers: mirrors that are behind, and the failure to report.


@dataclass(frozen=True, slots=True)
class View:
    """The verified metadata of one mirror; ``version`` is that of its timestamp."""

    mirror: Mirror
    indexes: Indexes
    version: int


def find_behind(
    views: Sequence[View], failures: Mapping[Mirror, BundleError]
) -> Iterator[tuple[Mirror, str]]:
    """Mirrors that have what was published before, and how it can be told; the last of ``views`` is the newest."""
    newest = views[-1]
    for view in views:
        if view.version < newest.version:
            what = f"its timestamp is version {view.version}, {newest.mirror} has {newest.version}"
            yield view.mirror, what
    for mirror, error in failures.items():
        if isinstance(error, RollbackError):
            yield mirror, within(mirror, error)


def within(mirror: Mirror, error: BundleError) -> str:
    """An error as a sentence, its place relative to the mirror."""
    where = error.where.removeprefix(f"{mirror}/").removeprefix(str(mirror))
    return f"{where}: {error.what}" if where else error.what


def worst(failures: Sequence[BundleError]) -> BundleError:
    """The one to raise when no mirror helped: an attack before a format, and that before the network."""
    return max(failures, key=lambda error: (_severity(error, failures), _is_incomplete(error)))


def _severity(error: BundleError, among: Sequence[BundleError]) -> int:
    if isinstance(error, RollbackError) and any(map(_is_incomplete, among)):
        return 0  # a mirror that is behind one that is incomplete, as while both are uploaded to
    return 2 if isinstance(error, TrustError) else 1 if isinstance(error, FormatError) else 0


def _is_incomplete(error: BundleError) -> bool:
    """Whether a mirror lacks a file that its own verified metadata names: its timestamp is as new as any."""
    return isinstance(error, NotFoundError) and not error.where.endswith("/timestamp.json")


# The stored indexes and site data.

_BACK = "the next refresh brings it back"


def load_stored(store: TrustDirectory, bundles: Iterable[str], documents: Iterable[str]) -> Indexes:
    """The stored indexes of ``bundles``, and the stored ``documents``; raises `StoreError`."""
    indexes, data = {}, {}
    with explained(store.path):
        root: Root = _load(store, Root.type).signed
        bins = _bins(store, root)
        for bundle in bundles:
            if info := _find(store, bins, index_path(bundle), root):
                indexes[bundle] = Index.parse(_contents(store, index_file(bundle), info), bundle)
        for name in documents:
            if info := _find(store, bins, data_path(name), root):
                published = read_custom(info.custom, data_path(name))
                data[name] = SiteDocument(name, _contents(store, document_file(name), info), published)
    return Indexes(indexes, data)


def _find(store: TrustDirectory, bins: SuccinctRoles, path: str, root: Root) -> TargetFile | None:
    return _verified(store, bins.get_role_for_target(path), root).targets.get(path)


def _bins(store: TrustDirectory, root: Root) -> SuccinctRoles:
    targets = _verified(store, Targets.type, root)
    roles = targets.delegations.succinct_roles if targets.delegations else None
    if roles is None:
        raise StoreError(str(store.path / "targets.json"), f"damaged; {_BACK}")
    return roles


def _contents(store: TrustDirectory, name: str, info: TargetFile) -> bytes:
    data = store.read(name)
    if data is None or not is_target(info, data):
        raise StoreError(str(store.path / name), f"is missing or damaged; {_BACK}")
    return data


def _verified(store: TrustDirectory, role: str, root: Root) -> Targets:
    metadata = _load(store, role)
    try:
        root.verify_delegate(Targets.type, metadata.signed_bytes, metadata.signatures)
    except RepositoryError as error:
        raise StoreError(str(store.path), f"damaged; {_BACK} ({error})") from None
    signed: Targets = metadata.signed
    return signed


def _load(store: TrustDirectory, role: str) -> Metadata[Any]:
    path = store.path / f"{role}.json"
    try:
        return Metadata.from_bytes(read_limited(path, LARGEST_STORED))
    except FileNotFoundError:
        what = "nothing was trusted yet on this host" if role == Root.type else f"is missing; {_BACK}"
        raise StoreError(str(path), what) from None
    except (RepositoryError, ValueError) as error:
        raise StoreError(str(path), f"damaged; {_BACK} ({error})") from None


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
