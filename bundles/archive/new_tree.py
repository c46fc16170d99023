"""A bundle's tree on the disk, made anew: what unpacks an archive, and what puts a bundle together, write through this.

* Nothing is created, changed or touched outside the directory that is being filled.
* The destination exists once it is complete and on the disk; until then it does not.
* What is there is read-only, and is never written to again. No file of it is another name of a file elsewhere: a
  clone (reflink) shares blocks of the disk until one of the two is changed, and never a change.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from bundles.errors import StoreError
from bundles.filesystem.atomic import sync_directory
from bundles.filesystem.trees import pieces_of, remove_tree, sync_filesystem
from bundles.format.paths import MemberPath

FILE_MODE = 0o444
_DIRECTORY_MODE = 0o555
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FICLONE = 0x40049409
"""Of linux/fs.h; the module ``fcntl`` has it from Python 3.12 on."""


def fill_and_place(destination: Path, fill: Callable[["NewTree"], None]) -> None:
    """Let ``fill`` write all files of ``destination``, which must not exist; its parent must.

    Raises ``StoreError`` when it does, ``OSError``, and what ``fill`` raises; nothing is left then.

    1. Make a directory beside the destination, under a hidden name and for its owner alone.
    2. Let it be filled.
    3. Close all directories to writing, and wait until everything is on the disk.
    4. Rename the directory to the destination, and bring that to the disk, too.
    """
    if os.path.lexists(destination):
        raise StoreError(str(destination), "exists already")
    # 1. Beside the destination, so that the rename stays within a file system; private until it is complete.
    staging = destination.with_name(f".{destination.name}.{os.urandom(6).hex()}.new")
    os.mkdir(staging, 0o700)
    try:
        with NewTree(staging) as tree:
            fill(tree)  # 2.
            tree.finish()  # 3.
        # 4.
        os.rename(staging, destination)
    except BaseException:
        with suppress(OSError):  # the first error says more, and nobody takes what is left for a bundle
            remove_tree(staging)
        raise
    sync_directory(destination.parent)


class NewTree:
    """A new directory and the files put into it, in the order of their names.

    Every step is relative to the descriptor of a directory that was made here a moment ago, so there is no
    path in which another process, or an earlier member, could put a link. In the order of names a directory's
    files come one after the other, except those of directories below it: the descriptors open at one time are
    those of one path.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, _DIRECTORY)
        self._open: list[tuple[str, int]] = []

    def __enter__(self) -> "NewTree":
        return self

    def __exit__(self, *_: object) -> None:
        for _name, descriptor in self._open:
            os.close(descriptor)
        os.close(self._root)

    def write(self, path: MemberPath, pieces: Iterator[bytes], mode: int) -> None:
        """The next file, of these contents."""
        with self._created(path, mode) as stream:
            stream.writelines(pieces)

    def copy(self, path: MemberPath, source: BinaryIO, mode: int) -> Iterator[bytes]:
        """The next file, of the contents of another: cloned where the file system can, else copied.

        In pieces, which are what is in the new file now, for whoever calls to verify.
        """
        with self._created(path, mode) as stream:
            if _is_cloned(source, stream):
                yield from pieces_of(stream)
                return
            for piece in pieces_of(source):
                stream.write(piece)
                yield piece

    def finish(self) -> None:
        """Close all directories to writing, and wait until everything is on the disk."""
        self._leave(0)
        os.fchmod(self._root, _DIRECTORY_MODE)
        sync_filesystem(self._root)

    @contextmanager
    def _created(self, path: MemberPath, mode: int) -> Iterator[BinaryIO]:
        *directories, name = path.parts
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=self._enter(directories))
        with open(descriptor, "w+b") as stream:
            os.fchmod(descriptor, mode)
            yield stream

    def _enter(self, directories: list[str]) -> int:
        """The descriptor of a directory, made now unless the file before was in it too."""
        shared = 0
        for (name, _), wanted in zip(self._open, directories, strict=False):
            if name != wanted:
                break
            shared += 1
        self._leave(shared)
        for name in directories[shared:]:
            os.mkdir(name, 0o700, dir_fd=self._current())
            self._open.append((name, os.open(name, _DIRECTORY, dir_fd=self._current())))
        return self._current()

    def _leave(self, depth: int) -> None:
        while len(self._open) > depth:
            _, descriptor = self._open.pop()
            try:
                os.fchmod(descriptor, _DIRECTORY_MODE)
            finally:
                os.close(descriptor)

    def _current(self) -> int:
        return self._open[-1][1] if self._open else self._root


def _is_cloned(source: BinaryIO, target: BinaryIO) -> bool:
    """Whether ``target`` is a clone of ``source`` now: not on every file system, and not from one to another."""
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True
