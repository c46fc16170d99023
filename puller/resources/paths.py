"""Paths that resources manage, and their owners, groups and modes.

Owners, groups and modes: names, ids, and differences from the desired attributes.

Paths that resources manage: their canonical form, the file type at a path, and parent directories.

* Managed paths are absolute and normalized, so that one path has one resource name.
* Types come from ``lstat``. A symbolic link has a type of its own, whatever its target is.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator

import msgspec

from bundles.filesystem.trees import kind_of
from foundation.differences import Difference, changed
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Context, PropertyError
from puller.resources.claims import Use
from puller.system.protocol import UNKNOWN_ID, Attributes, System
from puller.system.trusted_files import judge

_SET_ID = stat.S_ISUID | stat.S_ISGID

MISSING = "is missing; it is required unless ensure is absent"
"""The message for a missing owner, group or mode where each file requires one."""


def user_id(name: str | int | None, context: Context) -> int:
    """Return the id of ``owner``, a name or an id. Raises ``ResourceError`` if the user does not exist."""
    if (
        isinstance(name, str)
        and not (name.isascii() and name.isdecimal())
        and (result := context.system.user_id(name)) is not None
    ):
        return result
    return _other_id("owner", name, context)


def group_id(name: str | int | None, context: Context) -> int:
    """Return the id of ``group``, a name or an id. Raises ``ResourceError`` if the group does not exist."""
    if (
        isinstance(name, str)
        and not (name.isascii() and name.isdecimal())
        and (result := context.system.group_id(name)) is not None
    ):
        return result
    return _other_id("group", name, context)


def user_name(uid: int) -> str:
    """Return the user's name, or the id as text for an unknown user."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    """Return the group's name, or the id as text for an unknown group."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def attribute_differences(
    status: os.stat_result,
    desired: Attributes,
    owner: str | int | None,
    group: str | int | None,
    path: str = "",
) -> list[Difference]:
    """Return the differences of owner, group and mode. ``owner`` and ``group`` are as the author wrote them.

    ``path`` is the file, for a resource with several files.
    """
    differences = []
    if status.st_uid != desired.uid:
        differences.append(changed("owner", user_name(status.st_uid), str(owner), path))
    if status.st_gid != desired.gid:
        differences.append(changed("group", group_name(status.st_gid), str(group), path))
    if (mode := stat.S_IMODE(status.st_mode)) != desired.mode:
        differences.append(changed("mode", f"{mode:04o}", f"{desired.mode:04o}", path))
    return differences


def mode_owned_by(uid: int, gid: int, status: os.stat_result, *, is_written: bool = False) -> int:
    """Return the ``st_mode`` of a file after a change to these owners, and to new content if ``is_written``.

    Either change clears the set-id bits, as chown(2) and write(2) do. A program that a user has put there must not run
    as another user, and new content must not inherit the permission of the old content.
    """
    is_same = (status.st_uid, status.st_gid) == (uid, gid) and not is_written
    return status.st_mode if is_same or stat.S_ISDIR(status.st_mode) else status.st_mode & ~_SET_ID


def require_trusted_source(path: str) -> None:
    """Raise ``ResourceError`` if another user can write the source of a set-id program, or replace it."""
    if reason := judge(path).reason:
        raise ResourceError(
            f"source {path} of a set-id file is not trusted: {reason}",
            code=ProblemCode.UNTRUSTED_PATH,
            hint="put the file into the bundle",
        )


def distrust_of_new_way(path: str, context: Context, uid: int) -> str:
    """Return why another user than ``uid`` could exchange a path once this run has created the directories above it.

    Only a dry run needs this, because directories that an earlier resource would create for a user do not exist yet.
    Empty if only ``uid`` or root can.
    """
    if not context.noop:
        return ""

    for resource in context.resources():
        for claim in resource.type.claims(resource.properties):
            # A home belongs to its user, though its claim accepts every owner.
            is_home = resource.type.type_name == "user" and claim.use is Use.CONTENTS
            owner = resource.properties.name if is_home else claim.owner
            if owner is None or not path.startswith(f"{claim.path}/") or context.system.lstat(claim.path):
                continue
            if user_id(owner, context) not in (0, os.geteuid(), uid):
                return f"{claim.path} would belong to {owner}"
    return ""


