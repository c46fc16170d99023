"""Safe path resolution, one name at a time, and output files of commands at paths of the user's choice.

A ``Walk`` starts at the root, so that a link created meanwhile cannot redirect it:

1. Open the next name in the current directory without following it (``O_PATH | O_NOFOLLOW``).
2. Pass it to ``saw``, which may reject it. If it is not a link, it becomes the current directory. ``..`` is the parent.
3. For a link, insert the names of its target before the remaining names, and the link itself after them.
4. After all names of the target, pass the link and its destination to ``came_by``.

* Open descriptors keep their meaning, even if names on the path change.
* A link that only root or the running user can have created is followed. Any other link is followed only to files that
  its possible creators may write anyway. Otherwise a user could redirect a write of root below ``/home/user/dir`` into
  ``/etc``: with their own link, or with a link of root that they moved or hard-linked into their own directory.

Output files are pages, copies, exports, archives and reports of lint. Their directory may belong to another user, such
as ``www-data``, while root runs the command.

* Links on the way to a directory are followed by the rules above. A link of another user that leads elsewhere ends the
  command, which then writes nothing.
* The last name of a path is never followed. A file is created under a random name in the open directory and renamed.
* Modes are set through descriptors, so another user cannot exchange a new directory before its mode is set.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from bundles.filesystem.atomic import Pathish, naming, read_opened, remove_leftovers, replace_file
from bundles.filesystem.trees import kind_of, open_regular, sync_filesystem

REAL_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40  # limit of the kernel
T = TypeVar("T")


class UnsafeLinkError(OSError):
    """A link of another user on the path, which is not followed. ``strerror`` states the reason."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(errno.ELOOP, reason, path or None)
        self.reason = reason


def open_safely(path: str) -> int:
    """Open the directory at an absolute path. Raises ``OSError``, and ``UnsafeLinkError`` for an unsafe link."""
    return _at_end(path, lambda walk: os.open(".", REAL_DIRECTORY, dir_fd=walk.here))


def hold_directory(path: str) -> int:
    """Open a directory to work in. Needs fewer permissions than ``open_safely``, because it does not list."""
    return _at_end(path, lambda walk: os.open(".", _STEP | os.O_DIRECTORY, dir_fd=walk.here))


def resolve(path: str) -> str:
    """Return an existing path without links. Raises like ``open_safely``. The path may lead to any type of file."""
    return _at_end(path, lambda walk: walk.real)


def can_others_replace(path: str) -> bool:
    """Return whether another user can replace the object at ``path``. Raises ``OSError``."""
    walk = _ExchangeWalk(path)
    try:
        walk.go()
        return walk.is_possible
    finally:
        os.close(walk.here)


class Link(msgspec.Struct, frozen=True):
    """A link on the path."""

    name: str
    found: os.stat_result
    directory: os.stat_result
    """Status of the directory that contains the link."""


class Walk:
    """Walk from the root to a path. Calls ``saw`` and ``came_by``, which may raise errors."""

    def __init__(self, path: str) -> None:
        self._left: list[str | Link] = [*path.split("/")[::-1]]
        self._way: list[str] = []
        self._followed = 0
        self.here = os.open("/", _STEP)

    @property
    def real(self) -> str:
        """Return the path so far, without links."""
        return "/" + "/".join(self._way)

    def saw(self, name: str, found: os.stat_result) -> None:
        """Check an entry of the directory ``here``. It is a link or becomes ``here`` next."""

    def came_by(self, link: Link) -> None:
        """Check a link after it was followed. ``here`` is its destination."""

    def go(self) -> None:
        """Walk to the end. Raises ``OSError``."""
        while self._left:
            step = self._left.pop()
            if isinstance(step, Link):
                # 4. Judge the link
                self.came_by(step)
            elif step not in ("", "."):
                self._step(step)

    def _step(self, name: str) -> None:
        # 1. Open the name
        there = os.open(name, _STEP, dir_fd=self.here)
        try:
            # 2. Check it
            status = os.fstat(there)
            self.saw(name, status)
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink("", dir_fd=there)
                self._follow(Link(name, status, os.fstat(self.here)), target)
            else:
                self.here, there = there, self.here
                self._way = self._way[:-1] if name == ".." else [*self._way, name]
        finally:
            os.close(there)

    def _follow(self, link: Link, target: str) -> None:
        self._followed += 1
        if self._followed > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        # 3. Its target first, then the link itself
        self._left += [link, *target.split("/")[::-1]]
        if target.startswith("/"):
            os.close(self.here)
            self.here = os.open("/", _STEP)
            self._way.clear()


