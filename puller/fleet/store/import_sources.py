"""Sources of an import: a directory or an object store, to which hosts send their documents.

The keys are ``HOST/RUN.json.gz``. Other users write to the sources, so their content is not trusted.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from foundation.object_store import SCHEME, Failure, Location, ObjectStore, ObjectStoreError, StoredObject
from puller.errors import SourceError, UsageError, file_problem, reason
from puller.fleet.host_document import MOST_BYTES, SUFFIXES
from puller.values.host_name import WANTED, is_host_name


class Found(msgspec.Struct, frozen=True):
    """A file that may be a document."""

    path: str
    """Below the source: ``host/run.json.gz``."""
    host: str
    """The directory that it is in."""
    size: int
    """Bytes."""
    stamp: int
    """Of its last change: another one means that it is another file."""


class Refused(msgspec.Struct, frozen=True):
    """A file that is no document, and why."""

    path: str
    why: str


class Gone(Exception):
    """A file that was there a moment ago, and that another import or its host has removed."""


class Unreadable(ValueError):
    """A file that cannot be read now; it may be the next time, without being another one."""


class Source(Protocol):
    """A place that hosts send to. Methods raise ``SourceError`` when it cannot be used at all."""

    name: str
    """Identifies it in the store."""

    def listed(self) -> Iterator[Found | Refused]:
        """All files there; what can be no document is refused."""

    def read(self, found: Found) -> tuple[bytes, datetime]:
        """The bytes of a file, and when it arrived; raises ``ValueError`` saying why it is none, and ``Gone``."""

    def remove(self, found: Found) -> None:
        """Remove a file that was imported, if it is still that one."""

    def close(self) -> None:
        """Let go of it."""


# A directory. Links are not followed, files that could block are not opened, and files over the size limit are not
# read.

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DirectorySource:
    """Methods are those of ``Source``."""

    def __init__(self, name: str, directory: int) -> None:
        self.name = name
        self._directory = directory

    @classmethod
    def open(cls, location: str) -> "DirectorySource":
        """The directory at a path, which may be a link itself; raises ``SourceError``."""
        try:
            return cls(
                os.path.abspath(location), os.open(location, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            )
        except OSError as error:
            raise SourceError(file_problem(error, "cannot be read", where=location)) from error

    def listed(self) -> Iterator[Found | Refused]:
        """As ``Source`` says; raises ``SourceError``."""
        try:
            names = sorted(os.listdir(self._directory))
        except OSError as error:
            raise SourceError(file_problem(error, "cannot be read", where=self.name)) from error
        for host in names:
            if host.startswith("."):  # what is being written, and directories of other programs
                continue
            try:
                of_host = os.open(host, _DIRECTORY, dir_fd=self._directory)
            except NotADirectoryError:
                yield Refused(host, "is no directory of a host")
            except FileNotFoundError:
                continue
            except OSError as error:
                yield Refused(host, f"cannot be read: {reason(error)}")
            else:
                try:
                    yield from self._of_host(host, of_host)
                finally:
                    os.close(of_host)

    def _of_host(self, host: str, of_host: int) -> Iterator[Found | Refused]:
        if not is_host_name(host):
            yield Refused(host, f"is no name of a host, {WANTED}")
            return
        try:
            with os.scandir(of_host) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):  # by time, as runs are named
                    if entry.name.startswith("."):
                        continue
                    path = f"{host}/{entry.name}"
                    if not entry.name.endswith(SUFFIXES):
                        yield Refused(
                            path, f"has another name than a document, wanted {' or '.join(SUFFIXES)}"
                        )
                    elif not entry.is_file(follow_symlinks=False):
                        yield Refused(path, "is no regular file")
                    else:
                        with contextlib.suppress(FileNotFoundError):
                            status = entry.stat(follow_symlinks=False)
                            yield Found(path, host, status.st_size, _stamp(status))
        except OSError as error:
            yield Refused(host, f"cannot be read: {reason(error)}")

    def read(self, found: Found) -> tuple[bytes, datetime]:
        """As ``Source`` says; raises ``ValueError``."""
        if found.size > MOST_BYTES:
            raise ValueError(f"has {found.size} bytes, at most {MOST_BYTES} are read")
        try:
            with self._parent(found) as parent:
                file = os.open(os.path.basename(found.path), _FILE, dir_fd=parent)
            with os.fdopen(file, "rb") as opened:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise ValueError("is no regular file")
                data = opened.read(MOST_BYTES + 1)
        except FileNotFoundError:
            raise Gone from None
        except OSError as error:
            raise Unreadable(f"cannot be read: {reason(error)}") from None
        if len(data) > MOST_BYTES:
            raise ValueError(f"has more than {MOST_BYTES} bytes")
        now = datetime.now(UTC)
        try:
            return data, min(datetime.fromtimestamp(status.st_mtime, UTC), now)
        except (OverflowError, ValueError, OSError):  # a date that no calendar has
            return data, now

    def remove(self, found: Found) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._parent(found) as parent:
            name = os.path.basename(found.path)
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if (status.st_size, _stamp(status)) == (found.size, found.stamp):
                os.unlink(name, dir_fd=parent)

    @contextlib.contextmanager
    def _parent(self, found: Found) -> Iterator[int]:
        parent = os.open(found.host, _DIRECTORY, dir_fd=self._directory)
        try:
            yield parent
        finally:
            os.close(parent)

    def close(self) -> None:
        os.close(self._directory)


def _stamp(status: os.stat_result) -> int:
    """Of the last change of a file, as an integer that databases hold: a file can be of any time."""
    return status.st_mtime_ns & (2**63 - 1)


# An object store, with keys ``PREFIX/HOST/RUN.json.gz``.


class ObjectSource:
    """Methods are those of ``Source``."""

    def __init__(self, store: ObjectStore) -> None:
        self.name = str(store)
        self._store = store
        self._arrived: dict[str, datetime] = {}

    @classmethod
    def open(cls, location: str) -> "ObjectSource":
        """Open ``s3://BUCKET/PREFIX``. Raises ``UsageError``."""
        try:
            return cls(ObjectStore(Location.parse(location), retries={"mode": "standard", "max_attempts": 5}))
        except ValueError as error:
            raise UsageError(str(error)) from None
        except ObjectStoreError as error:
            raise UsageError(str(error), code=error.problem_code) from None

    def listed(self) -> Iterator[Found | Refused]:
        with _explained():
            yield from map(self._found, self._store.objects())

    def _found(self, entry: StoredObject) -> Found | Refused:
        path = entry.path
        host, _, name = path.partition("/")
        if not name or "/" in name:
            return Refused(path, "is no document of a host: wanted HOST/RUN.json.gz")
        if not is_host_name(host):
            return Refused(path, f"is of no name of a host, {WANTED}")
        if not name.endswith(SUFFIXES):
            return Refused(path, f"has another name than a document, wanted {' or '.join(SUFFIXES)}")
        self._arrived[path] = entry.modified
        return Found(path, host, entry.size, int(entry.modified.timestamp() * 1e9))

    def read(self, found: Found) -> tuple[bytes, datetime]:
        """As ``Source`` says; raises ``ValueError``."""
        if found.size > MOST_BYTES:
            raise ValueError(f"has {found.size} bytes, at most {MOST_BYTES} are read")
        with _explained(may_be_gone=True):
            data = self._store.read(found.path, MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"has more than {MOST_BYTES} bytes")
        return data, min(self._arrived.pop(found.path, datetime.now(UTC)), datetime.now(UTC))

    def remove(self, found: Found) -> None:
        with _explained():
            self._store.remove([found.path])

    def close(self) -> None:
        self._store.close()


@contextlib.contextmanager
def _explained(*, may_be_gone: bool = False) -> Iterator[None]:
    try:
        yield
    except ObjectStoreError as error:
        if may_be_gone and error.kind is Failure.NOT_FOUND:
            raise Gone from None
        raise SourceError(str(error), code=error.problem_code) from error


def open_source(location: str) -> Source:
    """The source at a path, or ``s3://BUCKET/PREFIX``; raises ``SourceError`` and ``UsageError``."""
    if location.startswith(SCHEME):
        return ObjectSource.open(location)

    return DirectorySource.open(location)
