"""Directory trees on disk, looked at and removed without following a link.

All functions raise ``OSError``.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Self

from bundles.digests import sha256, sha256_beginning

_PIECE = 256 * 1024

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
    """The kind of a file by its ``st_mode``, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "of an unknown kind")


def walk(
    root: Path, leave_out: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below ``root``, as a path relative to it and its ``lstat``; a directory before what it
    holds.

    What ``leave_out`` says yes to, by its last component, is not given, nor what is below it.
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
    """Open a regular file to read, and nothing else: a FIFO here is an error and does not hang.

    ``path`` is relative to the open ``directory``, if one is given. Raises ``OSError``.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, dir_fd=directory)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"is {kind_of(mode)}, wanted a regular file", str(path))
    return open(descriptor, "rb")


def pieces_of(stream: BinaryIO) -> Iterator[bytes]:
    """The rest of ``stream``, in pieces whose size depends on nothing but the rest."""
    while piece := stream.read(_PIECE):
        yield piece


class Counted:
    """Hands on ``pieces``; ``size`` in bytes and ``sha256`` are those of what has passed so far."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.size = 0
        self._digest = sha256()  # of nothing, so far
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
    """Size and SHA-256 of a regular file that may be reached through links."""
    with open_regular(path, follow=True) as stream:
        return Counted(pieces_of(stream)).exhaust()


def sync_filesystem(descriptor: int) -> None:
    """Bring everything that was written to the file system of ``descriptor`` to the disk: syncfs(2).

    For a tree of new files this is as safe as fsync on each of them (Linux reports write errors here since 5.8), and
    for ten thousand of them about ten times as fast, because the disk is told once. ``os.sync`` would also wait for
    every other file system, such as a network share that hangs. Raises ``OSError``.
    """
    import ctypes  # here, because nothing else needs it

    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def remove_tree(root: Path) -> None:
    """Remove a directory with all that is in it, also where directories are read-only."""
    for _, directories, files, descriptor in os.fwalk(root, topdown=False):
        os.fchmod(descriptor, 0o700)  # bundles are read-only, and only who may write a directory may empty it
        for name in (*directories, *files):
            _remove(name, descriptor)
    os.rmdir(root)


def _remove(name: str, directory: int) -> None:
    try:
        os.unlink(name, dir_fd=directory)  # first: a link to a directory is listed among the directories
    except IsADirectoryError:
        os.rmdir(name, dir_fd=directory)