def describe_attributes(status: os.stat_result) -> dict[str, str]:
    """Owner, group and mode as plain values (``puller state``)."""
    return {
        "owner": user_name(status.st_uid),
        "group": group_name(status.st_gid),
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
    }


def _other_id(kind: str, name: str | int | None, context: Context) -> int:
    """Return the id for anything but a resolved name."""
    if isinstance(name, int):
        return name
    if not name or (name.isascii() and name.isdecimal()):
        return int(name or 0)
    # An earlier resource may add a missing user or group. The real run looks it up again.
    if context.uncertain("/etc/passwd" if kind == "owner" else "/etc/group"):
        return UNKNOWN_ID
    who = "user" if kind == "owner" else "group"
    raise ResourceError(f"{kind} is {name!r}, an unknown {who}", code=ProblemCode.MISSING_ACCOUNT)


_KINDS = {
    stat.S_IFREG: "present",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


class PathState(msgspec.Struct, frozen=True):
    """The state of a managed path: its ``lstat``, ``None`` if missing. Types add further fields."""

    found: os.stat_result | None

    @property
    def kind(self) -> str:
        """``absent``, ``present`` (a regular file), ``directory``, or the name of another file type."""
        return (
            "absent"
            if self.found is None
            else _KINDS.get(stat.S_IFMT(self.found.st_mode), "unknown kind of file")
        )


def is_plain(path: str) -> bool:
    """Return whether a path is absolute and without ``.``, ``..``, double slashes and NUL."""
    # In POSIX two leading slashes have a special meaning, so ``normpath`` keeps them.
    return (
        path.startswith("/")
        and not path.startswith("//")
        and os.path.normpath(path) == path
        and "\0" not in path
    )


def check_path(name: str, path: str) -> Iterator[PropertyError]:
    """Yield an error if a property ``name`` is not plain (see ``is_plain``)."""
    if not is_plain(path):
        expected = "an absolute path without '.', '..' or doubled slashes"
        yield PropertyError(name, f"is {path!r}", expected=expected)


def check_managed(path: str) -> Iterator[PropertyError]:
    """Yield errors for a managed path in ``name``, which must be plain and not the root directory."""
    yield from check_path("name", path)
    if path == "/":
        yield PropertyError("name", "is '/', which is not managed")


def require_parent(path: str, context: Context) -> None:
    """Raise ``ResourceError`` if the parent directory of ``path`` is missing and this run does not create it."""
    parent = os.path.dirname(path)
    if not context.system.is_directory(parent) and not context.uncertain(parent):
        raise ResourceError(f"directory {parent} does not exist")


def require_makeable(directory: str, system: System) -> None:
    """Raise ``ResourceError`` if a directory, or one above it, has another file type.

    Missing directories are valid, because they are created with their parents.
    """
    while not system.is_directory(directory):
        if system.exists(directory):
            raise ResourceError(f"{directory} is not a directory")
        directory = os.path.dirname(directory)


# Paths relative to a directory, with ``/`` as the separator.


def printable(path: str) -> str:
    """Return the path on one line, with unprintable characters escaped."""
    return path if path.isprintable() else ascii(path)


def parents(path: str) -> Iterator[str]:
    """Yield the directories that a path leads through, the innermost first."""
    while (path := path.rpartition("/")[0]) != "":
        yield path


def directories_of(paths: Iterable[str]) -> list[str]:
    """Return the directories that paths lead through, each before its contents."""
    result = {directory for path in paths for directory in parents(path)}
    return sorted(result, key=lambda directory: (directory.count("/"), directory))


def kind(mode: int) -> str:
    """Return the kind of file of an ``st_mode``, for messages: ``a directory``."""
    return kind_of(mode)
