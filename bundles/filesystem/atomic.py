"""Atomic writes of files, for Puller's own state and for managed files.

* After any crash a path has its old or its new content, never a part of either.
* A file never exists at its path without its final owner, mode and content.
* The next writer in a directory removes temporary files of killed processes, but not of running ones.
* Only *not found* means absent. Callers must treat every other failure to read as an error.
"""

import contextlib
import errno
import fcntl
import io
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bundles.filesystem.trees import remove_tree

Pathish = str | os.PathLike[str]

_PIECE = 8192  # bytes; files such as those in /proc report a size of 0
_MOST_KEPT = 3
_SET_ID = stat.S_ISUID | stat.S_ISGID
_LEFTOVER = r"\..+\.[0-9a-f]{12}\.new(\.[^.]+)?"
_LONGEST_SUFFIX = 32  # bytes


def write_file(
    path: Pathish,
    data: bytes,
    *,
    mode: int = 0o644,
    uid: int | None = None,
    gid: int | None = None,
    durable: bool = True,
) -> None:
    """Write ``data`` to ``path`` atomically. Without ``durable``, a power failure may undo the write or empty the file.

    ``mode`` is the final mode, regardless of the umask. ``uid`` and ``gid`` are ids, and ``None`` is the running user.
    Raises ``OSError``. The old file then stays unchanged, and the temporary file is removed.
    """
    directory, name = os.path.split(os.fspath(path))
    with naming(path), open_directory(directory or ".") as descriptor:
        remove_leftovers(descriptor)
        replace_file(descriptor, name, [data], mode=mode, uid=uid, gid=gid, durable=durable)


@contextlib.contextmanager
def naming(path: Pathish) -> Iterator[None]:
    """Let system errors name ``path`` instead of a temporary name or a descriptor."""
    try:
        yield
    except OSError as error:
        by = error.filename
        if not isinstance(by, str) or not by.startswith("/") or by.startswith("/proc/self/fd/"):
            error.filename, error.filename2 = os.fspath(path), None
        raise


def replace_file(
    directory: int,
    name: str,
    chunks: Iterable[bytes],
    *,
    mode: int,
    uid: int | None = None,
    gid: int | None = None,
    labels_from: int | None = None,
    times: os.stat_result | None = None,
    durable: bool = True,
    verify: Callable[[str, int], None] | None = None,
    is_new: bool = False,
) -> None:
    """Write ``chunks`` to ``name`` in an open directory, atomically. The arguments are as for ``write_file``.

    ``labels_from`` is a descriptor of the replaced file: its extended attributes (ACLs, SELinux label, but not
    capabilities) are copied. The ACL is discarded if the former owner is another user, and if the new file has a set-id
    bit. The new file gets the modification time of ``times``. ``verify`` receives the temporary name, which has the
    suffix of ``name``, and a descriptor for reading. With ``is_new``, nothing is replaced: an existing name raises
    ``FileExistsError``. Raises ``OSError``, and the errors of ``chunks`` and ``verify``.
    The old file then stays unchanged, and the temporary file is removed.

    1. Create a private file with a random name in the same directory, and lock it.
    2. Remove inherited access control lists, and copy those of the replaced file.
    3. Write the content.
    4. Set the owner, then the mode.
    5. Verify the final file through a read-only descriptor, because a file open for writing cannot be executed.
    6. Flush the file: a rename that reaches the disk before the content would leave an empty file.
    7. Rename it to ``name``.
    8. Flush the directory with the rename.
    """
    # 1.
    descriptor, temporary = _create(directory, name, mode & 0o600, _suffix(name) if verify else "")
    try:
        with in_progress(descriptor):
            # 2.
            remove_foreign_acls(descriptor, directory, uid)
            if labels_from is not None:
                # The former owner may have added an entry for himself. A set-id program that a user of the list can
                # write runs the content of that user.
                keeps_acl = os.fstat(labels_from).st_uid in (0, os.geteuid(), uid) and not mode & _SET_ID
                _copy_labels(labels_from, descriptor, mode, keeps_acl=keeps_acl)
            # 3.
            for chunk in chunks:
                write_all(descriptor, chunk)
            # 4. Owner before mode: a mode set first would be open to the old owner. Both after the content: chown
            # clears bits of the mode, and so does a write, unless it is root's.
            if uid is not None or gid is not None:
                os.fchown(descriptor, -1 if uid is None else uid, -1 if gid is None else gid)
            os.fchmod(descriptor, mode)
            if times is not None:
                os.utime(descriptor, ns=(times.st_atime_ns, times.st_mtime_ns))
            # 5.
            if verify is not None:
                _close_for_writing(descriptor)
                verify(temporary, descriptor)
            # 6.
            if durable:
                os.fsync(descriptor)
            # 7.
            if is_new:  # a link fails if the name exists, also if another process has just created it
                os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
                os.unlink(temporary, dir_fd=directory)
            else:
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    # 8.
    if durable:
        os.fsync(directory)


