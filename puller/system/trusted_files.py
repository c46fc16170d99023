"""Trust in files that control root: the configuration, the trust anchor, data and facts of this host.

* A path is trusted if only root and the running user can write or replace the file. Both the file and every directory
  and link on the path must belong to one of the two, and must not be writable by the group or by others.
* The path is checked name by name, each in the directory that was checked before. The resulting path has no links, and
  no other user can change its directories, so later reads use the checked file.
"""

import grp
import os
import pwd
import stat
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bundles.filesystem.safe_paths import Walk
from foundation.problems import ProblemCode
from puller.errors import ConfigurationError

if TYPE_CHECKING:
    from puller.system.identity import Identity


class Judged(msgspec.Struct, frozen=True):
    """A path, and whether it may be trusted."""

    path: str
    """Without links."""
    found: os.stat_result
    reason: str
    """Why it must not be read or run; empty when it may."""
    way: str = ""
    """Why another one can be put in its place; empty when only root can do so."""


def judge(path: str, *, private_group: bool = False) -> Judged:
    """Judge all of a path; raises ``OSError`` when nobody can tell.

    With ``private_group`` the group of the running user may write, if it is of nobody else.
    """
    # The working directory is not asked for in vain: it may have been removed.
    walk = _Judging(path if os.path.isabs(path) else os.path.join(os.getcwd(), path))
    private = _private_group() if private_group else None
    walk.groups = () if private is None else (private,)
    try:
        walk.go()
        found = os.fstat(walk.here)
        reason = walk.reason or _distrust(walk.real, found, walk.groups)
        return Judged(walk.real, found, reason, walk.reason)
    finally:
        os.close(walk.here)


def distrust_of_way(path: str, user: "Identity | None" = None) -> str:
    """Return why another user can change which file an absolute path names; empty if only root and we can.

    The file itself may be anyone's, and may be missing. ``user`` is trusted as well, and so are the groups of an
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
    """Where a file that the configuration names really is.

    Raises ``ConfigurationError`` when it is not to be trusted, and ``OSError``. Only root is asked for so much: in the
    directories of other users, a group of their own often may write.
    """
    if os.geteuid() != 0:
        return path
    judged = judge(os.fspath(path))
    if judged.reason:
        raise ConfigurationError(f"{path}: is not read: {judged.reason}", code=ProblemCode.UNTRUSTED_PATH)
    return Path(judged.path)


def require_trusted_directory(path: Path) -> None:
    """Raise ``ConfigurationError`` if another user can write to a directory of Puller, or put another in its place.

    A directory that does not exist yet is judged by the directories above it. Only root requires this.
    """
    if os.geteuid() != 0:
        return
    existing = path
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    try:
        judged = judge(os.fspath(existing))
    except OSError:  # who opens it reports it
        return
    reason = judged.reason
    if existing != path and judged.found.st_mode & stat.S_ISVTX:
        reason = _distrust_of_owner(judged.path, judged.found)  # such as /tmp, in which nobody can replace it
    if reason:
        raise ConfigurationError(f"{path}: is not used: {reason}", code=ProblemCode.UNTRUSTED_PATH)


def find_trusted(path: str) -> Path:
    """Where such a file is, also when nobody can tell: why it cannot be read is for its reader to say.

    Raises ``ConfigurationError`` as ``trusted``.
    """
    try:
        return trusted(Path(path))
    except OSError:
        return Path(path)


class _Judging(Walk):
    """The first thing on the way that is not to be trusted is the ``reason``."""

    reason = ""
    users: Collection[int] = ()
    """Trusted users beside root and the running user."""
    groups: Collection[int] = ()
    """Groups that may write."""

    def saw(self, name: str, found: os.stat_result) -> None:
        place = os.path.join(self.real, name)
        self.reason = self.reason or self._of_directory(place, found)
        if stat.S_ISLNK(found.st_mode):
            self.reason = self.reason or _distrust_of_owner(place, found, self.users)

    def _of_directory(self, place: str, found: os.stat_result) -> str:
        directory = os.fstat(self.here)
        if not directory.st_mode & stat.S_ISVTX or directory.st_uid not in _trusted_users():
            return _distrust(self.real, directory, self.groups, self.users)
        # In a sticky directory, such as /tmp, nobody can rename or remove what belongs to somebody else, but may be
        # able to give a second name to it.
        if not stat.S_ISDIR(found.st_mode) and found.st_nlink > 1:
            return f"{place} has {found.st_nlink} names (hard links), in a directory that others may write"
        return ""


class _JudgingWay(_Judging):
    """Judges the names on a way, and not the file at its end."""

    def saw(self, name: str, found: os.stat_result) -> None:
        super().saw(name, found)
        # In a sticky directory the owner of an entry can rename it, and make another one of its name.
        if os.fstat(self.here).st_mode & stat.S_ISVTX:
            place = os.path.join(self.real, name)
            self.reason = self.reason or _distrust_of_owner(place, found, self.users)

    def distrust_of_missing(self) -> str:
        """Return why another user could make the name that is missing here."""
        directory = os.fstat(self.here)
        if directory.st_mode & stat.S_ISVTX:
            return _distrust_of_owner(self.real, directory, self.users)
        return _distrust(self.real, directory, self.groups, self.users)


def _distrust(
    path: str, found: os.stat_result, groups: Collection[int] = (), users: Collection[int] = ()
) -> str:
    if reason := _distrust_of_owner(path, found, users):
        return reason
    others = stat.S_IWOTH if found.st_gid in groups else stat.S_IWGRP | stat.S_IWOTH
    if found.st_mode & others:
        return f"{path} has mode {stat.S_IMODE(found.st_mode):04o}, wanted it writable by its owner only"
    return ""


def _distrust_of_owner(path: str, found: os.stat_result, users: Collection[int] = ()) -> str:
    if found.st_uid in _trusted_users() or found.st_uid in users:
        return ""
    return f"{path} belongs to user {found.st_uid}, wanted root or the running user {os.geteuid()}"


def _private_group() -> int | None:
    """The primary group of the running user, if it has the user's name and nobody else is in it."""
    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(user.pw_gid)
    except KeyError:
        return None
    is_private = user.pw_uid != 0 and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return group.gr_gid if is_private else None


def _trusted_users() -> tuple[int, int]:
    return 0, os.geteuid()
