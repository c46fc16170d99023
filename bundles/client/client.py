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

from bundles.client.partial_downloads import discard_leftovers
from bundles.client.revalidation import MEMORY, MirrorMemory
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
from bundles.format.site_targets import SiteDocument, data_path, read_custom
from bundles.format.size_limits import LARGEST_STORED
from bundles.format.tuf import Metadata, Root, SuccinctRoles, TargetFile, Targets
from bundles.progress import RoutineNote
from bundles.transport.mirror import Mirror

# Comparison of the mirrors' answers: mirrors that are behind, and the failure to report.


@dataclass(frozen=True, slots=True)
class View:
    """The verified metadata of one mirror, with the version of its timestamp."""

    mirror: Mirror
    indexes: Indexes
    version: int


def find_behind(
    views: Sequence[View], failures: Mapping[Mirror, BundleError]
) -> Iterator[tuple[Mirror, str]]:
    """Yield mirrors with older metadata, each with an explanation. The last of ``views`` is the newest."""
    newest = views[-1]
    for view in views:
        if view.version < newest.version:
            detail = (
                f"its timestamp has version {view.version}, and {newest.mirror} has version {newest.version}"
            )
            yield view.mirror, detail
    for mirror, error in failures.items():
        if isinstance(error, RollbackError):
            yield mirror, within(mirror, error)


def within(mirror: Mirror, error: BundleError) -> str:
    """Return an error as a sentence, with a path relative to the mirror."""
    where = error.where.removeprefix(f"{mirror}/").removeprefix(str(mirror))
    return f"{where}: {error.what}" if where else error.what


def worst(failures: Sequence[BundleError]) -> BundleError:
    """Return the error to raise if every mirror failed.

    Attacks come before format errors, and format errors before network errors.
    """
    return max(failures, key=lambda error: (_severity(error, failures), _is_incomplete(error)))


def _severity(error: BundleError, among: Sequence[BundleError]) -> int:
    if isinstance(error, RollbackError) and any(map(_is_incomplete, among)):
        return 0  # probably an upload in progress: one mirror is behind, another is incomplete
    return 2 if isinstance(error, TrustError) else 1 if isinstance(error, FormatError) else 0


def _is_incomplete(error: BundleError) -> bool:
    """Return whether a mirror lacks a file that its own verified metadata names. Its timestamp may be current."""
    return isinstance(error, NotFoundError) and not error.where.endswith("/timestamp.json")


# The stored indexes and site data.

_BACK = "the next refresh restores it"


def load_stored(store: TrustDirectory, bundles: Iterable[str], documents: Iterable[str]) -> Indexes:
    """Return the stored indexes of ``bundles``, and the stored ``documents``. Raises `StoreError`."""
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
        raise StoreError(str(store.path / "targets.json"), "is damaged", hint=_BACK)
    return roles


def _contents(store: TrustDirectory, name: str, info: TargetFile) -> bytes:
    data = store.read(name)
    if data is None or not is_target(info, data):
        raise StoreError(str(store.path / name), "is missing or damaged", hint=_BACK)
    return data


def _verified(store: TrustDirectory, role: str, root: Root) -> Targets:
    metadata = _load(store, role)
    try:
        root.verify_delegate(Targets.type, metadata.signed_bytes, metadata.signatures)
    except RepositoryError as error:
        raise StoreError(str(store.path), f"is damaged ({error})", hint=_BACK) from None
    signed: Targets = metadata.signed
    return signed


def _load(store: TrustDirectory, role: str) -> Metadata[Any]:
    path = store.path / f"{role}.json"
    try:
        return Metadata.from_bytes(read_limited(path, LARGEST_STORED))
    except FileNotFoundError:
        if role == Root.type:
            raise StoreError(str(path), "this host has not trusted any metadata yet") from None
        raise StoreError(str(path), "is missing", hint=_BACK) from None
    except (RepositoryError, ValueError) as error:
        raise StoreError(str(path), f"is damaged ({error})", hint=_BACK) from None


@dataclass(frozen=True, slots=True)
class Fetched:
    """A verified file at its destination, with its size in bytes."""

    path: Path
    size: int
    sha256: str


