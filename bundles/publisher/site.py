"""Site directory of a publisher: its files, and the transactions that change them.

::

    site.yaml            lifetimes of signatures and requirements for publications (settings.py)
    root.json            the newest root: the trust anchor for new hosts
    keys/                private keys, never below public/
    pending-root.json    a change of the root that waits for signatures
    pruning.json         unreferenced files, and until when a host may still request them
    unfinished.json      an interrupted change of keys, which the next signing command completes
    public/              the document root of a web server
      metadata/          N.root.json  N.targets.json  N.bin-00.json to N.bin-3f.json  N.snapshot.json  timestamp.json
      targets/           web/<sha256>.index.json  web/<sha256>.history.json  web/<sha256>.web-1.4.0.tar.gz
        files/           41/<sha256>.gz: every file of every bundle, once (files.py)
        _data/           <sha256>.exports.yaml: site data (publication.py)

* A release never changes: its name and version always stand for the same files.
* Readers see either the complete previous edition or the complete new edition.
* A publisher that crashed leaves unreferenced files. The next publication overwrites them.

Hosts need every root for ever. Hosts and caches with an older ``timestamp.json`` still request other old metadata,
and ``bundles.publisher.pruning`` removes it when that timestamp has expired. Of the histories, the last two are kept:
hosts never request them, and each history contains the ones before.
"""

import base64
import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from tuf.api.exceptions import LengthOrHashMismatchError

from bundles.errors import (
    FormatError,
    PublishError,
    SignatureError,
)
from bundles.filesystem.atomic import (
    open_directory,
    read_limited,
    remove_leftovers,
    replace_file,
    sync_directory,
    write_file,
)
from bundles.filesystem.trees import Counted, open_regular, pieces_of
from bundles.format.description import BundleDescription
from bundles.format.index import Archive, Artifact, History, Index, Indexes, history_path, index_path
from bundles.format.release import Release
from bundles.format.site_targets import SiteDocument, data_name, data_path, read_custom
from bundles.format.size_limits import LARGEST_HISTORY, LARGEST_INDEX
from bundles.format.tuf import Root, TargetFile, Targets, target_path
from bundles.publisher.edition import Edition, check_readable
from bundles.publisher.files import Files, make_directory
from bundles.publisher.published import ROLES, Published, Record, read_stored
from bundles.publisher.settings import SiteSettings
from bundles.publisher.signing_keys import Keyring, Passphrase
from foundation.problems import ProblemCode

# Transactions: changes of several files that a crash cannot separate.
#
# 1. `record` writes all files into one record file, which appears atomically. From then on the change is certain.
# 2. The publisher writes the files one by one.
# 3. `forget` deletes the record.
#
# After a crash between 1 and 3, the next publisher calls `finish`, which repeats step 2 from the record and then
# deletes it. Writing a file twice is harmless.

_LARGEST = 200_000_000


def record(path: Path, contents: Mapping[str, bytes]) -> None:
    """Step 1: record the files that are about to be written, as contents by name. Raises ``OSError``."""
    document = {name: base64.b64encode(data).decode() for name, data in contents.items()}
    write_file(path, json.dumps(document).encode())


def finish(path: Path, directory: Path) -> None:
    """Repeat step 2 from the record, if there is one, and delete the record. Raises ``OSError``.

    Raises `FormatError` for a damaged record.
    """
    try:
        document = json.loads(read_limited(path, _LARGEST))
        contents = {name: base64.b64decode(text) for name, text in document.items()}
    except FileNotFoundError:
        return
    except (ValueError, AttributeError, TypeError) as error:
        raise FormatError(
            str(path), f"is damaged ({error})", hint="restore public/metadata from a copy"
        ) from None
    # 2.
    for name, data in contents.items():
        write_file(directory / Path(name).name, data)
    # 3.
    forget(path)


def forget(path: Path) -> None:
    """Step 3: delete the record after all files are written. Raises ``OSError``."""
    path.unlink(missing_ok=True)
    sync_directory(path.parent)


