"""Free space of a disk, asked for before it is used: an update that does not fit is refused before it hurts anybody.

* A reserve stays free, for reports and state and for everybody else on this file system.
* It is a courtesy and no guarantee: others write at the same time, and a disk that is full after all is handled where
  it happens.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from bundles.errors import StoreError
from foundation.quantities import size_text

LARGEST_RESERVE = 16 * 1024 * 1024
"""Bytes; of a small file system a twentieth is kept free instead."""


def check_free_space(where: Path, directory: Path, *, size: int, files: int) -> None:
    """Raises ``StoreError`` about ``where`` when ``files`` new files of ``size`` bytes do not fit below ``directory``.

    A file takes whole blocks, and so at most one block more than its size. Raises ``OSError`` too.
    """
    disk = os.statvfs(directory)
    free, reserve = disk.f_bavail * disk.f_frsize, min(LARGEST_RESERVE, disk.f_blocks * disk.f_frsize // 20)
    needed = size + files * disk.f_frsize
    if needed + reserve > free:
        what = f"needs {size_text(needed)}, and {size_text(reserve)} are to stay free"
        raise StoreError(str(where), f"{what}; {size_text(free)} are free on {_mount_point(directory)}")
    if disk.f_files and files > disk.f_favail:  # Btrfs has no fixed number of inodes, and says 0
        what = f"needs {files} inodes, {disk.f_favail} are free on {_mount_point(directory)}"
        raise StoreError(str(where), what)


def free_space(path: Path) -> str:
    """How much is free where a path is, or would be: ``20.1 MB are free on /var``. Raises ``OSError``."""
    while not path.exists():
        path = path.parent
    disk = os.statvfs(path)
    free = "no inodes" if disk.f_files and not disk.f_favail else size_text(disk.f_bavail * disk.f_frsize)
    return f"{free} are free on {_mount_point(path)}"


@contextlib.contextmanager
def needing(size: int) -> Iterator[None]:
    """Note ``size`` (bytes) on the ``OSError`` of a full disk that passes, for whoever tells it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            error.add_note(f"wanted {size_text(size)}")
        raise


def _mount_point(directory: Path) -> Path:
    """The directory that the file system is mounted on, which people know it by."""
    place = Path(os.path.realpath(directory))
    while place != place.parent and place.stat().st_dev == place.parent.stat().st_dev:
        place = place.parent
    return place