class _SafeWalk(Walk):
    """A walk that raises ``UnsafeLinkError`` for unsafe links."""

    def came_by(self, link: Link) -> None:
        if why := _why_not(link, os.fstat(self.here)):
            raise UnsafeLinkError(why)


class _ExchangeWalk(Walk):
    """A walk that checks who may rename the entries on the path."""

    is_possible = False

    def saw(self, name: str, found: os.stat_result) -> None:
        directory = os.fstat(self.here)
        trusted = (0, os.geteuid())
        if directory.st_uid not in trusted:
            self.is_possible = True
        elif writers(directory):
            is_protected = directory.st_mode & stat.S_ISVTX and found.st_uid in trusted
            self.is_possible = self.is_possible or not is_protected


def _at_end(path: str, ask: Callable[[Walk], T]) -> T:
    """Return the result of ``ask`` at the end of a walk. Errors name the path."""
    walk = _SafeWalk(path)
    try:
        walk.go()
        return ask(walk)
    except UnsafeLinkError as error:
        raise UnsafeLinkError(error.reason, path) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(walk.here)


def _why_not(link: Link, to: os.stat_result) -> str:
    """Return why a link must not be followed to its destination. Empty if it is safe.

    1. Trusted users are root, the running user, and the owner of the destination.
    2. The owner of the link must be trusted, because the owner chose its target.
    3. So must the owner of its directory, who can move another link there.
    4. Other users must not be able to create the link, unless they may write the destination anyway.
    """
    detail = "directory" if stat.S_ISDIR(to.st_mode) else "file"
    end = f"leads to a {detail} of user {to.st_uid}"
    # 1. Trusted users
    harmless = (0, os.geteuid(), to.st_uid)
    # 2. The link's owner
    if link.found.st_uid not in harmless:
        return f"the link {link.name!r} of user {link.found.st_uid} {end}, so it is not followed"
    # 3. Its directory's owner
    if (owner := link.directory.st_uid) not in harmless:
        return f"the link {link.name!r} in a directory of user {owner} {end}, so it is not followed"
    # 4. Others
    if _can_be_from_others(link) and not _is_as_open(to, link.directory):
        where = f"in a directory writable by others (mode {stat.S_IMODE(link.directory.st_mode):04o})"
        return f"the link {link.name!r} {where} {end} that is not writable by them, so it is not followed"
    return ""


def _can_be_from_others(link: Link) -> bool:
    """Return whether users other than the owners of link and directory can have created the link."""
    if not writers(link.directory):
        return False
    # In a sticky directory, users cannot move files of others, but they can create hard links to them.
    return not link.directory.st_mode & stat.S_ISVTX or link.found.st_nlink > 1


def _is_as_open(to: os.stat_result, directory: os.stat_result) -> bool:
    """Return whether all users who may write to ``directory`` may also write ``to`` the destination."""
    if to.st_mode & stat.S_ISVTX:
        return False
    may, desired = to.st_mode & stat.S_IWOTH, writers(directory)
    if not may and not desired & stat.S_IWOTH:
        may = to.st_mode & stat.S_IWGRP and to.st_gid == directory.st_gid
    return bool(may)


def writers(found: os.stat_result) -> int:
    """Return the mode bits that let group or others write. Root's own group counts as root."""
    bits = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return bits & ~stat.S_IWGRP if found.st_gid in (0, os.getegid()) else bits


_MODE_OF_FILE, _MODE_OF_DIRECTORY = 0o644, 0o755


def write_output(
    path: Pathish, data: bytes, *, mode: int = _MODE_OF_FILE, make_directories: bool = False
) -> None:
    """Write an output file, atomically and durably. Raises ``OSError``.

    The path must be unused or a regular file: replacing a link such as ``/dev/stdout`` would break the machine.
    """
    with naming(path), open_parent(path, make=make_directories) as (directory, name):
        require_replaceable(directory, name)
        replace_file(directory, name, [data], mode=mode)


