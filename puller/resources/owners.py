"""Users and groups between names and ids."""

import grp
import pwd

from puller.errors import ResourceError
from puller.resources.base import Context

UNKNOWN = -1
"""In noop, the id of somebody that an earlier command may have made: different from whoever is there now."""


def user_id(name: str | int | None, context: Context) -> int:
    """The id of ``owner``, a name or an id; raises ``ResourceError`` when there is no such user."""
    return _id("owner", name, context)


def group_id(name: str | int | None, context: Context) -> int:
    """The same of ``group``."""
    return _id("group", name, context)


def user_name(uid: int) -> str:
    """The user's name, or the id as text when there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    """The same of a group."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _id(kind: str, name: str | int | None, context: Context) -> int:
    if isinstance(name, int):
        return name
    if not name or name.isdecimal():
        return int(name or 0)
    find = context.system.user_id if kind == "owner" else context.system.group_id
    if (found := find(name)) is not None:
        return found
    if context.uncertain("/etc/passwd" if kind == "owner" else "/etc/group"):
        return UNKNOWN
    who = "user" if kind == "owner" else "group"
    raise ResourceError(f"{kind} is {name!r}, and there is no such {who}")
