"""Owners, groups and modes: names and ids, what is wanted of them beside what is there, in words."""

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
"""Said of an owner, a group or a mode where each file has to have one."""


def user_id(name: str | int | None, context: Context) -> int:
    """The id of ``owner``, a name or an id; raises ``ResourceError`` when there is no such user."""
    if (
        isinstance(name, str)
        and not (name.isascii() and name.isdecimal())
        and (found := context.system.user_id(name)) is not None
    ):
        return found
    return _other_id("owner", name, context)


def group_id(name: str | int | None, context: Context) -> int:
    """The id of ``group``, a name or an id; raises ``ResourceError`` when there is no such group."""
    if (
        isinstance(name, str)
        and not (name.isascii() and name.isdecimal())
        and (found := context.system.group_id(name)) is not None
    ):
        return found
    return _other_id("group", name, context)


def user_name(uid: int) -> str:
    """The user's name, or the id as text when there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    """The group's name, or the id as text when there is none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def attribute_differences(
    found: os.stat_result,
    wanted: Attributes,
    owner: str | int | None,
    group: str | int | None,
    path: str = "",
) -> list[Difference]:
    """Return the differences of owner, group and mode; ``owner`` and ``group`` as the author wrote them.

    ``path`` is the file, where a resource has several.
    """
    differences = []
    if found.st_uid != wanted.uid:
        differences.append(changed("owner", user_name(found.st_uid), str(owner), path))
    if found.st_gid != wanted.gid:
        differences.append(changed("group", group_name(found.st_gid), str(group), path))
    if (mode := stat.S_IMODE(found.st_mode)) != wanted.mode:
        differences.append(changed("mode", f"{mode:04o}", f"{wanted.mode:04o}", path))
    return differences


def mode_owned_by(uid: int, gid: int, found: os.stat_result, *, is_written: bool = False) -> int:
    """The ``st_mode`` of what was found, under these owners and perhaps with new content.

    A file loses its set-id bits by either, as with chown(2) and write(2): a program that somebody has put there must
    not run as another user, and what is new not as it was allowed to what was there.
    """
    is_same = (found.st_uid, found.st_gid) == (uid, gid) and not is_written
    return found.st_mode if is_same or stat.S_ISDIR(found.st_mode) else found.st_mode & ~_SET_ID


def require_trusted_source(path: str) -> None:
    """Raise ``ResourceError`` if another user can write the source of a set-id program, or replace it."""
    if reason := judge(path).reason:
        raise ResourceError(
            f"source {path} of a set-id file is not trusted: {reason}",
            code=ProblemCode.UNTRUSTED_PATH,
            hint="put the file into the bundle",
        )


def distrust_of_new_way(path: str, context: Context, uid: int) -> str:
    """Return why another user than ``uid`` could exchange a path once this run has made the directories above it.

    Only a dry run asks: it finds no directory that an earlier resource would have made for a user. Empty if nobody can.
    """
    if not context.noop:
        return ""

    for part in context.resources():
        for claim in part.type.claims(part.properties):
            # A home belongs to its user, though its claim accepts every owner.
            is_home = part.type.type_name == "user" and claim.use is Use.CONTENTS
            owner = part.properties.name if is_home else claim.owner
            if owner is None or not path.startswith(f"{claim.path}/") or context.system.lstat(claim.path):
                continue
            if user_id(owner, context) not in (0, os.geteuid(), uid):
                return f"{claim.path} would belong to {owner}"
    return ""


def describe_attributes(found: os.stat_result) -> dict[str, str]:
    """Owner, group and mode as plain values (``puller state``)."""
    return {
        "owner": user_name(found.st_uid),
        "group": group_name(found.st_gid),
        "mode": f"{stat.S_IMODE(found.st_mode):04o}",
    }


def _other_id(kind: str, name: str | int | None, context: Context) -> int:
    """The id that is not that of a known name."""
    if isinstance(name, int):
        return name
    if not name or (name.isascii() and name.isdecimal()):
        return int(name or 0)
    # Nobody is missing whom an earlier resource may have added: the difference is told, and the real run looks again.
    if context.uncertain("/etc/passwd" if kind == "owner" else "/etc/group"):
        return UNKNOWN_ID
    who = "user" if kind == "owner" else "group"
    raise ResourceError(f"{kind} is {name!r}, and there is no such {who}", code=ProblemCode.MISSING_ACCOUNT)
