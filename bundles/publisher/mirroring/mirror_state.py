"""State and files of a copied site, and its source: the client workflow of a host, for all bins.

The state is in ``mirror/`` beside the ``public/`` directory, so that a web server never publishes it:

======================  ==================================================================
``root.json``           the root that was passed to the first run
``trust/``              trusted metadata, as on a host, for the detection of rollback
``incoming/``           downloads, until they are verified
``record.json``         verified files, and how long to keep files that are gone from the site
``lock``                one run at a time
======================  ==================================================================

A file appears under its name below ``public/`` when it is complete and verified. Later runs recognize a verified file
by its size and modification time.

The source:

* Data that a host would reject is rejected by the same code and with the same messages.
* Metadata is stored byte for byte, because a copy contains the publisher's signatures.
"""

import contextlib
import errno
import fcntl
import io
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec
from tuf.api.exceptions import DownloadError, RepositoryError

from bundles.client.targets import (
    CompressedFile,
    SiteWorkflow,
    check_layout,
    download_target,
    explained,
    fetch_target,
    is_target,
)
from bundles.client.trust import Anchor, TrustDirectory, parse_root
from bundles.client.updater import verdict
from bundles.errors import FormatError, NotFoundError, SettingsError, SignatureError, StoreError
from bundles.filesystem.atomic import read_limited, write_file
from bundles.filesystem.safe_paths import (
    REAL_DIRECTORY,
    OutputTree,
    can_others_replace,
    open_output_directory,
    writers,
)
from bundles.filesystem.trees import open_regular
from bundles.format.fields import parse_name
from bundles.format.index import Archive, Digest, history_path, index_path
from bundles.format.site_targets import bin_of, data_name
from bundles.format.size_limits import LARGEST_METADATA, verified
from bundles.format.tuf import Metadata, Snapshot, TargetFile, Targets, Timestamp, target_path
from bundles.publisher.push.plan import FILES
from bundles.transport.mirror import Mirror
from foundation.problems import ProblemCode

_FORMAT = 1
_LARGEST = 256 * 1024 * 1024

Stamp = tuple[int, int]
"""Size in bytes, and time of the last change in nanoseconds."""


class Selection(msgspec.Struct, frozen=True):
    """The part of a site to copy. Empty: all bundles, with all their releases."""

    bundles: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


class Record(msgspec.Struct):
    """State of a copy. If it is lost or damaged, the next run reads every file again."""

    format: int = _FORMAT
    files: dict[str, Stamp] = {}
    """Verified files, by path below ``public/``."""
    gone: dict[str, datetime] = {}
    """Expiry of files that the site has removed, because a host may still request them."""


class State:
    """The state of the copy in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "mirror"

    @property
    def trust(self) -> Path:
        return self.directory / "trust"

    @property
    def incoming(self) -> Path:
        return self.directory / "incoming"

    @property
    def _record(self) -> Path:
        return self.directory / "record.json"

    @property
    def _root(self) -> Path:
        return self.directory / "root.json"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Open and lock the state. Raises `StoreError` while another process works on this copy.

        If another user could exchange the directory for a link, its paths lead through the open directory.
        """
        named = self.directory
        with contextlib.ExitStack() as opened:
            with explained(named):
                own = _open_own(named)
                opened.callback(os.close, own)
                if can_others_replace(os.path.abspath(named)):
                    self.directory = Path(f"/proc/self/fd/{own}")
                    opened.callback(setattr, self, "directory", named)
                self.incoming.mkdir(mode=0o700, exist_ok=True)
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                lock = os.open("lock", flags, 0o600, dir_fd=own)
                opened.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    str(named.parent),
                    "is in use by another process that copies the site",
                    code=ProblemCode.ANOTHER_RUN,
                ) from None
            yield

    def anchor(self, given: Anchor | None) -> Anchor:
        """Return the stored root of this copy, or ``given`` on the first run. Raises `SettingsError`."""
        if self._root.exists():
            return Anchor.load(self._root)
        if given is None:
            raise SettingsError(
                str(self._root), "the trust anchor is missing", hint="the first run requires --root"
            )
        return given

    def keep_anchor(self, anchor: Anchor) -> None:
        """Store a root that has proved to be the site's."""
        with explained(self._root):
            if not self._root.exists():
                write_file(self._root, anchor.data)

    def load(self) -> Record:
        """Return the record, empty if the file is missing or damaged. Raises `StoreError`."""
        with explained(self._record):
            try:
                record = msgspec.json.decode(read_limited(self._record, _LARGEST), type=Record)
            except (FileNotFoundError, ValueError):
                return Record()
        return record if record.format == _FORMAT else Record()

    def store(self, record: Record) -> None:
        """Write the record. Raises `StoreError`."""
        with explained(self._record):
            write_file(self._record, msgspec.json.encode(record) + b"\n", mode=0o600)