@contextlib.contextmanager
def open_parent(path: Pathish, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Open the directory of ``path`` safely, and also yield the last name. Raises ``OSError``."""
    directory, name = os.path.split(os.path.abspath(path))
    with open_output_directory(directory, make=make) as descriptor:
        remove_leftovers(descriptor)
        yield descriptor, name


@contextlib.contextmanager
def open_output_directory(
    path: Pathish, *, make: bool = False, mode: int = _MODE_OF_DIRECTORY
) -> Iterator[int]:
    """Open a directory safely. With ``make``, create the missing directories with ``mode``. Raises ``OSError``."""
    descriptor = _made(os.path.abspath(path), mode) if make else open_safely(os.path.abspath(path))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def require_replaceable(directory: int, name: str) -> None:
    """Raise ``OSError`` if the name in an open directory is anything but a regular file."""
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        if not stat.S_ISREG(status):
            raise OSError(errno.EEXIST, f"is {kind_of(status)}, expected a regular file or a new name", name)


def _made(path: str, mode: int) -> int:
    try:
        return open_safely(path)
    except FileNotFoundError:
        directory, name = os.path.split(path)
        if not name:
            raise
    parent = _made(directory, mode)
    try:
        return _make(parent, name, mode)
    finally:
        os.close(parent)


def _make(parent: int, name: str, mode: int) -> int:
    """Create a directory regardless of the umask, and open it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=parent)
    descriptor = os.open(name, REAL_DIRECTORY, dir_fd=parent)
    # A directory that another user has created meanwhile keeps its mode.
    if os.fstat(descriptor).st_uid == os.geteuid() and not os.listdir(descriptor):
        os.fchmod(descriptor, mode)
    return descriptor


class OutputTree:
    """The files below ``root``, by relative paths. Methods raise ``OSError``.

    The last directory stays open, because files of one directory are usually written in sequence.
    """

    def __init__(self, root: Pathish) -> None:
        self.root = os.path.abspath(root)
        self._last: tuple[str, int] | None = None

    def exists(self) -> bool:
        """Return whether the root exists."""
        return os.path.lexists(self.root)

    def write(
        self, path: str, chunks: Iterable[bytes], *, mode: int = _MODE_OF_FILE, durable: bool = True
    ) -> None:
        """Write a file, and create its directories. A link at the path itself is replaced."""
        with naming(f"{self.root}/{path}"):
            directory, name = self._directory(path, make=True)
            replace_file(directory, name, chunks, mode=mode, durable=durable)

    def move_in(self, source: Path, path: str, *, mode: int = _MODE_OF_FILE) -> None:
        """Rename a file of the running user from the same file system into the tree."""
        with naming(f"{self.root}/{path}"):
            directory, name = self._directory(path, make=True)
            os.chmod(source, mode)
            os.rename(source, name, dst_dir_fd=directory)
            os.fsync(directory)

    def read(self, path: str, limit: int) -> bytes:
        """Read a regular file of at most ``limit`` bytes. Raises ``ValueError`` for a larger file."""
        with naming(f"{self.root}/{path}"):
            directory, name = self._directory(path)
            with open_regular(Path(name), directory=directory) as stream:
                return read_opened(stream.fileno(), limit, f"{self.root}/{path}")

    def stat(self, path: str) -> os.stat_result | None:
        """Return the ``lstat`` of an entry, ``None`` if it is missing."""
        try:
            with naming(f"{self.root}/{path}"):
                directory, name = self._directory(path)
                return os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def is_file(self, path: str) -> bool:
        """Return whether a regular file is at ``path``."""
        status = self.stat(path)
        return status is not None and stat.S_ISREG(status.st_mode)

    def remove(self, path: str) -> None:
        """Remove a file or a link, if it exists."""
        with contextlib.suppress(FileNotFoundError), naming(f"{self.root}/{path}"):
            directory, name = self._directory(path)
            os.unlink(name, dir_fd=directory)

    def sync(self) -> None:
        """Flush all written files to disk."""
        with open_output_directory(self.root, make=True) as directory:
            sync_filesystem(directory)

    def close(self) -> None:
        """Close the last used directory."""
        if self._last is not None:
            os.close(self._last[1])
            self._last = None

    def _directory(self, path: str, *, make: bool = False) -> tuple[int, str]:
        place, name = os.path.split(os.path.normpath(f"{self.root}/{path}"))
        if not f"{place}/".startswith(f"{self.root}/".replace("//", "/")):
            raise OSError(errno.EINVAL, "is outside the directory", path)
        if self._last is None or self._last[0] != place:
            self.close()
            descriptor = _made(place, _MODE_OF_DIRECTORY) if make else open_safely(place)
            remove_leftovers(descriptor)
            self._last = place, descriptor
        return self._last[1], name
