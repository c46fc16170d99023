"""Homes of users: requirements for their creation, move and removal.

All requirements are checked before any change, and in a dry run. ``userdel -r`` and ``usermod -m`` would fail only
after they have removed or changed the account.
"""

import os
import stat

from puller.errors import ResourceError
from puller.resources.accounts.databases import Known, UserEntry, login_defs
from puller.resources.base import Context
from puller.resources.owned_paths import refuse_owned_below
from puller.resources.owners import distrust_of_new_way, user_name
from puller.resources.paths import require_parent
from puller.system.mounts import refuse_mounted
from puller.system.protocol import Attributes
from puller.system.trusted_files import distrust_of_way


def find_home(home: str, context: Context) -> os.stat_result | None:
    """Return the ``lstat`` of a home, or ``None`` if it is missing."""
    return context.system.lstat(home)


def require_new(home: str, uid: int | None, context: Context) -> None:
    """Raise ``ResourceError`` if a new user cannot have a home.

    The user gets an empty directory of root. A directory that already has the uid stays unchanged.
    """
    require_parent(home, context)
    _require_own_way(home, uid, context)
    found = find_home(home, context)
    if found is None or (uid is not None and stat.S_ISDIR(found.st_mode) and found.st_uid == uid):
        return
    if not stat.S_ISDIR(found.st_mode):
        what = "a link" if stat.S_ISLNK(found.st_mode) else "not a directory"
        raise ResourceError(f"home {home} is {what}")
    if found.st_uid != 0 or context.system.children(home):
        what = "and is not empty" if found.st_uid == 0 else f"(uid {found.st_uid})"
        raise ResourceError(
            f"home {home} belongs to {user_name(found.st_uid)} {what}, so it is not given to a new user; declare it"
            " as a file with the owner that it should have, and the user with manage_home: false"
        )

    refuse_mounted(home, "given to a new user")


def clear_for_new(home: str, uid: int | None, context: Context) -> None:
    """Remove an empty directory of root at the path, so that useradd creates the home with its final attributes.

    An interrupted run then leaves a missing home, not a home that the user cannot write to.
    """
    found = find_home(home, context)
    if found is not None and found.st_uid == 0 and uid != 0:
        context.system.remove(home, found)


def is_own_already(user: UserEntry, new: str, known: Known, context: Context) -> bool:
    """Return whether another directory is the user's alone, so that it can become the home without a move.

    An example is an earlier home. The present home must be missing or empty, because two homes are not merged.
    """
    present = find_home(user.home, context)
    if present is not None and (not stat.S_ISDIR(present.st_mode) or context.system.children(user.home)):
        return False
    return find_home(new, context) is not None and not _why_not_own(user, new, known, context)


def require_movable(user: UserEntry, new: str, known: Known, context: Context) -> None:
    """Raise ``ResourceError`` if the home of a user cannot be moved, or is not theirs alone."""
    require_parent(new, context)
    _require_own_way(new, user.uid, context)
    if is_own_already(user, new, known, context):
        return
    if context.system.exists(new):
        raise ResourceError(f"home {new} exists, so that of {user.name} is not moved there")
    if find_home(user.home, context) is not None:
        _require_own(user, "moved", known, context)


def require_removable(user: UserEntry, known: Known, context: Context) -> None:
    """Raise ``ResourceError`` if the home is not the user's alone, or other resources own paths below it."""
    if find_home(user.home, context) is not None:
        _require_own(user, "removed", known, context)

        refuse_owned_below(user.home, context, f"user#{user.name}", "removed")


def _require_own_way(home: str, uid: int | None, context: Context) -> None:
    """Raise ``ResourceError`` if another user can redirect the path of a home.

    useradd and usermod create, fill and chown the directory by its path.
    """
    reason = distrust_of_way(home) or distrust_of_new_way(home, context, 0 if uid is None else uid)
    if reason:
        raise ResourceError(f"home {home} is not made, because others could exchange it: {reason}")


def _require_own(user: UserEntry, what: str, known: Known, context: Context) -> None:
    if why := _why_not_own(user, user.home, known, context):
        raise ResourceError(f"home {user.home} of {user.name} {why}, so it is not {what}")

    refuse_mounted(user.home, what)


def _why_not_own(user: UserEntry, home: str, known: Known, context: Context) -> str:
    """Return why an existing home is not the user's alone, in a directory of root; empty if it is."""
    found = find_home(home, context)
    above = context.system.lstat(os.path.dirname(home))
    if home == "/" or not os.path.isabs(home) or os.path.normpath(home) != home:
        return "is not a plain path of its own"
    if found is None or not stat.S_ISDIR(found.st_mode):
        return "is a link" if found and stat.S_ISLNK(found.st_mode) else "is not a directory"
    if found.st_uid != user.uid:
        return f"belongs to {user_name(found.st_uid)}"
    if above is None or above.st_uid != 0 or not stat.S_ISDIR(above.st_mode) or distrust_of_way(home):
        return "is not in a directory of root"
    others = (one for one in known.names.users.values() if one.name != user.name)
    # A home of another user below this one counts as well, because it would be moved or removed too.
    shared = next((one for one in others if f"{one.home}/".startswith(f"{home}/")), None)
    return f"is that of {shared.name}, too" if shared else ""


def make(user: UserEntry, context: Context) -> None:
    """Create a missing home with the mode that useradd uses."""
    context.system.make_directory(user.home, Attributes(user.uid, user.gid, _mode()))


def _mode() -> int:
    settings = login_defs()
    try:
        if "HOME_MODE" in settings:
            return int(settings["HOME_MODE"], 8) & 0o777
        return 0o777 & ~int(settings.get("UMASK", "077"), 8)
    except ValueError:
        return 0o700