def _open_own(path: Path) -> int:
    """Create and open the private directory of the state. Raises ``OSError``."""
    with open_output_directory(path.parent, make=True) as parent:  # public/ is below it
        with contextlib.suppress(FileExistsError):
            os.mkdir(path.name, 0o700, dir_fd=parent)
        descriptor = os.open(path.name, REAL_DIRECTORY, dir_fd=parent)
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or writers(status):
        os.close(descriptor)
        detail = "belongs to another user, or is writable by other users"
        raise OSError(errno.EPERM, detail, os.fspath(path))
    return descriptor


# The files of a copy.


class NeededFile:
    """A file for the copy. ``path`` is relative to ``public/`` and to the site."""

    def __init__(self, path: str, info: TargetFile, expected: int, *, optional: bool = False) -> None:
        self.path = path
        self.info = info
        self.expected = expected
        """Expected size in bytes."""
        self.optional = optional
        """Whether a site may lack the file. Hosts then use the archive."""

    @property
    def sha256(self) -> str:
        """Return the signed digest."""
        return str(self.info.hashes["sha256"])

    @property
    def is_exact(self) -> bool:
        """Return whether the length in the info is exact. For a compressed file it is an upper limit."""
        return not isinstance(self.info, CompressedFile)

    @classmethod
    def archive(cls, archive: Archive, where: str) -> "NeededFile":
        """Return the archive as a file to copy. Raises `FormatError` for a path without its digest.

        The contents under a name never change.
        """
        path = f"targets/{archive.path}"
        if not Path(path).name.startswith(f"{archive.sha256}.") or path.startswith(FILES):
            raise FormatError(
                f"{where}/{path}", f"expected a name that starts with the sha256 {archive.sha256}"
            )
        info = TargetFile(archive.length, {"sha256": archive.sha256}, archive.path)
        return cls(path, info, archive.length)

    @classmethod
    def file(cls, digest: Digest, shrinks_to: float = 1.0) -> "NeededFile":
        """Return a single file to copy. ``shrinks_to`` is the unsigned compression ratio, used only for progress."""
        info = CompressedFile(digest)
        return cls(f"targets/{info.path}", info, int(digest.length * shrinks_to), optional=True)


class Files:
    """The files below ``public``. ``known`` are the stamps of previously verified files."""

    def __init__(self, public: Path, incoming: Path, mirror: Mirror, known: dict[str, Stamp]) -> None:
        self._public = public
        self._tree = OutputTree(public)
        self._incoming = incoming
        self._mirror = mirror
        self._known = known
        self.stamps: dict[str, Stamp] = {}
        """Stamps of files that match their signed digest."""

    def has(self, needed: NeededFile) -> bool:
        """Return whether a file exists with its signed digest."""
        path = self._public / needed.path
        try:
            result = stamp_of(path)
            if self._known.get(needed.path) != result:
                with open_regular(path) as stream:
                    if not is_target(needed.info, stream):
                        return False
        except OSError:  # missing or not a regular file: it is replaced in both cases
            return False
        self.stamps[needed.path] = result
        return True

    def place(self, needed: NeededFile, check: Callable[[], None]) -> bool:
        """Fetch and verify a file, and move it to its path. Raises like ``fetch_target``.

        Returns False for an optional file that the site lacks.
        """
        staged, path = self._incoming / f"{needed.sha256}.tar.gz", self._public / needed.path
        try:
            fetch_target(self._mirror, needed.info, needed.path, staged, check, is_exact=needed.is_exact)
        except NotFoundError:
            if needed.optional:
                return False
            raise
        with explained(path):
            self._tree.move_in(staged, needed.path)
            self.stamps[needed.path] = stamp_of(path)
        return True

    def read_document(self, info: TargetFile, limit: int) -> bytes:
        """Return an index or a history, from the copy if it is unchanged. Raises like ``download_target``."""
        path = target_path(info)
        try:
            data = read_limited(self._public / path, limit)
            if is_target(info, data):
                return data
        except (OSError, ValueError):
            pass
        buffer = io.BytesIO()
        download_target(self._mirror, info, path, min(info.length, limit), buffer)
        return buffer.getvalue()

    def read_description(self, digest: Digest) -> bytes | None:
        """Return the description of a version, from the copy if possible. ``None`` if the site lacks it."""
        desired = NeededFile.file(digest)
        buffer = io.BytesIO()
        if self.has(desired):
            with explained(self._public / desired.path):
                buffer.write(read_limited(self._public / desired.path, desired.info.length))
        else:
            try:
                download_target(
                    self._mirror,
                    desired.info,
                    desired.path,
                    desired.info.length,
                    buffer,
                    is_exact=desired.is_exact,
                )
            except NotFoundError:
                return None
        buffer.seek(0)
        return b"".join(verified(buffer, digest))


