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
    """Remove a directory with all that is in it, also where directories are read-only."""
    remove_directory(str(root), forced=True)


def remove_directory(name: str, *, within: int | None = None, forced: bool = False) -> None:
    """Remove the directory ``name``, which is below the open directory ``within``, with all that is in it.

    ``forced`` makes directories writable first. Deep trees are made flat: a directory moves to the top before it is
    emptied. So neither the stack nor open files grow with the depth, and a tree of any depth takes linear time.
    """
    top = os.open(name, _NO_LINK, dir_fd=within)
    try:
        if forced:
            os.fchmod(top, 0o700)
        names = os.listdir(top)
        while names:  # each directory is listed once, so that nobody who adds files keeps this going
            names += _remove(names.pop(), top, forced=forced)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=within)


def _remove(name: str, top: int, *, forced: bool) -> list[str]:
    """Remove a file, or a directory. Return the new names of its own directories, which move to ``top``."""
    moved: list[str] = []
    try:
        os.unlink(name, dir_fd=top)  # first: a link to a directory is no directory
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
    if forced:  # who is not root may only move a directory that is writable
        descriptor = os.open(name, _NO_LINK, dir_fd=directory)
        try:
            os.fchmod(descriptor, 0o700)
        finally:
            os.close(descriptor)
    new_name = f".{os.urandom(12).hex()}"
    os.rename(name, new_name, src_dir_fd=directory, dst_dir_fd=top)
    return new_name
