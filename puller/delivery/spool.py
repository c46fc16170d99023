"""Spools: documents that wait for a destination.

    <state>/spool/<sixteen digits of the destination's SHA-256>/<run>-failed.json.gz
                                                                <run>-other.json.gz

* A document enters the spool before it is sent and leaves it after delivery. After a kill in between it is sent again,
  so no document is lost.
* Beyond the limits, the oldest documents without failures are removed first, then the oldest with failures. The newest
  document always stays.
* A damaged document is set aside with a warning and does not block others.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from bundles.deadline import Deadline
from bundles.filesystem.atomic import open_directory, remove_any
from foundation.quantities import counted
from puller.delivery.report_document import LARGEST, host_of
from puller.state.state_file import read_state, set_aside, write_state

_NAME = re.compile(r"([0-9]{8}T[0-9]{6}\.[0-9]{6}Z)-(failed|other)\.json\.gz")
_DIRECTORY = re.compile(r"[0-9a-f]{16}")
_LOOK = 0.1
"""Seconds between two attempts at a lock."""

Warn = Callable[[str], None]


class Waiting(msgspec.Struct, frozen=True, order=True):
    """A document in a spool."""

    run: str
    """Identity of the run. Sorts by time."""
    failed: bool
    size: int
    """Bytes."""

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"{self.run}-{'failed' if self.failed else 'other'}.json.gz"


class Spool:
    """The spool of one destination below ``directory``, limited to ``count`` documents and ``size`` bytes in total."""

    def __init__(self, directory: Path, location: str, count: int, size: int) -> None:
        """``location`` must not contain credentials, so that a new password keeps the spool."""
        self.path = directory / hashlib.sha256(location.encode()).hexdigest()[:16]
        self._count = count
        self._size = size

    def put(self, run: str, data: bytes, warn: Warn, *, failed: bool) -> int:
        """Store a document durably. Return the number of removed documents. Raises ``OSError``."""
        make_directory(self.path.parent, warn)
        make_directory(self.path, warn)
        retained = Waiting(run, failed, len(data))
        write_state(self.path / retained.name, data)
        gone = list(_beyond(self.waiting(), self._count, self._size))
        for item in gone:
            self.remove(item)
        return len(gone)

    def waiting(self) -> list[Waiting]:
        """Return all documents, newest first. Raises ``OSError``."""
        return sorted(self._found(), reverse=True)

    def next(self, tried: Collection[str]) -> Waiting | None:
        """Return the next document to send, or ``None`` if the runs ``tried`` include all.

        Documents newer than all tried ones come first, then failed runs, then other runs, each newest first. Raises
        ``OSError``.
        """
        remaining = [item for item in self.waiting() if item.run not in tried]
        newer = [item for item in remaining if item.run > max(tried, default="")]
        return next(iter([*newer, *sorted(remaining, key=lambda item: not item.failed)]), None)

    def read(self, one: Waiting, warn: Warn) -> bytes | None:
        """Return a document, or ``None`` if it is gone or damaged. Set aside a damaged one. Raises ``OSError``."""
        path = self.path / one.name
        try:
            data = read_state(path, LARGEST)
            host_of(data)
        except FileNotFoundError:
            return None
        except ValueError as error:
            warn(f"{path}: {error}, set aside as {set_aside(path)}, so this report is not sent")
            return None
        return data

    def remove(self, one: Waiting) -> None:
        """Remove a document, if it exists. Raises ``OSError``."""
        (self.path / one.name).unlink(missing_ok=True)

    @contextmanager
    def sending(self, deadline: Deadline) -> Iterator[None]:
        """Lock the spool while the block runs. Raises ``DeadlineError`` if another process keeps the lock."""
        with open_directory(self.path) as descriptor:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    deadline.pause(_LOOK)
            yield  # closing the descriptor releases the lock

    def _found(self) -> Iterator[Waiting]:
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                if match := _NAME.fullmatch(entry.name):
                    size = entry.stat(follow_symlinks=False).st_size
                    yield Waiting(match[1], match[2] == "failed", size)


def make_directory(path: Path, warn: Warn) -> None:
    """Make a private directory. Set aside anything else at its path. Raises ``OSError``."""
    if os.path.lexists(path) and not path.is_dir():
        warn(f"{path}: is not a directory, set aside as {set_aside(path)}")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def forget_others(directory: Path, kept: Collection[Path], warn: Warn) -> None:
    """Remove the spools of destinations that are no longer configured. Raises ``OSError``."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in directory.iterdir():
            if _DIRECTORY.fullmatch(path.name) and path not in kept:
                waited = len(list(path.glob("*.json.gz")))
                remove_any(path)
                if waited:
                    what = counted(waited, "report was", "reports were")
                    warn(f"{what} removed: the destination is no longer configured")


def _beyond(waiting: list[Waiting], count: int, size: int) -> Iterator[Waiting]:
    """Yield the documents beyond the limits, never the newest one."""
    remaining, total = len(waiting), sum(item.size for item in waiting)
    for item in sorted(waiting[1:], key=lambda item: (item.failed, item.run)):
        if remaining <= count and total <= size:
            return
        remaining, total = remaining - 1, total - item.size
        yield item