def stamp_of(path: Path) -> Stamp:
    """Return size and modification time. Raises ``OSError``, also for other types of files."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(str(path))
    return status.st_size, status.st_mtime_ns


class _Workflow(SiteWorkflow):
    def all_bins(self) -> dict[str, Targets]:
        """Return every bin, verified as on a host. Requires `refresh` first."""
        check_layout(self.targets, str(self.fetcher.mirror))
        delegations = self.targets.delegations
        roles = delegations.succinct_roles if delegations else None
        # The bins of the delegation and not of the snapshot, so that none can be withheld.
        return {name: self._load_targets(name, Targets.type) for name in (roles.get_roles() if roles else ())}


class Source:
    """The site behind ``mirror``, as of ``now``. ``store`` contains the previously trusted metadata."""

    def __init__(self, mirror: Mirror, store: TrustDirectory, anchor: Anchor, now: datetime) -> None:
        self.mirror = mirror
        self._store = store
        self._anchor = anchor
        self._now = now
        self._bins: dict[str, Targets] = {}

    def refresh(self, before: Mapping[str, bytes]) -> None:
        """Fetch and verify all metadata of the site. Raises like `TrustClient.refresh`.

        ``before`` contains the old timestamp and snapshot for comparison, in case the store lacks them.
        """
        with explained(self._store.path):
            self._store.prepare(self._anchor)
            for name, data in before.items():
                if self._store.read(name) is None:
                    self._store.write(name, data)
            workflow = _Workflow(self._store, self._anchor, self.mirror, self._now)
            try:
                workflow.refresh()
                self._bins = workflow.all_bins()
            except (RepositoryError, DownloadError) as error:
                raise verdict(error, workflow) from error

    @property
    def timestamp(self) -> bytes:
        """Return the site's ``timestamp.json``, after `refresh`."""
        return self._read("timestamp.json")

    def metadata(self) -> dict[str, bytes]:
        """Return all metadata of the timestamp, and the roots from the anchor on, by path."""
        timestamp = Metadata[Timestamp].from_bytes(self.timestamp).signed
        snapshot = self._read("snapshot.json")
        versions = {
            name: meta.version for name, meta in Metadata[Snapshot].from_bytes(snapshot).signed.meta.items()
        }
        desired = {"targets.json", *(f"{name}.json" for name in self._bins)}
        result = {f"{versions[name]}.{name}": self._read(name) for name in desired}
        result[f"{timestamp.snapshot_meta.version}.snapshot.json"] = snapshot
        result["timestamp.json"] = self.timestamp
        return {f"metadata/{name}": data for name, data in (result | self._roots()).items()}

    def earlier_root(self, data: bytes, version: int) -> bytes | None:
        """Return the root before ``version``, whose contents are ``data``. ``None`` if the site no longer has it.

        Hosts that were installed with it need it. Raises `SignatureError` if it does not verify ``data``.
        """
        path = f"metadata/{version - 1}.root.json"
        where, buffer = f"{self.mirror}/{path}", io.BytesIO()
        try:
            self.mirror.download(path, LARGEST_METADATA["root"], buffer)
            root = parse_root(buffer.getvalue(), where)
            following = Metadata.from_bytes(data)
            root.verify_delegate("root", following.signed_bytes, following.signatures)
        except NotFoundError:
            return None
        except (SettingsError, RepositoryError) as error:
            detail = error.what if isinstance(error, SettingsError) else str(error)
            raise SignatureError(where, f"does not lead to root {version}: {detail}") from None
        if root.version != version - 1:
            raise SignatureError(where, f"has version {root.version}", expected=f"{version - 1}")
        return buffer.getvalue()

    def documents(self) -> Iterator[tuple[str | None, TargetFile]]:
        """Yield each index, history and document of site data that a bin names, with its bundle.

        Raises `FormatError` for an unknown target, which the copy would otherwise silently lack.
        """
        for name, of_bin in self._bins.items():
            for path, info in of_bin.targets.items():
                bundle = self._bundle_of(path)
                if bin_of(path, len(self._bins).bit_length() - 1) == name:  # elsewhere hosts ignore it
                    if "sha256" not in info.hashes:
                        raise FormatError(str(self.mirror), f"lists {path} without a sha256")
                    yield bundle, info

    def _bundle_of(self, path: str) -> str | None:
        """Return the bundle of an index or a history, or ``None`` for site data."""
        if data_name(path) is not None:
            return None
        bundle = path.partition("/")[0]
        if path not in (index_path(bundle), history_path(bundle)):
            raise FormatError(
                f"{self.mirror}",
                f"lists {path!r}, which this version of Puller cannot copy: upgrade Puller on this host",
            )
        return parse_name(bundle)

    def _roots(self) -> dict[str, bytes]:
        names = (
            name for name in os.listdir(self._store.path / "root_history") if name.endswith(".root.json")
        )
        return {name: self._read(f"root_history/{name}") for name in names}

    def _read(self, name: str) -> bytes:
        with explained(self._store.path):
            data = self._store.read(name)
        if data is None:
            raise StoreError(
                str(self._store.path / name), "is missing", hint="the next run downloads it again"
            )
        return data
