"""Files that Puller reads: their content, and whether a file that controls root can be trusted.

The content of regular files, read from one open descriptor, and the kernel's parameter files.

* Reading never follows a link at the end of a path, and never blocks on a FIFO.
* A file is unchanged if its identity is the same. Otherwise reading raises ``ChangedMeanwhile``.
* A private copy that a program verifies must stay unchanged until it replaces the file.
* Parameter files below ``/proc/sys`` are never replaced. Each holds one value, and a write changes the value.

Trust in files that control root: the configuration, the trust anchor, data and facts of this host.

* A path is trusted if only root and the running user can write or replace the file. Both the file and every directory
  and link on the path must belong to one of the two, and must not be writable by the group or by others.
* The path is checked name by name, each in the directory that was checked before. The resulting path has no links, and
  no other user can change its directories, so later reads use the checked file.
"""

import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from bundles.filesystem.safe_paths import Walk
from foundation.problems import ProblemCode
from puller.errors import ChangedMeanwhile, ConfigurationError, ResourceError

if TYPE_CHECKING:
    from puller.system.identity import Identity


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


def stat_at(parent: int, name: str) -> os.stat_result:
    """Return the status of a name in an open directory. Links are not followed."""
    return os.stat(name, dir_fd=parent, follow_symlinks=False)


@contextlib.contextmanager
def open_old_file(
    parent: int, name: str, path: str, looked_at: os.stat_result | None
) -> Iterator[int | None]:
    """Open the regular file ``name`` that is to be replaced, to copy its labels. Yield ``None`` for any other file.

    Raises ``ChangedMeanwhile`` if it is not the file that was ``looked_at``.
    """
    try:
        result = stat_at(parent, name)
    except FileNotFoundError:
        if looked_at is not None:
            raise ChangedMeanwhile(f"{path}: another process removed it while Puller inspected it") from None
        yield None
        return
    if looked_at is None:
        raise ChangedMeanwhile(f"{path}: another process created it while Puller inspected it")
    require_same(path, looked_at, result)
    if not stat.S_ISREG(result.st_mode):
        yield None
        return
    try:
        descriptor = os.open(name, READING, dir_fd=parent)
    except PermissionError:  # replaceable but not readable, so its labels cannot be copied
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


PROC_SYS = "/proc/sys"
"""The directory of all kernel parameters."""


def is_parameter(path: str) -> bool:
    """Return whether a path is a kernel parameter."""
    return path.startswith(f"{PROC_SYS}/")


class Judged(msgspec.Struct, frozen=True):
    """A path, and whether it is trusted."""

    path: str
    """Without links."""
    found: os.stat_result
    reason: str
    """Why it must not be read or run, empty if it is trusted."""
    way: str = ""
    """Why another user can replace it, empty if only root can."""


def judge(path: str, *, private_group: bool = False) -> Judged:
    """Check a whole path. Raises ``OSError`` if this is impossible.

    With ``private_group``, the running user's primary group may write if it has no other members.
    """
    # Get the working directory only for a relative path, because it may have been removed.
    walk = _Judging(path if os.path.isabs(path) else os.path.join(os.getcwd(), path))
    private = _private_group() if private_group else None
    walk.groups = () if private is None else (private,)
    try:
        walk.go()
        status = os.fstat(walk.here)
        reason = walk.reason or _distrust(walk.real, status, walk.groups)
        return Judged(walk.real, status, reason, walk.reason)
    finally:
        os.close(walk.here)


def distrust_of_way(path: str, user: "Identity | None" = None) -> str:
    """Return why another user can change which file an absolute path names, empty if only root and this user can.

    The file itself may have any owner, and may be missing. ``user`` is trusted as well, and so are the groups of an
    ordinary user. Raises ``OSError``.
    """
    walk = _JudgingWay(path)
    walk.groups = (0,)  # root's own group
    if user is not None and user.uid != 0:
        walk.users, walk.groups = (user.uid,), (0, user.gid, *user.groups)
    elif os.geteuid() != 0:
        walk.groups = (0, os.getegid(), *os.getgroups())
    try:
        walk.go()
    except FileNotFoundError:
        walk.reason = walk.reason or walk.distrust_of_missing()
    finally:
        os.close(walk.here)
    return walk.reason


def trusted(path: Path) -> Path:
    """Return the real path of a file that the configuration names.

    Raises ``ConfigurationError`` for an untrusted path, and ``OSError``. Checks paths only for root, because other
    users' directories are often writable by their group.
    """
    if os.geteuid() != 0:
        return path
    judged = judge(os.fspath(path))
    if judged.reason:
        raise ConfigurationError(f"{path}: is not read: {judged.reason}", code=ProblemCode.UNTRUSTED_PATH)
    return Path(judged.path)


