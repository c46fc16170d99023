"""Ways through directories, gone one name after the other; and directories that are about to be changed in.

A way is gone from the root (``Walk``), so that nobody can turn it by a link that comes meanwhile:

1. Open the next name in the directory that is open, not following it (``O_PATH | O_NOFOLLOW``).
2. Show it to whoever judges names (``saw``); what is no link is the next directory, and ``..`` the one above.
3. Of a link, put the names of its target before those that are left, and remember the link itself behind them.
4. When all names of its target are gone, judge the link by where it has led (``came_by``).

* What is opened stays what is meant, whatever becomes of the names on the way meanwhile.
* A link that only root, or the running user, can have put where it is, is followed. Any other is followed only to what
  those who can have put it there may write anyway, or a user could lead what root writes below ``/home/user/dir`` into
  ``/etc``: by a link of their own, or by one of root's that they have moved, or given a second name, in a directory of
  theirs.
"""

import errno
import os
import stat
from collections.abc import Callable
from typing import TypeVar

import msgspec

REAL_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40  # as many as the kernel follows
T = TypeVar("T")


class UnsafeLinkError(OSError):
    """A link of another user on the way, which is not followed. ``strerror`` states the reason."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(errno.ELOOP, reason, path or None)
        self.reason = reason


def open_safely(path: str) -> int:
    """Open the directory at an absolute path; raises ``OSError``, and ``UnsafeLinkError`` for a link of others."""
    return _at_end(path, lambda walk: os.open(".", REAL_DIRECTORY, dir_fd=walk.here))


def hold_directory(path: str) -> int:
    """Open a directory to work in. It requires fewer permissions than ``open_safely``, because it lists nothing."""
    return _at_end(path, lambda walk: os.open(".", _STEP | os.O_DIRECTORY, dir_fd=walk.here))


def resolve(path: str) -> str:
    """A path without its links; raises as ``open_safely`` does. It need not lead to a directory, but to something."""
    return _at_end(path, lambda walk: walk.real)


def others_can_exchange(path: str) -> bool:
    """Return whether another user can put something else in the place of ``path``; raises ``OSError``."""
    walk = _ExchangeWalk(path)
    try:
        walk.go()
        return walk.is_possible
    finally:
        os.close(walk.here)


class Link(msgspec.Struct, frozen=True):
    """A link that was met on the way."""

    name: str
    found: os.stat_result
    directory: os.stat_result
    """The one that it is in."""


class Walk:
    """From the root to what a path names; what is met is told to ``saw`` and ``came_by``, which may raise."""

    def __init__(self, path: str) -> None:
        self._left: list[str | Link] = [*path.split("/")[::-1]]
        self._way: list[str] = []
        self._followed = 0
        self.here = os.open("/", _STEP)

    @property
    def real(self) -> str:
        """The path so far, without links."""
        return "/" + "/".join(self._way)

    def saw(self, name: str, found: os.stat_result) -> None:
        """An entry of the directory ``here``, which is a link or will be ``here`` next."""

    def came_by(self, link: Link) -> None:
        """A link was followed: ``here`` is where it leads."""

    def go(self) -> None:
        """To the end; raises ``OSError``."""
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
            # 2. Show it
            found = os.fstat(there)
            self.saw(name, found)
            if stat.S_ISLNK(found.st_mode):
                target = os.readlink("", dir_fd=there)
                self._follow(Link(name, found, os.fstat(self.here)), target)
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
    """One that nobody leads to what is not theirs."""

    def came_by(self, link: Link) -> None:
        if why := _why_not(link, os.fstat(self.here)):
            raise UnsafeLinkError(why)


class _ExchangeWalk(Walk):
    """A walk that checks who may rename the entries on the way."""

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
    """The answer of a walk at its end to ``ask``; errors name the path."""
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
    """Why a link is not followed to what it leads to; empty when it may be.

    1. Harmless are root, the running user, and whoever owns what the link leads to.
    2. The link must belong to one of these: its owner has written it.
    3. So must its directory: the owner of that can have moved another link there.
    4. Nobody else may have been able to put it there, unless they may write what it leads to anyway.
    """
    what = "directory" if stat.S_ISDIR(to.st_mode) else "file"
    end = f"leads to a {what} of user {to.st_uid}"
    # 1. Harmless
    harmless = (0, os.geteuid(), to.st_uid)
    # 2. The link's owner
    if link.found.st_uid not in harmless:
        return f"the link {link.name!r} of user {link.found.st_uid} {end}, so it is not followed"
    # 3. Its directory's owner
    if (owner := link.directory.st_uid) not in harmless:
        return f"the link {link.name!r} in a directory of user {owner} {end}, so it is not followed"
    # 4. Others
    if _others_can_have_put(link) and not _is_as_open(to, link.directory):
        where = f"in a directory that others may write (mode {stat.S_IMODE(link.directory.st_mode):04o})"
        return f"the link {link.name!r} {where} {end} that they may not write, so it is not followed"
    return ""


def _others_can_have_put(link: Link) -> bool:
    """Whether somebody beside the owners of link and directory can have put the link there."""
    if not writers(link.directory):
        return False
    # In a sticky directory nobody can move what belongs to somebody else, but give a second name to it.
    return not link.directory.st_mode & stat.S_ISVTX or link.found.st_nlink > 1


def _is_as_open(to: os.stat_result, directory: os.stat_result) -> bool:
    """Whether all who may write to ``directory`` may do so ``to`` the other."""
    if to.st_mode & stat.S_ISVTX:
        return False
    may, wanted = to.st_mode & stat.S_IWOTH, writers(directory)
    if not may and not wanted & stat.S_IWOTH:
        may = to.st_mode & stat.S_IWGRP and to.st_gid == directory.st_gid
    return bool(may)


def writers(found: os.stat_result) -> int:
    """Which of the bits for group and others let somebody write; root's own group is root."""
    bits = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return bits & ~stat.S_IWGRP if found.st_gid in (0, os.getegid()) else bits
