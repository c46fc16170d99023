"""State and files of a copied site.

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
"""

import contextlib
import errno
import fcntl
import io
import os
import stat
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from bundles.client.targets import CompressedFile, download_target, explained, fetch_target, is_target
from bundles.client.trust import Anchor
from bundles.errors import FormatError, NotFoundError, SettingsError, StoreError
from bundles.filesystem.atomic import read_limited, write_file
from bundles.filesystem.output import OutputTree, open_output_directory
from bundles.filesystem.safe_paths import REAL_DIRECTORY, others_can_exchange, writers
from bundles.filesystem.trees import open_regular
from bundles.format.compressed_file import verified
from bundles.format.index import Archive, Digest
from bundles.format.metadata import target_path
from bundles.format.tuf import TargetFile
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
                if others_can_exchange(os.path.abspath(named)):
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


class Wanted:
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
    def archive(cls, archive: Archive, where: str) -> "Wanted":
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
    def file(cls, digest: Digest, shrinks_to: float = 1.0) -> "Wanted":
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

    def has(self, wanted: Wanted) -> bool:
        """Return whether a file exists with its signed digest."""
        path = self._public / wanted.path
        try:
            result = stamp_of(path)
            if self._known.get(wanted.path) != result:
                with open_regular(path) as stream:
                    if not is_target(wanted.info, stream):
                        return False
        except OSError:  # missing or not a regular file: it is replaced in both cases
            return False
        self.stamps[wanted.path] = result
        return True

    def place(self, wanted: Wanted, check: Callable[[], None]) -> bool:
        """Fetch and verify a file, and move it to its path. Raises like ``fetch_target``.

        Returns False for an optional file that the site lacks.
        """
        staged, path = self._incoming / f"{wanted.sha256}.tar.gz", self._public / wanted.path
        try:
            fetch_target(self._mirror, wanted.info, wanted.path, staged, check, is_exact=wanted.is_exact)
        except NotFoundError:
            if wanted.optional:
                return False
            raise
        with explained(path):
            self._tree.move_in(staged, wanted.path)
            self.stamps[wanted.path] = stamp_of(path)
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
        desired = Wanted.file(digest)
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
