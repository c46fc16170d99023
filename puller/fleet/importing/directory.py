"""A directory that documents arrive in: ``HOST/RUN.json.gz``. Others write there, so nothing in it is trusted.

Nothing is reached through a link, nothing is opened that could block, and nothing is read that is too large.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime

from puller.errors import SourceError, file_problem, reason
from puller.fleet.document import MOST_BYTES, SUFFIXES
from puller.fleet.importing.source import Found, Gone, Refused, Unreadable
from puller.values.host_name import WANTED, is_host_name

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
