"""Copy of a site, verified like on a host, and complete for hosts at every moment.

* Data that a host would reject never enters the copy. The copy then stays unchanged.
* Files are written before the metadata that names them, with ``timestamp.json`` last. The next run resumes an
  interrupted one.
* Unreferenced files stay until the last timestamp of the copy that led to them has expired.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from tuf.api.exceptions import RepositoryError

from bundles.client.partial_downloads import discard_leftovers
from bundles.client.targets import explained
from bundles.client.trust import Anchor, TrustDirectory
from bundles.errors import SettingsError
from bundles.filesystem.atomic import read_limited
from bundles.format.description import BundleDescription, worth_asking_for
from bundles.format.index import Artifact, Digest, Index, index_path, named_by
from bundles.format.site_targets import data_name
from bundles.format.size_limits import LARGEST_HISTORY, LARGEST_INDEX, LARGEST_SITE_DATA, LARGEST_STORED
from bundles.format.tuf import Metadata, TargetFile, Timestamp, target_path
from bundles.progress import transfer
from bundles.publisher.mirroring.mirror_state import Files, NeededFile, Record, Selection, Source, State
from bundles.publisher.push.destination import Directory
from bundles.publisher.push.plan import TIMESTAMP, Edition, Kind, files_of, kind_of_file, plan
from bundles.publisher.push.plan import Source as CopiedFile
from bundles.transport.mirror import Mirror
from foundation.problems import ProblemCode

_MARKS_OF_A_SITE = ("site.yaml", "keys")


class Copied(msgspec.Struct, frozen=True):
    """The result of a run, or with ``noop`` of the planned run. Paths are relative to ``public/``."""

    fetched: tuple[str, ...]
    """Files of bundles."""
    written: tuple[str, ...]
    """Metadata, indexes and histories, in order."""
    removed: tuple[str, ...]
    kept: dict[str, datetime]
    """Files that the site has removed, and when the copy removes them."""
    notes: tuple[str, ...] = ()
    """Sentences for users."""

    @property
    def is_empty(self) -> bool:
        """Return whether the copy was already identical to the site, except for later removals."""
        return not self.fetched and not self.written and not self.removed


class SiteCopy:
    """The copy in ``directory``. Hosts read its ``public/``. The first run requires ``root``, the root of the site."""

    def __init__(
        self,
        mirror: Mirror,
        directory: Path,
        root: Path | None,
        selection: Selection | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._mirror = mirror
        self._directory = directory
        self._public = directory / "public"
        self._state = State(directory)
        self._root = root
        self._given: Anchor | None = None
        self._selection = selection or Selection()
        self._now = now

    def plan(self) -> Copied:
        """Return the planned result of `run`, without writing to the directory. Raises like `run`."""
        anchor = self._anchor()
        with tempfile.TemporaryDirectory(prefix="puller-mirror-") as scratch:
            trust = Path(scratch) / "trust"
            if self._state.trust.exists():
                with explained(self._state.trust):
                    shutil.copytree(self._state.trust, trust)
            return _Run(
                self._mirror, self._public, self._state, self._selection, self._given, self._now()
            ).plan(trust, anchor)

    def run(self, check: Callable[[], None] = lambda: None) -> Copied:
        """Update the copy to the state of the site.

        Raises `TransportError`, `TrustError`, `FormatError`, `SettingsError`, and `StoreError` or `PublishError` for
        this disk.

        1. Lock the state. One directory contains one site.
        2. Refresh as a host does, against the previously trusted metadata.
        3. Fetch missing files.
        4. Write indexes and metadata, then ``timestamp.json``. Write roots at the points where the copy stays valid for
           hosts.
        5. Record the files, and remove files that hosts can no longer request.
        """
        anchor = self._anchor()
        with self._state.held():
            run = _Run(self._mirror, self._public, self._state, self._selection, self._given, self._now())
            return run.do(anchor, check)

    def _anchor(self) -> Anchor:
        for name in _MARKS_OF_A_SITE:
            if (self._directory / name).exists():
                raise SettingsError(
                    str(self._directory), f"has {name}: it is the site of a publisher and not a copy"
                )
        self._given = None if self._root is None else Anchor.load(self._root)
        anchor = self._state.anchor(self._given)
        result = _read(self._public / f"metadata/{anchor.version}.root.json")
        if result is not None and result != anchor.data:
            raise SettingsError(str(self._public), f"contains another site than {anchor.where}")
        return anchor


class _Run:
    def __init__(
        self,
        mirror: Mirror,
        public: Path,
        state: State,
        selection: Selection,
        given: Anchor | None,
        now: datetime,
    ) -> None:
        self._mirror = mirror
        self._public = public
        self._state = state
        self._selection = selection
        self._given = given
        self._now = now
        self._record = state.load()
        self._before = _read(public / TIMESTAMP)
        self._files = Files(public, state.incoming, mirror, self._record.files)
        self._notes: list[str] = []

    def plan(self, trust: Path, anchor: Anchor) -> Copied:
        source = self._refreshed(trust, anchor)
        documents, desired = self._contents(source)
        missing = [each for each in desired.values() if not self._files.has(each)]
        groups = self._groups(self._documents_of(source, anchor, documents))
        removed, retained = self._gone({*desired, *documents, *source.metadata()}, source.timestamp)
        return self._copied(missing, groups, removed, retained)

    def do(self, anchor: Anchor, check: Callable[[], None]) -> Copied:
        # 2.
        source = self._refreshed(self._state.trust, anchor)
        self._state.keep_anchor(anchor)
        # 3.
        documents, desired = self._contents(source)
        missing = [each for each in desired.values() if not self._files.has(each)]
        with explained(self._state.incoming):
            discard_leftovers(self._state.incoming, {each.sha256 for each in missing}, self._now)
        fetched = self._fetch(missing, check)
        # 4.
        groups = self._write(self._documents_of(source, anchor, documents))
        # 5.
        removed, retained = self._gone({*desired, *documents, *source.metadata()}, source.timestamp)
        self._state.store(Record(files=self._files.stamps, gone=retained))
        Directory(str(self._public)).remove(removed)
        return self._copied(fetched, groups, removed, retained)

    def _copied(
        self,
        fetched: list[NeededFile],
        groups: list[tuple[str, ...]],
        removed: list[str],
        retained: dict[str, datetime],
    ) -> Copied:
        written = tuple(path for group in groups for path in group)
        return Copied(
            tuple(each.path for each in fetched), written, tuple(removed), retained, tuple(self._notes)
        )

    def _refreshed(self, trust: Path, anchor: Anchor) -> Source:
        """Return the site, which must be at least as new as the copy."""
        before: dict[str, bytes] = {}
        if self._before is not None and (timestamp := _parsed(self._before)) is not None:
            version = timestamp.signed.snapshot_meta.version
            snapshot = _read(self._public / f"metadata/{version}.snapshot.json")
            before = {"timestamp.json": self._before, **({"snapshot.json": snapshot} if snapshot else {})}
        store = TrustDirectory(trust, self._notes, lambda: self._now)
        source = Source(self._mirror, store, anchor, self._now)
        source.refresh(before)
        self._verify_given(source)
        return source

    def _verify_given(self, source: Source) -> None:
        """Accept a repeated ``root`` only if it is one of the site's roots."""
        if (provided := self._given) is None:
            return
        path = f"metadata/{provided.version}.root.json"
        if (source.metadata().get(path) or _read(self._public / path)) != provided.data:
            detail = "is not a root of the copied site"
            raise SettingsError(provided.where, detail, hint="use another directory for another site")

    # Contents

    def _contents(self, source: Source) -> tuple[dict[str, bytes], dict[str, NeededFile]]:
        """Return indexes, histories and site data by path, and the files that the indexes name.

        Site data is always copied completely, because any host may read it.
        """
        documents: dict[str, bytes] = {}
        indexes: list[Index] = []
        for bundle, info in source.documents():
            if bundle and self._selection.bundles and bundle not in self._selection.bundles:
                continue
            data = self._files.read_document(info, _largest(info))
            documents[target_path(info)] = data
            if bundle and info.path == index_path(bundle):
                indexes.append(Index.parse(data, bundle, f"{self._mirror}/{target_path(info)}"))
        self._check_selection(indexes)
        desired = {
            each.path: each
            for index in indexes
            for artifact in self._artifacts(index)
            for each in self._of_artifact(artifact)
        }
        return documents, desired

    def _check_selection(self, indexes: list[Index]) -> None:
        """Raise an error for an unknown name, because a misspelled name would silently produce an incomplete copy."""
        for bundle in set(self._selection.bundles) - {index.bundle for index in indexes}:
            raise SettingsError(
                str(self._mirror), f"bundle {bundle!r} is not published", code=ProblemCode.NOT_PUBLISHED
            )
        for channel in set(self._selection.channels) - {name for index in indexes for name in index.channels}:
            raise SettingsError(
                str(self._mirror),
                f"channel {channel!r} is missing in the copied bundles",
                code=ProblemCode.NOT_PUBLISHED,
            )

    def _artifacts(self, index: Index) -> Iterator[Artifact]:
        """Yield all offered versions, or the versions for hosts in the chosen channels."""
        if not self._selection.channels:
            yield from index.releases.values()
            return
        releases = (index.find(channel) for channel in self._selection.channels)
        named = (each.version for release in releases if release for each in named_by(release))
        yield from (index.releases[version] for version in dict.fromkeys(named))

    def _of_artifact(self, artifact: Artifact) -> Iterator[NeededFile]:
        yield NeededFile.archive(artifact.archive, str(self._mirror))
        data = self._files.read_description(artifact.description)
        if data is None:  # hosts fall back to the archive
            return
        yield NeededFile.file(artifact.description)
        description = BundleDescription.parse(data)
        shrinks_to = artifact.archive.length / max(description.size, artifact.archive.length)
        for sha256, entry in worth_asking_for(description.files.values()).items():
            yield NeededFile.file(Digest(entry.size, sha256), shrinks_to)

    def _documents_of(self, source: Source, anchor: Anchor, documents: dict[str, bytes]) -> dict[str, bytes]:
        """Return all documents to write by path, including roots before the anchor if the site has them."""
        result = documents | source.metadata()
        data, version = anchor.data, anchor.version
        while version > 1:
            path = f"metadata/{version - 1}.root.json"
            earlier = _read(self._public / path) or source.earlier_root(data, version)
            if earlier is None:
                break
            result[path] = data = earlier
            version -= 1
        return result

    # Changes

    def _fetch(self, missing: list[NeededFile], check: Callable[[], None]) -> list[NeededFile]:
        if not missing:
            return []
        expected = sum(each.expected for each in missing)
        with transfer(str(self._mirror), expected, doing="copying", done="copied"):
            return [each for each in missing if self._files.place(each, check)]

    def _groups(self, contents: dict[str, bytes]) -> list[tuple[str, ...]]:
        """Return changed documents in the order of writing, which is the order of a push."""
        changed = [path for path, data in contents.items() if _read(self._public / path) != data]
        before = self._before
        former = None if before is None else Edition(before, lambda path: _read(self._public / path))
        steps = plan(
            {path: len(data) for path, data in contents.items()},
            changed,
            {} if before is None else {TIMESTAMP: len(before)},
            {},
            timedelta(0),
            self._now,
            lambda version: (
                former is not None and former.holds_under(contents[f"metadata/{version}.root.json"])
            ),
        )
        return list(steps.groups)

    def _write(self, contents: dict[str, bytes]) -> list[tuple[str, ...]]:
        groups = self._groups(contents)
        there = Directory(str(self._public))
        for group in groups:
            there.write(
                [
                    CopiedFile(path, len(contents[path]), self._public / path, contents[path])
                    for path in group
                ],
                _Unwatched(),
            )
        return groups

    def _gone(self, needed: set[str], timestamp: bytes) -> tuple[list[str], dict[str, datetime]]:
        """Return the files to remove now, and the files to remove later with the time."""
        removed: list[str] = []
        retained: dict[str, datetime] = {}
        former = (self._before and _parsed(self._before)) or Metadata[Timestamp].from_bytes(timestamp)
        with explained(self._public):
            there = files_of(self._public) if self._public.exists() else {}
        for path in sorted(there.keys() - needed):
            if kind_of_file(path) not in (Kind.TARGET, Kind.METADATA):
                continue
            until = self._record.gone.get(path, former.signed.expires)
            if until <= self._now:
                removed.append(path)
            else:
                retained[path] = until
        return removed, retained


class _Unwatched:
    """Ignores progress, because metadata is small."""

    def moved(self, path: str, have: int) -> None:
        pass

    def sent(self, path: str, size: int) -> None:
        pass


def _largest(info: TargetFile) -> int:
    if data_name(info.path) is not None:
        return LARGEST_SITE_DATA
    return LARGEST_INDEX if info.path.endswith("/index.json") else LARGEST_HISTORY


def _parsed(timestamp: bytes) -> Metadata[Timestamp] | None:
    try:
        return Metadata.from_bytes(timestamp)
    except RepositoryError:
        return None


def _read(path: Path) -> bytes | None:
    """Read a file of the copy. ``None`` for a missing file, or for a file too large to be a copied one."""
    try:
        return read_limited(path, LARGEST_HISTORY if path.name.endswith(".history.json") else LARGEST_STORED)
    except (FileNotFoundError, ValueError):
        return None
