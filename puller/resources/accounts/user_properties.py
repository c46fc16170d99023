"""The properties of a user, and what is wrong with them (``docs/resources/user.md``)."""

from collections.abc import Iterator
from datetime import date, timedelta

from hiera.values.secrets import Secret
from puller.resources.accounts.keys import parse_key
from puller.resources.accounts.names import (
    check_ensure,
    check_id,
    check_membership,
    check_name,
    check_others,
    is_field,
    is_id,
)
from puller.resources.accounts.passwords import NONE, problem_of
from puller.resources.base import Properties, PropertyError
from puller.resources.paths import check_path

DAYS = ("password_min_days", "password_max_days", "password_warn_days")
NEVER = "never"
_MOST_DAYS = 2**31 - 1


class UserProperties(Properties, frozen=True):
    """The properties of a user."""

    uid: int | None = None
    """Its id; chosen by the system when not given."""
    group: str | int | None = None
    """The primary group, by name or id; that of the same name, or what the system chooses, when not given."""
    groups: tuple[str, ...] | None = None
    """Supplementary groups; left as they are when not given."""
    membership: str = "minimum"
    """``minimum``: other supplementary groups stay; ``inclusive``: they are removed."""
    home: str | None = None
    """The home; that of a new user is below ``/home`` when not given."""
    manage_home: bool | None = None
    """Make the home when it is missing, and move it when ``home`` changes; not with ``system``, unless it is given."""
    shell: str | None = None
    """The login shell; the system's for a new user when not given."""
    comment: str | None = None
    """The full name and whatever else is said of the user."""
    password: Secret | None = None
    """A hash of crypt(3), or ``*`` or ``!`` for none."""
    locked: bool | None = None
    """Whether ``!`` before the hash keeps the password from being used; keys still let the user in."""
    system: bool = False
    """Make it with an id of the range for the system's own; of a user who is there nothing is compared."""
    expires: str | None = None
    """The day from which the account lets nobody in, ``2030-12-31``, or ``never``."""
    password_max_days: int | None = None
    """Days after which a password has to be changed; -1 for never."""
    password_min_days: int | None = None
    """Days before which it cannot be changed; -1 for none."""
    password_warn_days: int | None = None
    """Days before its end on which the user is warned; -1 for none."""
    authorized_keys: tuple[str, ...] | None = None
    """Public keys that let the user in by SSH, as lines of ``~/.ssh/authorized_keys``."""
    exclusive_keys: bool = False
    """Remove all other keys."""
    remove_home: bool = False
    """Remove the home as well, with ``ensure: absent``."""


def check_user(properties: UserProperties) -> Iterator[PropertyError]:
    """All that is wrong with the properties of a user."""
    yield from check_name(properties.name)
    yield from check_ensure(properties.ensure)
    yield from _check_root(properties)
    yield from check_id("uid", properties.uid)
    yield from _check_group(properties.group)
    yield from check_others("groups", properties.groups or ())
    yield from check_membership("groups", properties.groups, properties.membership)
    yield from _check_fields(properties)
    if properties.password is not None or properties.locked is False:
        yield from _check_password(properties)
    if properties.expires is not None and days_of(properties.expires) is None:
        wanted = f"a day such as '2030-12-31', from 1970-01-01 on, or {NEVER}"
        yield PropertyError("expires", f"is {properties.expires!r}", expected=wanted)
    for name in DAYS:
        if (days := getattr(properties, name)) is not None and not -1 <= days <= _MOST_DAYS:
            yield PropertyError(name, f"is {days}", expected="a number of days, or -1 for none")
    yield from _check_keys(properties)
    if properties.remove_home and properties.ensure != "absent":
        yield PropertyError("remove_home", "is only for ensure: absent", because=["ensure"])


def days_of(expires: str) -> int | None:
    """The field of shadow(5): days since 1970-01-01, -1 for none; ``None`` for what is no such day."""
    if expires == NEVER:
        return -1

    try:
        days = (date.fromisoformat(expires) - date(1970, 1, 1)).days
    except ValueError:
        return None
    return days if days >= 0 and len(expires) == 10 else None


def day_of(days: int) -> str:
    """The text that gives such a field."""
    if days < 0:
        return NEVER

    try:
        return str(date(1970, 1, 1) + timedelta(days))
    except OverflowError:
        return f"day {days}"


def _check_root(properties: UserProperties) -> Iterator[PropertyError]:
    is_root = properties.name == "root"
    if is_root and properties.ensure == "absent":
        yield PropertyError("ensure", "is 'absent', and root is not removed", because=["name"])
    if properties.uid is not None and (properties.uid == 0) is not is_root:
        yield PropertyError("uid", f"is {properties.uid}, and 0 is root's alone", because=["name"])


def _check_group(group: str | int | None) -> Iterator[PropertyError]:
    if group is None:
        return
    if is_id(group):
        yield from check_id("group", int(group))
    else:
        yield from check_others("group", [str(group)])


def _check_fields(properties: UserProperties) -> Iterator[PropertyError]:
    for name in ("home", "shell"):
        if (path := getattr(properties, name)) is not None:
            yield from check_path(name, path)
    for name in ("home", "shell", "comment"):
        text = getattr(properties, name)
        if text is not None and not is_field(text):
            wanted = "no colon, line end or other control character"
            yield PropertyError(name, f"is {text!r}", expected=wanted)


def _check_password(properties: UserProperties) -> Iterator[PropertyError]:
    password = properties.password.reveal() if properties.password else None
    if password is not None and (problem := problem_of(password)):
        yield PropertyError("password", problem)
    elif password in NONE and properties.locked is False:
        yield PropertyError("locked", "is false, and there is no password to unlock", because=["password"])


def _check_keys(properties: UserProperties) -> Iterator[PropertyError]:
    if properties.exclusive_keys and properties.authorized_keys is None:
        yield PropertyError(
            "exclusive_keys", "wants authorized_keys, which may be empty", because=["authorized_keys"]
        )
    if not properties.authorized_keys:
        return

    seen: dict[tuple[str, str], int] = {}
    for index, line in enumerate(properties.authorized_keys):
        try:
            key = parse_key(line)
        except ValueError as error:
            yield PropertyError("authorized_keys", f"[{index}] {error}", place=(index,))
            continue
        if (first := seen.setdefault(key.identity, index)) != index:
            yield PropertyError("authorized_keys", f"[{index}] is the same key as [{first}]", place=(index,))
