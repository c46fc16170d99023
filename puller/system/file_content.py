"""The content of regular files, read from one open descriptor, and the kernel's parameter files.

* Reading never follows a link at the end of a path, and never blocks on a FIFO.
* A file is unchanged if its identity is the same. Otherwise reading raises ``ChangedMeanwhile``.
* Parameter files below ``/proc/sys`` are never replaced. Each holds one value, and a write changes the value.
"""

import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from puller.errors import ChangedMeanwhile

PIECE = 32 * 1024
"""Bytes. Larger files are read in several pieces."""
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""The flags to open a path that may have become a FIFO or a link."""


def of_size(path: str, stream: BinaryIO, size: int) -> bytes:
    """Return the content of a file of ``size`` bytes.

    Raises ``ChangedMeanwhile`` if the file is shorter or longer, because its size was checked before.
    """
    pieces, remaining = [], size + 1
    while remaining and (piece := stream.read(remaining)):
        pieces.append(piece)
        remaining -= len(piece)
    if remaining != 1:
        raise ChangedMeanwhile(f"{path}: another process wrote to it while Puller read it")
    return b"".join(pieces)


def open_regular(path: str) -> int:
    """Return a descriptor of a regular file. Raises ``ChangedMeanwhile`` for any other file, and ``OSError``."""
    return open_and_measure(path)[0]


def open_and_measure(path: str) -> tuple[int, int]:
    """Return a descriptor like ``open_regular``, and the size, which is 0 for kernel files.

    Raises ``ChangedMeanwhile`` for any other file than a regular one, and ``OSError``.
    """
    descriptor = os.open(path, READING)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ChangedMeanwhile(f"{path}: is no longer a regular file")
    return descriptor, status.st_size


def read_all(descriptor: int, size: int) -> bytes:
    """Return the whole content, and close the descriptor. A file object makes more system calls.

    If the file has ``size`` bytes and one more cannot be read, it is complete.
    """
    pieces = []
    try:
        if 0 < size < PIECE:
            pieces.append(os.read(descriptor, size + 1))
            if len(pieces[0]) == size:
                return pieces[0]
        while piece := os.read(descriptor, PIECE):
            pieces.append(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def begins_with(descriptor: int, content: bytes) -> bool:
    """Return whether the next bytes of a descriptor are ``content``."""
    remainder = memoryview(content)
    while remainder:
        piece = os.read(descriptor, min(len(remainder), PIECE))
        if not piece or remainder[: len(piece)] != piece:
            return False
        remainder = remainder[len(piece) :]
    return True


def copied(path: str, looked_at: os.stat_result) -> Iterator[bytes]:
    """Yield the content of a file in pieces. Raises ``ChangedMeanwhile`` if the file changes meanwhile."""
    with open(open_regular(path), "rb", buffering=0) as stream:
        require_same(path, looked_at, os.fstat(stream.fileno()))
        remaining = looked_at.st_size
        while remaining and (piece := stream.read(min(remaining, 1 << 20))):
            remaining -= len(piece)
            yield piece
        if remaining or stream.read(1):
            raise ChangedMeanwhile(f"{path}: another process wrote to it while Puller copied it")
        require_same(path, looked_at, os.fstat(stream.fileno()))


def identity(found: os.stat_result) -> tuple[int, ...]:
    """Return the identity of a file. It includes the change time, because inode numbers are reused."""
    return found.st_dev, found.st_ino, found.st_mode, found.st_ctime_ns


def require_same(path: str, looked_at: os.stat_result, found: os.stat_result) -> None:
    """Raise ``ChangedMeanwhile`` if two ``stat`` results differ in file or state."""
    if identity(looked_at) != identity(found):
        raise ChangedMeanwhile(f"{path}: another process replaced it while Puller inspected it")


PROC_SYS = "/proc/sys"
"""The directory of all kernel parameters."""


def is_parameter(path: str) -> bool:
    """Return whether a path is a kernel parameter."""
    return path.startswith(f"{PROC_SYS}/")