def _create(directory: int, name: str, mode: int, suffix: str) -> tuple[int, str]:
    """Create and lock a new file. Returns its descriptor and temporary name.

    Another process may remove the file as a leftover before it is locked. Then create it again.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        temporary = temporary_name(name) + suffix
        descriptor = os.open(temporary, flags, mode, dir_fd=directory)
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # other processes hold this lock only to remove leftovers
        if os.fstat(descriptor).st_nlink:
            return descriptor, temporary
        os.close(descriptor)


def _suffix(name: str) -> str:
    """Return the file extension of a name, or nothing if it is too long for one."""
    suffix = os.path.splitext(name)[1]
    return suffix if len(os.fsencode(suffix)) <= _LONGEST_SUFFIX else ""


def _close_for_writing(descriptor: int) -> None:
    """Make a descriptor read-only. Its file stays locked at every instant."""
    reading = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # as in ``in_progress``
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            fcntl.flock(reading, fcntl.LOCK_SH)
        os.dup2(reading, descriptor, inheritable=False)
    finally:
        os.close(reading)


def temporary_name(name: str) -> str:
    """Return a random temporary name for ``name``.

    Created with ``O_EXCL`` or ``mkdir``: a file planted at a temporary name is an error and never followed.
    """
    beginning = os.fsdecode(os.fsencode(name)[:200])  # file systems limit names to 255 bytes
    return f".{beginning}.{os.urandom(6).hex()}.new"


@contextlib.contextmanager
def in_progress(descriptor: int) -> Iterator[None]:
    """Protect an open file from ``remove_leftovers`` of other processes, and close it at the end.

    The protection is a lock, because a lock ends with its holder. Without support for locks (some network file
    systems), the file is unprotected.
    """
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def remove_leftovers(directory: int) -> None:
    """Remove temporary files of killed processes in an open directory. Ignores errors."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if ".new" in name and re.fullmatch(_LEFTOVER, name, re.DOTALL):
                _remove_leftover(directory, name)


def _remove_leftover(directory: int, name: str) -> None:
    with contextlib.suppress(OSError):  # locked: another process uses it
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove = os.rmdir if stat.S_ISDIR(os.fstat(descriptor).st_mode) else os.unlink
            remove(name, dir_fd=directory)
        finally:
            os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all data. Continue after a short write (a full disk, a signal) until the kernel reports an error."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


# Capabilities belong to the content that they were granted to. A file system without labels is accepted.
_NOT_CARRIED = ("security.capability", "security.ima", "security.evm")
_ACL, _INHERITED_ACL = "system.posix_acl_access", "system.posix_acl_default"
_ACL_USER, _ACL_GROUP, _ACL_MASK, _ACL_OTHER = 0x01, 0x04, 0x10, 0x20  # tags of the entries that chmod sets
_NO_LABELS = (errno.ENOTSUP, errno.EPERM, errno.EINVAL)


