"""Directory trees on disk, read and removed without following links, and checks of free space for new trees and files.

All functions for trees raise ``OSError``. An update without enough space is rejected early:

* A reserve stays free for reports, state and other users of the file system.
* The check is not a guarantee, because other processes write at the same time. Writers must handle a full disk.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Self

from bundles.digests import sha256, sha256_beginning
from bundles.errors import StoreError
from foundation.quantities import counted, size_text

_PIECE = 256 * 1024
_NO_LINK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFDIR: "a directory",
    stat.S_IFREG: "a regular file",
}


def kind_of(mode: int) -> str:
    """Return the type of a file from its ``st_mode``, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "of an unknown kind")


def walk(
    root: Path, leave_out: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below ``root``, as a relative path with its ``lstat``. A directory comes before its contents.

    Skips an entry and its contents if ``leave_out`` returns True for its name.
    """
    waiting = [""]
    while waiting:
        directory = waiting.pop()
        with os.scandir(root / directory) as entries:
            for entry in entries:
                if leave_out(entry.name):
                    continue
                status = entry.stat(follow_symlinks=False)
                yield directory + entry.name, status
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(f"{directory}{entry.name}/")


def open_regular(path: Path, *, follow: bool = False, directory: int | None = None) -> BinaryIO:
    """Open a regular file for reading. Other types are errors, so that a FIFO does not hang.

    ``path`` is relative to the open ``directory``, if given. Raises ``OSError``.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, dir_fd=directory)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"is {kind_of(mode)}, expected a regular file", str(path))
    return open(descriptor, "rb")


def pieces_of(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of ``stream`` in pieces of fixed size."""
    while piece := stream.read(_PIECE):
        yield piece


class Counted:
    """Passes on ``pieces``, and computes ``size`` in bytes and ``sha256`` of the pieces so far."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.size = 0
        self._digest = sha256()  # of zero bytes
        self._pieces = pieces

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if self.size:
                self._digest.update(piece)
            else:
                self._digest = sha256_beginning(piece)
            self.size += len(piece)
            yield piece

    def exhaust(self) -> Self:
        for _ in self:
            pass
        return self


def measure(path: Path) -> Counted:
    """Return size and SHA-256 of a regular file. Follows links."""
    with open_regular(path, follow=True) as stream:
        return Counted(pieces_of(stream)).exhaust()


def sync_filesystem(descriptor: int) -> None:
    """Flush the file system of ``descriptor``: syncfs(2).

    For a new tree this is as safe as fsync on each file (Linux reports write errors since 5.8). For ten thousand files
    it is about ten times as fast, because the disk is flushed once. ``os.sync`` would also wait for other file systems,
    such as a hanging network share. Raises ``OSError``.
    """
    import ctypes  # 1 % of an idle run, which writes no tree

    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def walk_directories(top: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each directory with the names of its directories and files, as ``os.walk`` does.

    ``os.walk`` of Python 3.11 is recursive, and fails in a deep tree. The caller may sort and shorten the first list.
    """
    pending = [top]
    while pending:
        directory = pending.pop()
        names: list[str] = []
        files: list[str] = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    (names if entry.is_dir() else files).append(entry.name)
        except OSError:
            continue
        yield directory, names, files
        paths = [os.path.join(directory, name) for name in names]
        pending += (path for path in reversed(paths) if not os.path.islink(path))


def remove_tree(root: Path) -> None:
    """Remove a directory with its contents, even if directories are read-only."""
    remove_directory(str(root), forced=True)


def remove_directory(name: str, *, within: int | None = None, forced: bool = False) -> None:
    """Remove the directory ``name`` below the open directory ``within``, with its contents."""
    top = os.open(name, _NO_LINK, dir_fd=within)
    try:
        if forced:
            os.fchmod(top, 0o700)
        names = os.listdir(top)
        while names:  # each directory is listed once, so that new files cannot prolong the loop
            names += _remove(names.pop(), top, forced=forced)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=within)


def _remove(name: str, top: int, *, forced: bool) -> list[str]:
    """Remove a file, or a directory. Return the new names of its own directories, which move to ``top``."""
    moved: list[str] = []
    try:
        os.unlink(name, dir_fd=top)  # first, because a link to a directory is removed like a file
        return moved
    except IsADirectoryError:
        directory = os.open(name, _NO_LINK, dir_fd=top)
    try:
        if forced:
            os.fchmod(directory, 0o700)
        for inner in os.listdir(directory):
            try:
                os.unlink(inner, dir_fd=directory)
            except IsADirectoryError:
                moved.append(_move_up(inner, directory, top, forced=forced))
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=top)
    return moved


def _move_up(name: str, directory: int, top: int, *, forced: bool) -> str:
    if forced:  # moving a directory requires write permission in it, except for root
        descriptor = os.open(name, _NO_LINK, dir_fd=directory)
        try:
            os.fchmod(descriptor, 0o700)
        finally:
            os.close(descriptor)
    new_name = f".{os.urandom(12).hex()}"
    os.rename(name, new_name, src_dir_fd=directory, dst_dir_fd=top)
    return new_name


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
