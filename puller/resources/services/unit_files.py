"""Unit files on disk, and whether systemd has read their current version.

* ``NeedDaemonReload`` is not reliable. systemd 252 reports *no* for a first drop-in, for a unit file that replaces one
  in ``/usr/lib``, and for a file that is older than the replaced file.
* Instead, the inode change time of each file is compared with the time of systemd's last reload, whatever process
  wrote the file. Users cannot set this time.
* The file versions that systemd has read are recorded. If the disk matches the record, systemd is not queried.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from puller.state import StateFile
from puller.system.protocol import System

UNIT_DIRECTORIES = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
"""Directories of the system's unit files (systemd.unit(5)) that a manifest may write to."""

Listing = dict[str, tuple[int, int]]
"""Every path, with its inode and change time in nanoseconds."""


class UnitFiles:
    """The files of all units in ``directories``. ``path`` stores the versions that systemd has read."""

    def __init__(
        self,
        system: System,
        directories: Sequence[str],
        path: Path | None,
        warn: Callable[[str], None],
        *,
        noop: bool,
    ) -> None:
        self._system = system
        self._written = directories
        self._noop = noop
        self._file = StateFile(path, Listing, "Puller asks systemd for its loaded files") if path else None
        self._read: Listing = {}
        with contextlib.suppress(OSError):  # the record only saves a query
            self._read = (self._file and self._file.load(warn, noop=noop)) or {}

    def look(self) -> Listing:
        """Return the current files. Raises ``OSError``."""
        listing: Listing = {}
        for directory in self._directories():
            listing.update(self._below(directory))
        return listing

    def _directories(self) -> set[str]:
        """Return the real paths without duplicates, because /lib is usually /usr/lib."""
        return {os.path.realpath(path) for path in self._written}

    def _below(self, directory: str) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield a directory and two levels below it. Unit directories are not deeper."""
        if (itself := self._system.lstat(directory)) is None:
            return
        yield directory, _version(itself)
        for path, found in self._children(directory):
            yield path, _version(found)
            if stat.S_ISDIR(found.st_mode):
                yield from ((inner, _version(of_inner)) for inner, of_inner in self._children(path))

    def _children(self, directory: str) -> list[tuple[str, os.stat_result]]:
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile, which changes the parent's time
            return [(f"{directory}/{name}", found) for name, found in self._system.children(directory)]
        return []

    def is_read(self, found: Listing, last_read: Callable[[], float | None]) -> bool:
        """Return whether systemd has read these files.

        ``last_read`` returns the time of systemd's last reload (seconds since 1970), ``None`` if unknown.
        """
        if found == self._read:
            return True
        if not self._read.keys() & self._directories() <= found.keys():
            return False  # removing a whole directory does not change the time of a listed path
        when = last_read()
        # Strictly before: files that changed at that moment may be unread.
        return when is not None and all(changed < when * 1e9 for _, changed in found.values())

    def remember(self, found: Listing) -> None:
        """Record that systemd has read these files."""
        if found != self._read:
            self._read = found
            if self._file and not self._noop:
                with contextlib.suppress(OSError):  # on a full disk the next run queries again
                    self._file.save(found)


def parse_last_read(shown: str, now: float, monotonic: float) -> float | None:
    """Return when systemd last read its files, from the output of ``systemctl show``. ``None`` if unknown.

    ``now`` and ``monotonic`` are the current time on both clocks. Return the earlier result: the wall clock may have
    been set meanwhile, and the monotonic clock stops while the machine sleeps.
    """
    provided = dict(line.partition("=")[::2] for line in shown.splitlines())
    try:
        _, day, hour, zone = provided["UnitsLoadTimestamp"].split()
        read = datetime.fromisoformat(f"{day} {hour}+00:00").timestamp()
        since = monotonic - int(provided["UnitsLoadTimestampMonotonic"]) / 1e6
    except (KeyError, ValueError):
        return None
    return min(read, now - since) if zone == "UTC" else None


def _version(status: os.stat_result) -> tuple[int, int]:
    return status.st_ino, status.st_ctime_ns