def _copy_labels(source: int, target: int, mode: int, *, keeps_acl: bool) -> None:
    try:
        for name in os.listxattr(source):
            if name not in _NOT_CARRIED and (keeps_acl or name != _ACL):
                value = os.getxattr(source, name)
                os.setxattr(target, name, _narrowed(value, mode) if name == _ACL else value)
    except OSError as error:
        if error.errno not in _NO_LABELS:
            raise


def remove_foreign_acls(new: int, directory: int, owner: int | None) -> None:
    """Remove access control lists that a new file inherited from a directory of another user.

    The owner of the directory may have granted permissions to themselves. Lists stay if that owner is ``owner``, root,
    or the running user.
    """
    if os.fstat(directory).st_uid in (0, os.geteuid(), owner):
        return
    for name in (_ACL, _INHERITED_ACL):
        with contextlib.suppress(OSError):  # no list
            os.removexattr(new, name)


def _narrowed(acl: bytes, mode: int) -> bytes:
    """Return an access control list as ``chmod`` will change it, because the old list may grant too much until then.

    The format is defined in linux/posix_acl_xattr.h: a version, then a tag, permissions and an id for each entry.
    """
    entries = [acl[start : start + 8] for start in range(4, len(acl), 8)]
    tags = [entry[0] for entry in entries]
    group = _ACL_MASK if _ACL_MASK in tags else _ACL_GROUP
    allowed = {_ACL_USER: mode >> 6 & 7, group: mode >> 3 & 7, _ACL_OTHER: mode & 7}
    retained = (bytes((*entry[:2], allowed.get(entry[0], entry[2]), *entry[3:])) for entry in entries)
    return acl[:4] + b"".join(retained)


def forget_oldest(directory: Path, prefix: str = "", suffix: str = "") -> None:
    """Remove all but the newest few objects that were set aside with such names. Ignores errors.

    The limit protects the disk if a file is damaged in every run.
    """
    with contextlib.suppress(OSError):
        names = (name for name in os.listdir(directory) if name.startswith(prefix) and name.endswith(suffix))
        retained = sorted((directory / name for name in names), key=lambda path: os.lstat(path).st_ctime_ns)
        for path in retained[:-_MOST_KEPT]:
            remove_any(path)


def remove_any(path: Path) -> None:
    """Remove a file, a link, or a directory with its contents. Raises ``OSError``."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        os.unlink(path)


@contextlib.contextmanager
def open_directory(path: Pathish) -> Iterator[int]:
    """Yield a descriptor of a directory, so that later operations stay in it even if its name changes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_directory(path: Pathish) -> None:
    """Make renames in this directory survive a power failure. Raises ``OSError``."""
    with open_directory(path) as descriptor:
        os.fsync(descriptor)


def read_limited(path: str | Path, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes. Raises ``OSError``, and ``ValueError`` for a larger file.

    The file is opened without blocking, so that a FIFO is an error and not a hang.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):  # Python would name the descriptor
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        return read_opened(descriptor, limit, path)
    finally:
        os.close(descriptor)


def read_opened(descriptor: int, limit: int, path: Pathish) -> bytes:
    """Read an open file of at most ``limit`` bytes. Raises ``OSError``, and ``ValueError`` for a larger file."""
    with open(descriptor, "rb", buffering=0, closefd=False) as stream:
        data = _read_at_most(stream, limit + 1)
    if len(data) > limit:
        raise ValueError(f"{path}: has more than {limit} bytes")
    return data


def _read_at_most(stream: io.FileIO, limit: int) -> bytes:
    """Read up to ``limit`` bytes in pieces. A single read of the limit would allocate that much memory."""
    piece = os.fstat(stream.fileno()).st_size + 1  # one more, to detect the end of the file
    pieces: list[bytes] = []
    while limit and (read := stream.read(min(limit, max(piece, _PIECE)))):
        pieces.append(read)
        limit -= len(read)
    return b"".join(pieces)