class TrustClient:
    """One host's view of the published ``bundles`` and site data ``documents``.

    ``directory`` stores the trusted metadata. Only one process at a time may use it. ``notes`` collects sentences for
    users: failed mirrors where another mirror helped, and damaged state.
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
        """``deadline`` is the common deadline of all mirrors, which get equal shares of the remaining time."""
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
        """Fetch and verify the current metadata of the bundles.

        Raises `TransportError`, `TrustError` or `FormatError` of the mirror with the worst answer if every mirror
        failed, `SettingsError` for the anchor, and `StoreError` for this machine's disk. The trusted metadata then
        stays in force.

        1. Load the trust anchor, and prepare the directory of trusted metadata (TUF 5.2).
        2. Run the client workflow on each mirror, and fetch the indexes and documents (TUF 5.3 to 5.7). Mirrors that
           failed before are last. Each mirror must be at least as new as the mirrors before it, so the last view is the
           newest.
        3. If every mirror failed, raise the worst error.
        4. Record failed and successful mirrors, and note mirrors that are behind.
        5. Prefer mirrors with the newest version for downloads, and remove stored files of other bundles.
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
        """Return the last trusted indexes from disk, whether or not they have expired.

        Raises `StoreError`, and `FormatError` for an index that this version cannot parse.
        """
        self._indexes = load_stored(self._store, self._bundles, self._documents)
        return self._indexes

    def digest(self, release: Release) -> str:
        """Return the signed SHA-256 of the bundle of ``release``. Raises like `fetch` without fetching."""
        return self.artifact(release).archive.sha256

    def artifact(self, release: Release) -> Artifact:
        """Return the signed files of ``release``. Requires `refresh` or `indexes` first. Raises like `digest`."""
        if self._indexes is None:
            raise RuntimeError("artifact() requires refresh() or indexes() first")
        return self._indexes.artifact(release)

    def fetch(self, release: Release, destination: Path) -> Fetched:
        """Download the bundle of ``release``, verify it, and place it at ``destination``.

        Resumes a partial download beside ``destination``. Requires `refresh` or `indexes` first. Raises `FormatError`
        for an unpublished release, `StoreError` for insufficient space, and otherwise like `refresh`.
        """
        archive = self.artifact(release).archive
        info = TargetFile(archive.length, {"sha256": archive.sha256}, archive.path)
        path = f"targets/{archive.path}"
        self._try_mirrors(lambda mirror: fetch_target(mirror, info, path, destination, self.deadline.check))
        return Fetched(destination, archive.length, archive.sha256)

    def fetch_files(self, desired: Sequence[Digest], directory: Path) -> dict[str, Path]:
        """Download compressed files of a bundle into ``directory``. Returns their paths by SHA-256.

        Uses one connection, and half of the remaining time: the archive may still be needed. Existing files stay.
        Raises like `fetch`, for the first file that every mirror lacks.
        """
        places = {digest.sha256: directory / f"{digest.sha256}.gz" for digest in desired}
        with self.deadline.share(2):
            for digest in desired:
                place, check = places[digest.sha256], self.deadline.check
                self._try_mirrors(partial(fetch_file, digest, place, check))
        return places

    def discard_leftovers(self, directory: Path) -> None:
        """Remove partial downloads of bundles in ``directory`` that are not worth resuming.

        Requires `refresh` first. Problems become notes.
        """
        published = self._indexes.artifacts() if self._indexes else ()
        desired = {artifact.archive.sha256 for artifact in published}
        try:
            discard_leftovers(directory, desired, self._now())
        except OSError as error:  # harmless until the disk is full
            self.notes.append(f"{error.filename or directory}: cannot be removed: {error.strerror or error}")

    # Mirrors

    def _ask_all(self, anchor: Anchor, memory: MirrorMemory) -> tuple[list[View], dict[Mirror, BundleError]]:
        """Return the view or the failure of each mirror. Mirrors in backoff are only tried if all others fail."""
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
        """Record failed and successful mirrors, and note their problems."""
        names = [str(mirror) for mirror in self._mirrors]
        behind = dict(find_behind(views, failures))
        for mirror, error in failures.items():
            if mirror not in behind:
                memory.failed(str(mirror), within(mirror, error))
        # A mirror that is behind works. If it were skipped, the current newest mirror could withhold tomorrow's
        # release.
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
            self._store.set_aside(MEMORY, f"is damaged ({error}), so all mirrors are queried again")
            return MirrorMemory(self._now())

    def _remember(self, memory: MirrorMemory) -> None:
        try:
            self._store.write_or_remove(MEMORY, memory.to_bytes())
        except OSError as error:  # costs the next run a few more requests only
            self.notes.append(f"{self._store.path / MEMORY}: cannot be written: {error.strerror or error}")

    def _worst(self, failures: list[BundleError]) -> BundleError:
        """Return the failure to raise if every mirror failed. The other failures become notes."""
        bundle_error = worst(failures)
        self.notes += [str(error) for error in failures if error is not bundle_error]
        return bundle_error

    def _prefer(self, mirrors: list[Mirror]) -> None:
        """Try the mirrors that helped first, for the rest of this run."""
        self._mirrors = [*mirrors, *(mirror for mirror in self._mirrors if mirror not in mirrors)]

    def _try_mirrors(self, fetch: Callable[[Mirror], None]) -> None:
        """Try ``fetch`` with each mirror until it succeeds, and prefer that mirror afterwards.

        Raises the worst failure if every mirror fails.
        """
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
