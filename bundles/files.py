"""The one way in which this project writes files, its own state and the files that it manages.

* After any crash a path holds its old content or its new content, never a part of either.
* A file never exists at its path with other than its final owner, mode and content.
* Only *not found* means absent; every other trouble while reading is an error of the caller's.
"""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

Pathish = str | os.PathLike[str]


def write_file(
    path: Pathish, data: bytes, *, mode: int = 0o644, uid: int | None = None, gid: int | None = None
) -> None:
    """Write ``data`` to ``path`` atomically and durably.

    ``mode`` is the final permission bits, whatever the umask; ``uid`` and ``gid`` are ids, ``None`` leaves the
    running user's. Raises ``OSError``; the old file is untouched then and no temporary file stays behind.
    """
    directory, name = os.path.split(os.fspath(path))
    with open_directory(directory or ".") as descriptor:
        replace_file(descriptor, name, [data], mode=mode, uid=uid, gid=gid)


def replace_file(
    directory: int,
    name: str,
    chunks: Iterable[bytes],
    *,
    mode: int,
    uid: int | None = None,
    gid: int | None = None,
    labels_from: int | None = None,
) -> None:
    """What ``write_file`` does, for ``name`` in an open directory.

    ``labels_from`` is a descriptor of the file being replaced: its extended attributes (ACLs, SELinux label,
    capabilities excepted) are carried over.
    """
    # A random name and O_EXCL: a link planted at the temporary name is an error, never followed.
    temporary = f".{_shortened(name)}.{os.urandom(6).hex()}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        try:
            if labels_from is not None:
                _copy_labels(labels_from, descriptor)
            # Owner before mode: chown clears bits of the mode, and a mode set first would be open to the old owner.
            if uid is not None or gid is not None:
                os.fchown(descriptor, -1 if uid is None else uid, -1 if gid is None else gid)
            os.fchmod(descriptor, mode)
            for chunk in chunks:
                _write_all(descriptor, chunk)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    os.fsync(directory)


def _shortened(name: str) -> str:
    """The beginning of a name, so that there is room for more in the 255 bytes that file systems take."""
    return os.fsdecode(os.fsencode(name)[:200])


def _write_all(descriptor: int, data: bytes) -> None:
    """A short write (a full disk, a signal) is continued until the kernel gives an error."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


# A capability belongs to the content that it was granted to, and a file system that has no labels is no failure.
_NOT_CARRIED = ("security.capability", "security.ima", "security.evm")
_NO_LABELS = (errno.ENOTSUP, errno.EPERM, errno.EINVAL)


def _copy_labels(source: int, target: int) -> None:
    try:
        for name in os.listxattr(source):
            if name not in _NOT_CARRIED:
                os.setxattr(target, name, os.getxattr(source, name))
    except OSError as error:
        if error.errno not in _NO_LABELS:
            raise


@contextlib.contextmanager
def open_directory(path: Pathish) -> Iterator[int]:
    """A descriptor of a directory, so that what follows stays in it whatever happens to its name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_directory(path: Pathish) -> None:
    """Make renames in this directory survive a power cut; raises ``OSError``."""
    with open_directory(path) as descriptor:
        os.fsync(descriptor)


def read_limited(path: str | Path, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes; raises ``OSError``, and ``ValueError`` when it is larger.

    Opened without blocking, so that a FIFO in the way is an error and not a hang.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{path}: larger than the limit of {limit} bytes")
    return data
