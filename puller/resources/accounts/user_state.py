"""The state of a user, and its differences from the desired state. This module changes nothing.

* Reads only managed parts. The hash and the home, for example, are skipped unless they are managed.
* The primary group never counts as a supplementary group, even if it lists the user.
"""

import pwd
from collections.abc import Iterator

import msgspec

from foundation.differences import Difference, DifferenceKind, added, changed, presence, secret
from foundation.quantities import counted
from puller.errors import ResourceError
from puller.resources.accounts.account_databases import Ageing, Databases, Known, UserEntry
from puller.resources.accounts.account_properties import (
    DAYS,
    UserProperties,
    day_of,
    days_of,
    is_id,
    is_locked,
    is_met,
)
from puller.resources.accounts.authorized_keys import DesiredKeys, KeysState, all_missing, look, parse_key
from puller.resources.base import Context
from puller.resources.paths import group_id

_AGEING = ("password", "locked", "expires", *DAYS)


class UserState(msgspec.Struct, frozen=True):
    """A user in the databases. ``found`` is ``None`` if the user is missing."""

    found: UserEntry | None = None
    ageing: Ageing | None = None
    """``None`` unless any part of it is managed."""
    groups: frozenset[str] = frozenset()
    """Groups that list the user."""
    has_home: bool = True
    """Whether the home exists. ``True`` if the home is not managed."""
    keys: KeysState | None = None
    """Differences of the keys, if they are managed."""


def look_at(properties: UserProperties, context: Context) -> UserState:
    """Return the current user. Raises ``OSError``, and ``ResourceError`` if the user is not local."""
    name, known = properties.name, Known(context)
    result = None if known.is_gone("user", name) else known.names.users.get(name)
    if result is None:
        if context.system.user_id(name) is not None and not known.is_new("user", name):
            raise ResourceError(f"user {name} is not local: another source than /etc/passwd has it")
        return UserState()
    if properties.ensure == "absent":
        return UserState(result)
    manages_ageing = any(getattr(properties, name) is not None for name in _AGEING)
    return UserState(
        result,
        Databases.of(context).ageing(result, context) if manages_ageing else None,
        frozenset(known.groups_of(name)),
        not _manages_home_of(result, properties) or _exists(result.home, context),
        _look_at_keys(result, properties, context),
    )


NO_HOME = "/nonexistent"
"""The home of users without a home. Distributions rely on it being missing (Debian policy 9.2.3)."""


def manages_home(properties: UserProperties) -> bool:
    """Return whether the home is created and moved."""
    if properties.home == NO_HOME:
        return False
    return not properties.system if properties.manage_home is None else properties.manage_home


HOMES = "/home"
"""The directory of new users' homes."""


def home_of(name: str) -> str:
    """Return the home of an existing user, or the default for a new one."""
    try:
        return pwd.getpwnam(name).pw_dir
    except KeyError:
        return default_home(name)


def default_home(name: str) -> str:
    """Return the default home of a new user."""
    return f"{HOMES}/{name}"


def _manages_home_of(user: UserEntry, properties: UserProperties) -> bool:
    """Return whether a missing home is created. Excludes other homes than the default, such as that of ``nobody``."""
    if not manages_home(properties):
        return False
    if properties.home is not None:
        return user.home == properties.home
    return properties.manage_home is True or user.home == default_home(user.name)


def _exists(home: str, context: Context) -> bool:
    return context.system.lstat(home) is not None or context.system.exists(home)


def desired_keys(user: UserEntry, properties: UserProperties) -> DesiredKeys | None:
    """Return the desired keys of a user, or ``None`` if they are not managed."""
    if properties.authorized_keys is None:
        return None

    keys = tuple(map(parse_key, properties.authorized_keys))
    return DesiredKeys(keys, properties.exclusive_keys, user.name, user.uid, user.gid, user.home)


def _look_at_keys(user: UserEntry, properties: UserProperties, context: Context) -> KeysState | None:
    desired = desired_keys(user, properties)
    if desired is None:
        return None

    if context.system.lstat(user.home) is None:
        return all_missing(desired.keys)
    return look(desired)


# Differences


def is_missing_home(difference: Difference) -> bool:
    """Return whether the home directory of a user does not exist."""
    return difference.property == "home" and difference.kind is DifferenceKind.ADDED


def differences_of(properties: UserProperties, actual: UserState, context: Context) -> Iterator[Difference]:
    """Yield all differences from the desired state. Raises ``ResourceError`` for an unknown group."""
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
        desired, result = getattr(properties, name), getattr(user, name)
        if desired not in (None, result):
            yield changed(name, result, desired)


def _is_primary(group: str | int, user: UserEntry, name: str, context: Context) -> bool:
    """Return whether a group is the primary one, even if a dry run would have changed its id."""
    known = Known(context)
    if name == str(group) and not known.is_gone("group", name):
        return True
    return gid_of(group, known, context) == user.gid


def _of_groups(properties: UserProperties, actual: UserState, primary: str) -> Iterator[Difference]:
    primary = primary if properties.group is None else str(properties.group)
    result, desired = actual.groups - {primary}, {*(properties.groups or ())} - {primary}
    if properties.membership == "minimum":
        desired |= result
    if result != desired:
        yield changed("groups", _listed(result), _listed(desired))


def _of_shadow(properties: UserProperties, ageing: Ageing) -> Iterator[Difference]:
    field = ageing.password.reveal()
    if properties.password is not None and not is_met(properties.password.reveal(), field):
        yield secret("password")
    if properties.locked not in (None, is_locked(field)):
        yield changed("locked", _truth(is_locked(field)), _truth(properties.locked))
    if properties.expires is not None and days_of(properties.expires) != ageing.expires:
        yield changed("expires", day_of(ageing.expires), properties.expires)
    for name in DAYS:
        desired, now = getattr(properties, name), getattr(ageing, name.removeprefix("password_"))
        if desired not in (None, now):
            yield changed(name, str(now), str(desired))


def gid_of(group: str | int, known: Known, context: Context) -> int:
    """Return the id of a primary group. Raises ``ResourceError`` for an unknown name."""
    name = str(group)
    if is_id(group) or known.is_gone("group", name) or known.is_new("group", name):
        return group_id(group, context)
    result = known.names.groups.get(name)
    # Avoids a query to the system for each of a thousand users.
    return group_id(group, context) if result is None else result.gid


def _truth(value: bool | None) -> str:
    return "true" if value else "false"


def _listed(names: set[str] | frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _described_keys(properties: UserProperties) -> str:
    number = len(properties.authorized_keys or ())
    return f"{counted(number, 'key')}{' and no others' if properties.exclusive_keys else ''}"
