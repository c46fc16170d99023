"""An archive file that is opened once, so that the extracted bytes are the verified bytes.

* All reads use one descriptor, even if the path later points to another file.
* A file that this run downloaded, and that no other process could open, is read in place. Any other file is copied to
  a private file while it is hashed, because its owner may write to it at any time.
* If the file system is full, the error states the place, the size of the content and the free space.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from bundles.filesystem.atomic import naming
from bundles.filesystem.trees import Counted, open_regular, pieces_of
from puller.errors import ChangedMeanwhile, ResourceError
from puller.resources.archives.archive_receipts import identity_of
from puller.system.safe_paths import open_safely
from puller.values.units import bytes_text

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def needing_space(where: str, directory: int, what: str, need: Callable[[], int | None]) -> Iterator[None]:
    """Raise ``ResourceError`` instead of *no space left*. ``need`` returns the required bytes, if known.

    ``directory`` is an open directory on the file system in question.
    """
    found = os.statvfs(directory)  # measured before, because a failed write leaves no free space
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise

        size, free = need(), bytes_text(found.f_bavail * found.f_frsize)
        space = "space" if size is None else bytes_text(size)
        full = "no space left on the file system" if error.errno == errno.ENOSPC else "no quota left"
        raise ResourceError(f"{where}: {full}: wanted {space} for {what}, {free} were free") from error


_TICK = 20_000_000  # nanoseconds; the kernel's file timestamps advance in steps of up to 10 ms
_COPY = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Opened(msgspec.Struct, frozen=True):
    """An open archive and its expected checksum."""

    path: str
    """The path for messages. It may refer to another file by now."""
    stream: BinaryIO
    sha256: str
    is_ours: bool = False
    """Whether these bytes were hashed and no other user could ever change them."""


@contextmanager
def open_archive(path: str) -> Iterator[BinaryIO]:
    """Open the regular file at ``path``.

    Raises ``OSError``, and ``ResourceError`` for links as ``open_safely`` does.
    """
    directory, name = os.path.split(path)
    with naming(path), open_safely(directory) as parent:
        stream = open_regular(Path(name), directory=parent)
    with stream:
        yield stream


def measure(path: str) -> tuple[str, tuple[int, ...]]:
    """Return the SHA-256 and the identity of the file at ``path``. The identity is empty if the file may have changed.

    A file that changed a moment ago could change again without a new timestamp.
    """
    with open_archive(path) as stream:
        before = os.fstat(stream.fileno())
        is_settled = time.time_ns() - before.st_ctime_ns > _TICK
        digest = Counted(_pieces(stream, before.st_size)).exhaust().sha256
        is_same = identity_of(before) == identity_of(os.fstat(stream.fileno()))
    return digest, identity_of(before) if is_settled and is_same else ()


def measure_when_settled(path: str) -> tuple[str, tuple[int, ...]]:
    """Run ``measure`` on a file that has just changed, after waiting until another change would be visible."""
    with open_archive(path) as stream:
        left = _TICK - (time.time_ns() - os.fstat(stream.fileno()).st_ctime_ns)
    if 0 <= left <= _TICK:
        time.sleep((left + _TICK) / 1e9)
    return measure(path)


@contextmanager
def kept(archive: Opened, directory: int, where: str) -> Iterator[BinaryIO]:
    """Yield the bytes of ``archive`` that no other user can change, from a copy in ``directory`` if necessary.

    Raises ``ChangedMeanwhile`` for another checksum, and ``ResourceError`` if the space for a copy is insufficient.
    ``where`` is for messages.
    """
    archive.stream.seek(0)
    if archive.is_ours:
        yield archive.stream
        return
    size = os.fstat(archive.stream.fileno()).st_size
    with _nameless(directory) as copy:
        with needing_space(where, directory, f"a private copy of {archive.path}", lambda: size):
            digest = _copy(archive.stream, copy, size)
        if digest != archive.sha256:
            what = f"sha256 is {digest}, wanted {archive.sha256}"
            raise ChangedMeanwhile(f"{archive.path}: {what}: it was changed by somebody else meanwhile")
        copy.seek(0)
        yield copy


def _pieces(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file of ``size`` bytes. Ends after that size, even if another process keeps appending."""
    have = 0
    for piece in pieces_of(stream):
        yield piece
        have += len(piece)
        if have > size:
            return


def _copy(stream: BinaryIO, copy: BinaryIO, size: int) -> str:
    counted = Counted(_pieces(stream, size))
    for piece in counted:
        copy.write(piece)
    copy.flush()
    return counted.sha256


def _nameless(directory: int) -> BinaryIO:
    """Create a file without a name, which disappears with its descriptor."""
    name = f"{os.urandom(6).hex()}.copy"
    descriptor = os.open(name, _COPY, 0o600, dir_fd=directory)
    os.unlink(name, dir_fd=directory)  # so that no other process can open it and no kill leaves it
    return open(descriptor, "w+b")
