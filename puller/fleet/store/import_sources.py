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
from puller.errors import MissingSourceError, SourceError, UsageError, file_problem, reason
from puller.fleet.host_document import MOST_BYTES, SUFFIXES
from puller.values.foreign_text import EXPECTED_NAME, is_host_name


class Found(msgspec.Struct, frozen=True):
    """A file that may be a document."""

    path: str
    """Path below the source: ``host/run.json.gz``."""
    host: str
    """Name of its directory."""
    size: int
    """Size in bytes."""
    stamp: int
    """Stamp of its last change. Another stamp means another file."""


class Refused(msgspec.Struct, frozen=True):
    """An invalid file, and the reason."""

    path: str
    why: str


class Gone(Exception):
    """Another import or the host removed the file in the meantime."""


class Unreadable(ValueError):
    """The file cannot be read now. A later import may read it although it is unchanged."""


class Source(Protocol):
    """A place to which hosts send documents. Methods raise ``SourceError`` if it is unusable."""

    name: str
    """Identity in the store."""

    def listed(self) -> Iterator[Found | Refused]:
        """Yield all files. Files that cannot be documents are refused."""

    def read(self, found: Found) -> tuple[bytes, datetime]:
        """Return the bytes of a file and its arrival. Raises ``ValueError`` for an invalid file, and ``Gone``."""

    def remove(self, found: Found) -> None:
        """Remove an imported file, unless it has changed."""

    def close(self) -> None:
        """Release its resources."""


# A directory. Links are not followed, files that could block are not opened, and files over the size limit are not
# read.

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DirectorySource:
    """A directory as ``Source``."""

    def __init__(self, name: str, directory: int) -> None:
        self.name = name
        self._directory = directory

    @classmethod
    def open(cls, location: str) -> "DirectorySource":
        """Open the directory at a path, which may be a link. Raises ``SourceError``."""
        try:
            return cls(
                os.path.abspath(location), os.open(location, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            )
        except FileNotFoundError as error:
            raise MissingSourceError(file_problem(error, "cannot be read", where=location)) from error
        except OSError as error:
            raise SourceError(file_problem(error, "cannot be read", where=location)) from error

    def listed(self) -> Iterator[Found | Refused]:
        """See ``Source``. Raises ``SourceError``."""
        try:
            names = sorted(os.listdir(self._directory))
        except OSError as error:
            raise SourceError(file_problem(error, "cannot be read", where=self.name)) from error
        for host in names:
            if host.startswith("."):  # unfinished files, and directories of other programs
                continue
            try:
                of_host = os.open(host, _DIRECTORY, dir_fd=self._directory)
            except NotADirectoryError:
                yield Refused(host, "is not the directory of a host")
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
            yield Refused(host, f"is not the name of a host, {EXPECTED_NAME}")
            return
        try:
            with os.scandir(of_host) as entries:
                for entry in sorted(
                    entries, key=lambda entry: entry.name
                ):  # by time, because file names are runs
                    if entry.name.startswith("."):
                        continue
                    path = f"{host}/{entry.name}"
                    if not entry.name.endswith(SUFFIXES):
                        yield Refused(
                            path, f"is not the name of a document, expected {' or '.join(SUFFIXES)}"
                        )
                    elif not entry.is_file(follow_symlinks=False):
                        yield Refused(path, "is not a regular file")
                    else:
                        with contextlib.suppress(FileNotFoundError):
                            status = entry.stat(follow_symlinks=False)
                            yield Found(path, host, status.st_size, _stamp(status))
        except OSError as error:
            yield Refused(host, f"cannot be read: {reason(error)}")

    def read(self, found: Found) -> tuple[bytes, datetime]:
        """See ``Source``. Raises ``ValueError`` and ``Gone``."""
        if found.size > MOST_BYTES:
            raise ValueError(f"has {found.size} bytes, at most {MOST_BYTES} are read")
        try:
            with self._parent(found) as parent:
                file = os.open(os.path.basename(found.path), _FILE, dir_fd=parent)
            with os.fdopen(file, "rb") as opened:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise ValueError("is not a regular file")
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
        except (OverflowError, ValueError, OSError):  # a date outside the calendar
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
    """Return the last change of a file as a 63-bit integer, because databases reject larger ones."""
    return status.st_mtime_ns & (2**63 - 1)


# An object store, with keys ``PREFIX/HOST/RUN.json.gz``.


class ObjectSource:
    """An object store as ``Source``."""

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
            return Refused(path, "is not a document of a host, expected HOST/RUN.json.gz")
        if not is_host_name(host):
            return Refused(path, f"does not start with the name of a host, {EXPECTED_NAME}")
        if not name.endswith(SUFFIXES):
            return Refused(path, f"is not the name of a document, expected {' or '.join(SUFFIXES)}")
        self._arrived[path] = entry.modified
        return Found(path, host, entry.size, int(entry.modified.timestamp() * 1e9))

    def read(self, found: Found) -> tuple[bytes, datetime]:
        """See ``Source``. Raises ``ValueError`` and ``Gone``."""
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
    """Open the source at a path, or ``s3://BUCKET/PREFIX``. Raises ``SourceError`` and ``UsageError``."""
    if location.startswith(SCHEME):
        return ObjectSource.open(location)

    return DirectorySource.open(location)
