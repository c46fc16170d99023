"""The state of a user, and what of it is not as wanted. Nothing here changes anything.

* Only what is managed is looked at: the hashes by who manages one, a home by who manages that.
* The primary group is never one of the supplementary ones, whether it lists the user or not.
"""

import pwd
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from foundation.differences import Difference, DifferenceKind, added, changed, presence, secret
from foundation.quantities import counted
from puller.errors import ResourceError
from puller.resources.accounts.account_properties import (
    DAYS,
    UserProperties,
    day_of,
    days_of,
    is_id,
    is_locked,
    is_met,
)
from puller.resources.accounts.authorized_keys import Wanted, all_missing, look, parse_key
from puller.resources.accounts.databases import Ageing, Databases, Known, UserEntry
from puller.resources.base import Context
from puller.resources.owners import group_id

if TYPE_CHECKING:  # for the users whose keys are managed
    from puller.resources.accounts.authorized_keys import KeysState

_AGEING = ("password", "locked", "expires", *DAYS)


class UserState(msgspec.Struct, frozen=True):
    """A user as the databases have it; ``found`` is ``None`` when there is none."""

    found: UserEntry | None = None
    ageing: Ageing | None = None
    """Looked at when anything of it is managed."""
    groups: frozenset[str] = frozenset()
    """Those that list the user."""
    has_home: bool = True
    """Whether the home is there; looked at when it is managed."""
    keys: "KeysState | None" = None
    """What differs of the keys, when they are managed."""


def look_at(properties: UserProperties, context: Context) -> UserState:
    """The user as it is now; raises ``ResourceError`` for one who is not local, and ``OSError``."""
    name, known = properties.name, Known(context)
    found = None if known.is_gone("user", name) else known.names.users.get(name)
    if found is None:
        if context.system.user_id(name) is not None and not known.is_new("user", name):
            raise ResourceError(f"user {name} is not local: another source than /etc/passwd has it")
        return UserState()
    if properties.ensure == "absent":
        return UserState(found)
    manages_ageing = any(getattr(properties, name) is not None for name in _AGEING)
    return UserState(
        found,
        Databases.of(context).ageing(found, context) if manages_ageing else None,
        frozenset(known.groups_of(name)),
        not _manages_home_of(found, properties) or _exists(found.home, context),
        _look_at_keys(found, properties, context),
    )


NO_HOME = "/nonexistent"
"""The home of users without a home. Distributions rely on it being missing (Debian policy 9.2.3)."""


def manages_home(properties: UserProperties) -> bool:
    """Whether the home is made and moved."""
    if properties.home == NO_HOME:
        return False
    return not properties.system if properties.manage_home is None else properties.manage_home


HOMES = "/home"
"""Where the homes of new users are."""


def home_of(name: str) -> str:
    """The home of a user who is there, or of a new one."""
    try:
        return pwd.getpwnam(name).pw_dir
    except KeyError:
        return default_home(name)


def default_home(name: str) -> str:
    """The home of a new user."""
    return f"{HOMES}/{name}"


def _manages_home_of(user: UserEntry, properties: UserProperties) -> bool:
    """Whether a home that is missing is made: not that of ``nobody``, which nobody has asked for."""
    if not manages_home(properties):
        return False
    if properties.home is not None:
        return user.home == properties.home
    return properties.manage_home is True or user.home == default_home(user.name)


def _exists(home: str, context: Context) -> bool:
    return context.system.lstat(home) is not None or context.system.exists(home)


def wanted_keys(user: UserEntry, properties: UserProperties) -> "Wanted | None":
    """The keys of a user; ``None`` where they are not managed."""
    if properties.authorized_keys is None:
        return None

    keys = tuple(map(parse_key, properties.authorized_keys))
    return Wanted(keys, properties.exclusive_keys, user.name, user.uid, user.gid, user.home)