SETTINGS = "site.yaml"
ANCHOR = "root.json"
PENDING = "pending-root.json"

_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC

_INDEX = "/index.json"
_HISTORY = "/history.json"


@dataclass(frozen=True, slots=True)
class Listed:
    """A release in a channel, with the size of its archive in bytes."""

    channel: str
    release: Release
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class NewArchive:
    """An archive to publish, stored at ``path``."""

    archive: Archive
    path: Path
    is_ours: bool = False
    """Created for this site on its file system, and therefore moved. Other archives are copied."""


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """Version and expiry of the metadata of one role."""

    role: str
    version: int
    expires: datetime


def utc_now() -> datetime:
    return datetime.now(UTC)


class Site:
    """The site in ``directory``. Raises `PublishError` if the directory is not a site."""

    def __init__(self, directory: Path, now: Callable[[], datetime] = utc_now) -> None:
        self.directory = directory
        self.public = directory / "public"
        self.anchor = directory / ANCHOR
        self.keys = directory / "keys"
        self.pending_root = directory / PENDING
        self.metadata = self.public / "metadata"
        self.files = Files(self.public / "targets")
        self._unfinished = directory / "unfinished.json"
        self.now = now
        if not self.metadata.is_dir():
            raise PublishError(
                str(directory),
                "is not a site",
                code=ProblemCode.UNREADABLE_SOURCE,
                hint="`puller site init` creates one",
            )

    def bundles(self, published: Published | None = None) -> list[str]:
        """Return the names of all bundles that were ever published, sorted."""
        published = published or self.published()
        paths = (path for of_bin in published.bins() for path in of_bin.targets)
        return sorted(path.removesuffix(_INDEX) for path in paths if path.endswith(_INDEX))

    def indexes(self, published: Published | None = None) -> Indexes:
        """Return the indexes of all bundles."""
        published = published or self.published()
        return Indexes({bundle: self.index_of(published, bundle) for bundle in self.bundles(published)})

    def record(self, bundle: str) -> Record:
        """Return index and history of one bundle, both empty for a new bundle. Raises like `index_of`."""
        return self.record_of(self.published(), bundle)

    def releases(self, published: Published | None = None) -> list[Listed]:
        """Return the current releases of all channels, sorted by channel and bundle."""
        listed = [
            Listed(channel, release, archive.length, archive.sha256)
            for index in self.indexes(published).of.values()
            for channel, release in index.channels.items()
            for archive in [index.releases[release.version].archive]
        ]
        return sorted(listed, key=lambda each: (each.channel, each.release.bundle))

    def roles(self, published: Published | None = None) -> list[RoleStatus]:
        """Return version and expiry of each role."""
        return statuses(published or self.published())

    def root(self) -> Root:
        """Return the root in force, with the keys and thresholds of the roles."""
        return self.published().root

    def announce(self, edition: Edition, records: Iterable[Record], new: Iterable[NewArchive] = ()) -> None:
        """Sign ``records`` of bundles, and write them and ``new`` archives. Hosts see all of the changes or none.

        Raises `PublishError`, `KeyFileError` and ``OSError``. The previous edition then stays complete.

        1. Sign the bins of the records, and the snapshot that names them (TUF 6.3.1, 6.3.2).
        2. Sign the timestamp (TUF 6.3.3). Until this point all data is in memory: a missing key leaves no trace.
        3. Write new archives, their single files and the records, under names that contain their hashes (TUF 6.2.1).
           Hosts do not request them yet.
        4. Write the metadata. ``timestamp.json`` is last and makes all files visible.
        5. Remove old histories except the previous one of each bundle.
        """
        # 1.
        documents = {path: data for record in records for path, data in _documents(record).items()}
        infos = {path: TargetFile.from_data(path, data, ["sha256"]) for path, data in documents.items()}
        before = {path: find_target(edition.published, path) for path in documents}
        edition.change(infos)
        # 2.
        edition.sign_timestamp()
        # 3.
        self.add(new)
        for path, data in documents.items():
            self.write_target(infos[path], data)
        # 4.
        self.write(edition)
        # 5.
        for path, info in infos.items():
            if path.endswith(_HISTORY):
                self._forget_histories(info, before[path])

    def edition(self, passphrase: Passphrase, published: Published | None = None) -> Edition:
        """Return the published metadata as an edition to change and sign. Raises like `published`."""
        return Edition(
            self.metadata,
            published or self.published(),
            Keyring(self.keys, passphrase),
            self.settings().lifetimes,
            self.now(),
        )

    def published(self) -> Published:
        """Return the verified metadata in force. Raises `PublishError`, `FormatError` and `SignatureError`."""
        if self._unfinished.exists():  # readers without the lock; `locked` completes it
            raise PublishError(
                str(self.directory),
                "a change of keys was interrupted",
                hint="`puller site refresh` completes it",
            )
        return Published.load(self.metadata, self.anchor)

    def record_of(self, published: Published, bundle: str) -> Record:
        """Return index and history of a bundle, both empty for a new bundle. Raises like `index_of`."""
        data = self._contents(published, history_path(bundle))
        history = History(bundle) if data is None else History.parse(data, bundle)
        return Record(self.index_of(published, bundle), history)

    def index_of(self, published: Published, bundle: str) -> Index:
        """Return the published index of a bundle. Raises `SignatureError` if the file differs from the signed one."""
        data = self._contents(published, index_path(bundle))
        return Index(bundle) if data is None else Index.parse(data, bundle)

    def data_names(self, published: Published) -> list[str]:
        """Return the names of the published documents of site data, sorted."""
        result = (data_name(path) for of_bin in published.bins() for path in of_bin.targets)
        return sorted(name for name in result if name is not None)

    def data_of(self, published: Published, name: str) -> SiteDocument | None:
        """Return a document of site data. Raises `SignatureError` if the file differs from the signed one."""
        contents = self._contents(published, path := data_path(name))
        if contents is None:
            return None
        custom = published.bin_targets(path)[path].custom
        return SiteDocument(name, contents, read_custom(custom, path))

    def _contents(self, published: Published, path: str) -> bytes | None:
        info = find_target(published, path)
        if info is None:
            return None
        data = read_stored(file := self.file_of(info))
        try:
            info.verify_length_and_hashes(data)
        except LengthOrHashMismatchError as error:
            raise SignatureError(
                str(file), f"differs from the content that this site signed: {error}"
            ) from None
        return data

    def file_of(self, info: TargetFile) -> Path:
        """Return the path of a target below ``public/``."""
        return self.public / target_path(info)

    def archive_file(self, archive: Archive) -> Path:
        """Return the path of an archive below ``public/``."""
        return self.public / "targets" / archive.path

    def write_target(self, info: TargetFile, data: bytes) -> None:
        """Write a target under the name that contains its hash. Raises ``OSError``."""
        make_directory(self.file_of(info).parent)
        write_file(self.file_of(info), data)

    def add(self, new: Iterable[NewArchive]) -> None:
        """Write archives, then their single files. Raises ``OSError``, and `PublishError` for changed contents."""
        if archives := [self._write_archive(each) for each in new]:
            self.files.add(archives)

    def has(self, archive: Archive) -> bool:
        """Check by name and size whether an archive exists."""
        try:
            return self.archive_file(archive).stat().st_size == archive.length
        except FileNotFoundError:
            return False

    def lacks(self, artifact: Artifact, description: BundleDescription) -> bool:
        """Check by names and the archive's size whether the archive of a version, or one of its files, is missing."""
        return not self.has(artifact.archive) or self.files.lacks(artifact.description, description)

    def _write_archive(self, new: NewArchive) -> Path:
        destination = self.archive_file(new.archive)
        make_directory(destination.parent)
        with open_directory(destination.parent) as parent:
            remove_leftovers(parent)
            if new.is_ours:  # already flushed, and only the publisher could write it
                os.rename(new.path, destination.name, dst_dir_fd=parent)
                os.fsync(parent)
                return destination
            with open_regular(new.path, follow=True) as stream:
                contents = _as_described(stream, new.archive, new.path)
                replace_file(parent, destination.name, contents, mode=0o644)
        return destination

    def _forget_histories(self, *retained: TargetFile | None) -> None:
        """Remove other histories, which would grow quadratically with the number of publications."""
        files = {self.file_of(info) for info in retained if info is not None}
        for directory in {file.parent for file in files}:
            for path in set(directory.glob(f"*.{_HISTORY[1:]}")) - files:
                with contextlib.suppress(OSError):  # the next publication tries again
                    path.unlink()

    def write(self, edition: Edition) -> None:
        """Publish the metadata of ``edition``. Raises ``OSError``.

        1. If hosts with the old root would reject the new edition, record all files first. A crash between metadata and
           root would lock these hosts out, so that the next publisher must complete the change.
        2. Write the files with a version in their names, then ``timestamp.json``, and last a new root.
        3. Delete the record.
        4. Replace the anchor for new hosts with the newest root.
        """
        if edition.is_good_before_its_root:
            # 2.
            edition.write()
        else:
            # 1.
            record(self._unfinished, edition.contents())
            # 2.
            edition.write()
            # 3.
            forget(self._unfinished)
        # 4. A publisher may have been killed before this step: an older root trusts keys that were removed since.
        newest = read_stored(self.metadata / f"{edition.published.root.version}.root.json")
        if not self.anchor.exists() or read_stored(self.anchor) != newest:
            write_file(self.anchor, newest)

    def settings(self) -> SiteSettings:
        """Return the site's settings. Raises `PublishError`."""
        path = self.directory / SETTINGS
        return SiteSettings.parse(read_stored(path), str(path))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock for one publisher. The kernel releases the lock whenever the process ends.

        Raises `PublishError` if another process holds it, and `FormatError` for a damaged record of a transaction.
        """
        path = self.directory / ".lock"
        with explained(self.directory), open(os.open(path, _LOCK, 0o644), "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PublishError(
                    str(self.directory),
                    "is in use by another process that publishes",
                    code=ProblemCode.ANOTHER_RUN,
                ) from None
            # Before anything is read: an interrupted change leaves files of two editions.
            finish(self._unfinished, self.metadata)
            yield


def find_target(published: Published, path: str) -> TargetFile | None:
    """Return the target at ``path`` from its bin."""
    return published.bin_targets(path).get(path)


def _documents(record: Record) -> dict[str, bytes]:
    """Return the targets of a record by path. Raises `PublishError`."""
    bundle = record.index.bundle
    index, history = record.index.to_bytes(), record.history.to_bytes()
    check_readable(index_path(bundle), len(index), LARGEST_INDEX)
    check_readable(history_path(bundle), len(history), LARGEST_HISTORY)
    return {index_path(bundle): index, history_path(bundle): history}


def _as_described(stream: BinaryIO, archive: Archive, source: Path) -> Iterator[bytes]:
    """Yield the contents, and check their hash after the last piece, before the file gets its name."""
    contents = Counted(pieces_of(stream))
    yield from contents
    if contents.sha256 != archive.sha256:
        raise PublishError(str(source), "changed while it was published", code=ProblemCode.CHANGED_MEANWHILE)


@contextlib.contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Raise `PublishError` for an ``OSError`` of the publisher's own files within the block."""
    try:
        yield
    except OSError as error:
        raise PublishError(
            str(error.filename or directory), error.strerror or str(error), code=ProblemCode.SYSTEM_ERROR
        ) from error


def statuses(published: Published) -> list[RoleStatus]:
    """Return version and expiry of each role, in signing order. The targets expire with the first of their bins."""
    roles = [published.of(role) for role in ROLES]
    bins = published.expiries().values()
    first = {Targets.type: min([published.targets.expires, *bins])}
    return [
        RoleStatus(signed.type, signed.version, first.get(signed.type, signed.expires)) for signed in roles
    ]
