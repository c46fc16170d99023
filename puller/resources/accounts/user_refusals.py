"""Refusals of what cannot be done to a user, before anything is changed; a dry run says the same.

Tools find most of it out by themselves, some only when half of it is done, and some not at all.
"""

import os
from collections.abc import Collection, Sequence

from foundation.differences import Difference, DifferenceKind
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.accounts import homes
from puller.resources.accounts.busy import require_idle
from puller.resources.accounts.databases import Known, User
from puller.resources.accounts.names import is_id, require_new_name
from puller.resources.accounts.passwords import hash_of
from puller.resources.accounts.user_properties import UserProperties
from puller.resources.accounts.user_state import UserState, default_home, gid_of, manages_home
from puller.resources.base import Context
from puller.resources.owners import group_name
from puller.resources.paths import require_parent


def refuse(
    properties: UserProperties, actual: UserState, differences: Sequence[Difference], context: Context
) -> None:
    """Raise ``ResourceError`` for the first thing that cannot be."""
    known, changed = Known(context), {difference.property for difference in differences}
    if properties.ensure == "absent":
        if actual.found is not None:
            _refuse_removal(actual.found, properties, known, context)
        return
    if "ensure" in changed:
        changed = {"uid", "group", "groups", "shell", "new"}
    _refuse_values(properties, changed, known, context)
    if "new" in changed:
        _refuse_new(properties, context)
    elif actual.found is not None:
        _refuse_change(actual.found, properties, differences, known, context)
        _refuse_unlocking(properties, actual, changed)


def _refuse_removal(user: User, properties: UserProperties, known: Known, context: Context) -> None:
    if user.uid == 0:
        raise ResourceError(
            f"user {user.name} has uid 0, so it is not removed", code=ProblemCode.CHANGE_REFUSED
        )
    if properties.remove_home:
        homes.require_removable(user, known, context)
    _require_idle(user)


def _refuse_values(
    properties: UserProperties, changed: Collection[str], known: Known, context: Context
) -> None:
    uid = properties.uid
    if uid is not None and "uid" in changed and (other := known.user_with(uid)):
        raise ResourceError(f"uid {uid} is that of user {other}", code=ProblemCode.CHANGE_REFUSED)
    if properties.group is not None and "group" in changed:
        _require_group(properties.group, known, context)
    if "groups" in changed:
        for name in properties.groups or ():
            _require_local_group(name, known, context)
    if properties.shell is not None and "shell" in changed:
        _require_shell(properties.shell, context)


def _refuse_new(properties: UserProperties, context: Context) -> None:
    require_new_name(properties.name)
    if manages_home(properties):
        homes.require_new(properties.home or default_home(properties.name), properties.uid, context)
    if properties.locked is False and properties.password is None:
        raise ResourceError(
            "locked is false, and a new user has no password to unlock",
            code=ProblemCode.CHANGE_REFUSED,
            hint="give one",
        )


def _refuse_change(
    user: User,
    properties: UserProperties,
    differences: Sequence[Difference],
    known: Known,
    context: Context,
) -> None:
    missing = {one.property for one in differences if one.kind is DifferenceKind.ADDED}
    changed = {one.property for one in differences if one.kind is not DifferenceKind.ADDED}
    if "home" in changed and properties.home is not None and manages_home(properties):
        homes.require_movable(user, properties.home, known, context)
    if changed & {"uid", "home"}:
        _require_idle(user)
    if "home" in missing:
        require_parent(user.home, context)
    elif "authorized_keys" in changed and not context.system.is_directory(user.home):
        raise ResourceError(
            f"home {user.home} is not there, so no keys can be put into it", code=ProblemCode.CHANGE_REFUSED
        )


def _refuse_unlocking(properties: UserProperties, actual: UserState, changed: Collection[str]) -> None:
    """``usermod -U`` prints that it would leave no password, changes nothing, and ends with 0."""
    if "locked" not in changed or properties.locked is not False or properties.password is not None:
        return
    if actual.ageing is not None and not hash_of(actual.ageing.password.reveal()):
        raise ResourceError(
            "locked is false, and there is no password to unlock",
            code=ProblemCode.CHANGE_REFUSED,
            hint="give one",
        )


def _require_group(group: str | int, known: Known, context: Context) -> None:
    gid = gid_of(group, known, context)  # raises for a name that there is not
    is_there = known.group_with(gid) or group_name(gid) != str(gid)
    if is_id(group) and not is_there and not context.uncertain("/etc/group"):
        raise ResourceError(
            f"group is {group}, and there is no group with this id", code=ProblemCode.CHANGE_REFUSED
        )


def _require_local_group(name: str, known: Known, context: Context) -> None:
    if known.is_new("group", name) or context.uncertain("/etc/group"):
        return
    if name not in known.names.groups or known.is_gone("group", name):
        if context.system.group_id(name) is not None:
            raise ResourceError(
                f"groups has {name!r}, which is not local, so nobody is added to it here",
                code=ProblemCode.CHANGE_REFUSED,
            )
        raise ResourceError(
            f"groups has {name!r}, and there is no such group", code=ProblemCode.CHANGE_REFUSED
        )


def _require_shell(shell: str, context: Context) -> None:
    """usermod only warns of it, and the user cannot log in any more."""
    if os.path.isfile(shell) and os.access(shell, os.X_OK):
        return
    if not context.uncertain(shell) and not context.system.will_be_written(shell):
        raise ResourceError(f"shell {shell} is not an executable file", code=ProblemCode.CHANGE_REFUSED)


def _require_idle(user: User) -> None:
    require_idle(user.name, user.uid)
