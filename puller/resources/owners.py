"""Owners, groups and modes: names, ids, and differences from the desired attributes."""

import grp
import os
import pwd
import stat

from foundation.differences import Difference, changed
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Context
from puller.resources.claims import Use
from puller.system.protocol import UNKNOWN_ID, Attributes
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