def require_trusted_directory(path: Path) -> None:
    """Raise ``ConfigurationError`` if another user can write to a directory of Puller, or replace it.

    A missing directory is checked by its existing parent. Only root requires this.
    """
    if os.geteuid() != 0:
        return
    existing = path
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    try:
        judged = judge(os.fspath(existing))
    except OSError:  # opening it reports the error
        return
    reason = judged.reason
    if existing != path and judged.found.st_mode & stat.S_ISVTX:
        reason = _distrust_of_owner(judged.path, judged.found)  # as in /tmp: only owners can replace it
    if reason:
        raise ConfigurationError(f"{path}: is not used: {reason}", code=ProblemCode.UNTRUSTED_PATH)


def find_trusted(path: str) -> Path:
    """Return the real path of a file, also if it cannot be checked. Its reader reports why it cannot be read.

    Raises ``ConfigurationError`` like ``trusted``.
    """
    try:
        return trusted(Path(path))
    except OSError:
        return Path(path)


def verifying(path: str, parent: int, verify: Callable[[str], None]) -> Callable[[str, int], None]:
    """Return a function that calls ``verify`` for a copy in ``parent``, and requires that the copy stays unchanged.

    Raises ``ResourceError`` if other users could exchange a directory in its path. ``require_ours`` checks ``parent``.
    """
    if reason := judge(os.path.dirname(path), private_group=True).way:
        raise ResourceError(
            f"{path}: {reason}, because others could exchange the new file while it is verified"
        )

    def ask(name: str, descriptor: int) -> None:
        before = _fingerprint(descriptor)
        verify(os.path.join(os.path.dirname(path), name))
        try:
            is_same = identity(stat_at(parent, name)) == identity(os.fstat(descriptor))
        except FileNotFoundError:
            is_same = False
        if not is_same or _fingerprint(descriptor) != before:
            raise ChangedMeanwhile(f"{path}: its private copy was changed while it was verified")

    return ask


def _fingerprint(descriptor: int) -> tuple[object, ...]:
    """Return owner, mode and content of an open file."""
    import hashlib  # 2 % of an idle run, which verifies no file

    status = os.fstat(descriptor)
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, "rb", closefd=False) as stream:
        digest = hashlib.file_digest(stream, "sha256").digest()
    return status.st_uid, status.st_gid, status.st_mode, digest


class _Judging(Walk):
    """A walk that records the first untrusted name of a path as ``reason``."""

    reason = ""
    users: Collection[int] = ()
    """Trusted users besides root and the running user."""
    groups: Collection[int] = ()
    """Groups that may write."""

    def saw(self, name: str, found: os.stat_result) -> None:
        place = os.path.join(self.real, name)
        self.reason = self.reason or self._of_directory(place, found)
        if stat.S_ISLNK(found.st_mode):
            self.reason = self.reason or _distrust_of_owner(place, found, self.users)

    def _of_directory(self, place: str, status: os.stat_result) -> str:
        directory = os.fstat(self.here)
        if not directory.st_mode & stat.S_ISVTX or directory.st_uid not in _trusted_users():
            return _distrust(self.real, directory, self.groups, self.users)
        # In a sticky directory such as /tmp, users cannot rename or remove files of others, but may be able to create
        # hard links to them.
        if not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1:
            return f"{place} has {status.st_nlink} names (hard links), in a directory that others may write"
        return ""


class _JudgingWay(_Judging):
    """A walk that checks the directories and links of a path, but not the file at its end."""

    def saw(self, name: str, found: os.stat_result) -> None:
        super().saw(name, found)
        # In a sticky directory, the owner of an entry can rename it and create another one with its name.
        if os.fstat(self.here).st_mode & stat.S_ISVTX:
            place = os.path.join(self.real, name)
            self.reason = self.reason or _distrust_of_owner(place, found, self.users)

    def distrust_of_missing(self) -> str:
        """Return why another user could create the missing name."""
        directory = os.fstat(self.here)
        if directory.st_mode & stat.S_ISVTX:
            return _distrust_of_owner(self.real, directory, self.users)
        return _distrust(self.real, directory, self.groups, self.users)


def _distrust(
    path: str, status: os.stat_result, groups: Collection[int] = (), users: Collection[int] = ()
) -> str:
    if reason := _distrust_of_owner(path, status, users):
        return reason
    others = stat.S_IWOTH if status.st_gid in groups else stat.S_IWGRP | stat.S_IWOTH
    if status.st_mode & others:
        return f"{path} has mode {stat.S_IMODE(status.st_mode):04o}, expected it writable by its owner only"
    return ""


def _distrust_of_owner(path: str, status: os.stat_result, users: Collection[int] = ()) -> str:
    if status.st_uid in _trusted_users() or status.st_uid in users:
        return ""
    return f"{path} belongs to user {status.st_uid}, expected root or the running user {os.geteuid()}"


def _private_group() -> int | None:
    """Return the primary group of the running user, if it has the user's name and no other members."""
    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(user.pw_gid)
    except KeyError:
        return None
    is_private = user.pw_uid != 0 and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return group.gr_gid if is_private else None


def _trusted_users() -> tuple[int, int]:
    return 0, os.geteuid()