def _look_at_keys(user: UserEntry, properties: UserProperties, context: Context) -> "KeysState | None":
    wanted = wanted_keys(user, properties)
    if wanted is None:
        return None

    if context.system.lstat(user.home) is None:
        return all_missing(wanted.keys)
    return look(wanted)


# What differs


def is_missing_home(difference: Difference) -> bool:
    """Return whether the home directory of a user does not exist."""
    return difference.property == "home" and difference.kind is DifferenceKind.ADDED


def differences_of(properties: UserProperties, actual: UserState, context: Context) -> Iterator[Difference]:
    """All that is not as wanted; raises ``ResourceError`` for a group that there is not."""
    user = actual.found
    ensure = "absent" if user is None else "present"
    if ensure != properties.ensure:
        yield presence(ensure, properties.ensure)
    elif user is not None and ensure == "present":
        yield from _of_passwd(properties, actual, user, context)
        if actual.ageing is not None:
            yield from _of_shadow(properties, actual.ageing)
        if not actual.has_home:
            yield added("home", user.home)
        if actual.keys is not None and not actual.keys.is_right:
            yield changed("authorized_keys", str(actual.keys), _described_keys(properties))


def _of_passwd(
    properties: UserProperties, actual: UserState, user: UserEntry, context: Context
) -> Iterator[Difference]:
    if properties.uid not in (None, user.uid):
        yield changed("uid", str(user.uid), str(properties.uid))
    known = Known(context)
    primary = known.names.groups_by_id.get(user.gid)
    name = primary.name if primary else str(user.gid)
    if properties.group is not None and not _is_primary(properties.group, user, name, context):
        yield changed("group", name, str(properties.group))
    if properties.groups is not None:
        yield from _of_groups(properties, actual, name)
    for name in ("home", "shell", "comment"):
        wanted, found = getattr(properties, name), getattr(user, name)
        if wanted not in (None, found):
            yield changed(name, found, wanted)


def _is_primary(group: str | int, user: UserEntry, name: str, context: Context) -> bool:
    """Whether a group is the primary one, also in a dry run that would have given it another id before."""
    known = Known(context)
    if name == str(group) and not known.is_gone("group", name):
        return True
    return gid_of(group, known, context) == user.gid


def _of_groups(properties: UserProperties, actual: UserState, primary: str) -> Iterator[Difference]:
    primary = primary if properties.group is None else str(properties.group)
    found, wanted = actual.groups - {primary}, {*(properties.groups or ())} - {primary}
    if properties.membership == "minimum":
        wanted |= found
    if found != wanted:
        yield changed("groups", _listed(found), _listed(wanted))


def _of_shadow(properties: UserProperties, found: Ageing) -> Iterator[Difference]:
    field = found.password.reveal()
    if properties.password is not None and not is_met(properties.password.reveal(), field):
        yield secret("password")
    if properties.locked not in (None, is_locked(field)):
        yield changed("locked", _truth(is_locked(field)), _truth(properties.locked))
    if properties.expires is not None and days_of(properties.expires) != found.expires:
        yield changed("expires", day_of(found.expires), properties.expires)
    for name in DAYS:
        wanted, now = getattr(properties, name), getattr(found, name.removeprefix("password_"))
        if wanted not in (None, now):
            yield changed(name, str(now), str(wanted))


def gid_of(group: str | int, known: Known, context: Context) -> int:
    """The id of a primary group; raises ``ResourceError`` when there is none of this name."""
    name = str(group)
    if is_id(group) or known.is_gone("group", name) or known.is_new("group", name):
        return group_id(group, context)
    found = known.names.groups.get(name)
    # Without a question to the system for each of a thousand users.
    return group_id(group, context) if found is None else found.gid


def _truth(value: bool | None) -> str:
    return "true" if value else "false"


def _listed(names: set[str] | frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _described_keys(properties: UserProperties) -> str:
    number = len(properties.authorized_keys or ())
    return f"{counted(number, 'key')}{' and no others' if properties.exclusive_keys else ''}"
