"""Checks of free disk space, so that an update without enough space is rejected early.

* A reserve stays free for reports, state and other users of the file system.
* The check is not a guarantee, because other processes write at the same time. Writers must handle a full disk.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from bundles.errors import StoreError
from foundation.quantities import counted, size_text

LARGEST_RESERVE = 16 * 1024 * 1024
"""Bytes. On a small file system, a twentieth of its size."""


def check_free_space(where: Path, directory: Path, *, size: int, files: int) -> None:
    """Raise ``StoreError`` about ``where`` if ``files`` new files of ``size`` bytes do not fit below ``directory``.

    A file occupies whole blocks, so at most one block more than its size. Also raises ``OSError``.
    """
    disk = os.statvfs(directory)
    free, reserve = disk.f_bavail * disk.f_frsize, min(LARGEST_RESERVE, disk.f_blocks * disk.f_frsize // 20)
    needed = size + files * disk.f_frsize
    if needed + reserve > free:
        detail = f"requires {size_text(needed)} and a reserve of {size_text(reserve)}"
        raise StoreError(str(where), f"{detail}, but {size_text(free)} are free on {_mount_point(directory)}")
    if disk.f_files and files > disk.f_favail:  # Btrfs reports 0, because it has no fixed number of inodes
        detail = (
            f"requires {counted(files, 'inode')}, but {disk.f_favail} are free on {_mount_point(directory)}"
        )
        raise StoreError(str(where), detail)


def free_space(path: Path) -> str:
    """Return the free space at a path that may not exist yet: ``20.1 MB are free on /var``. Raises ``OSError``."""
    while not path.exists():
        path = path.parent
    disk = os.statvfs(path)
    free = "no inodes" if disk.f_files and not disk.f_favail else size_text(disk.f_bavail * disk.f_frsize)
    return f"{free} are free on {_mount_point(path)}"


@contextlib.contextmanager
def needing(size: int) -> Iterator[None]:
    """Add ``size`` (bytes) as a note to an ``OSError`` of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            error.add_note(f"requires {size_text(size)}")
        raise


def _mount_point(directory: Path) -> Path:
    """Return the mount point of the file system, which users know."""
    place = Path(os.path.realpath(directory))
    while place != place.parent and place.stat().st_dev == place.parent.stat().st_dev:
        place = place.parent
    return place
