"""Declarations of users and groups: properties, validation, agreement, order and contradictions.

See ``docs/resources/user.md`` and ``docs/resources/group.md``.

* Password hashes follow crypt(3). A leading ``!`` locks the account and is not part of the hash (passwd(1),
  ``usermod -L``). Messages never quote a hash.
* Two declarations of one user or group are merged. Lists that allow additions are joined. A complete list must be
  equal to another complete list, and must contain the members of a list that allows additions.
* The merged lists are sorted, so that the order of the declarations does not matter.
* Groups are created before users. A group that lists members follows these users, unless a user names the group.
* Users are removed before groups. The primary group of a remaining user cannot be removed.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date, timedelta
from typing import TypeVar

import msgspec

from foundation.problems import ProblemCode
from hiera.values import Secret
from puller.errors import ResourceError
from puller.resources.accounts.authorized_keys import find_key, parse_key
from puller.resources.base import Context, Properties, PropertyError, missing_property
from puller.resources.claims import agree
from puller.resources.paths import check_path
from puller.values.common_properties import Reference

# Names and fields of the account databases. Colons and line ends separate fields, so values must not contain them.

_NEW = re.compile(r"[a-z_][a-z0-9_-]{0,30}\$?")
_NEW_WITH_DOTS = re.compile(r"(?=.{1,31}\$?$)[a-z_][a-z0-9_-]*(?:\.[a-z0-9_-]+)+\$?")
_TAKES_DOTS = ("Debian", "RedHat")
"""Families whose useradd and groupadd accept dots. Others reject them without ``--badname``."""
_OTHER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,30}\$?")
_WANTED = "letters, digits, _ . and -, a letter or _ first, at most 31 and perhaps a $"
LARGEST_ID = 2**32 - 2
"""The highest valid id. The system reserves the next one for *no change*."""


def check_name(name: str) -> Iterator[PropertyError]:
    """Yield an error if the name of a managed account is invalid. Packages use capital letters, so they are valid."""
    if not _OTHER.fullmatch(name):
        yield PropertyError("name", f"is {name!r}", expected=_WANTED)


def require_new_name(name: str, context: Context) -> None:
    """Raise ``ResourceError`` if a new account must not have this name, or useradd(8) of this machine rejects it."""
    if _NEW.fullmatch(name):
        return
    if not _NEW_WITH_DOTS.fullmatch(name):
        expected = "lower-case letters, digits, _ and - for a new one, and single dots between them"
        raise ResourceError(f"name is {name!r}", expected=expected)
    family = context.scope.lookup("facts.os.family", None)
    if family not in _TAKES_DOTS:
        raise ResourceError(
            f"name is {name!r}, and useradd accepts dots only on {' and '.join(_TAKES_DOTS)} systems",
            code=ProblemCode.CHANGE_REFUSED,
        )


def check_ensure(ensure: str) -> Iterator[PropertyError]:
    """Yield an error if ``ensure`` is invalid for an account."""
    if ensure not in ("present", "absent"):
        yield PropertyError("ensure", f"is {ensure!r}", expected="present or absent")


def check_others(name: str, others: Iterable[str]) -> Iterator[PropertyError]:
    """Yield errors of a property that lists other accounts."""
    for other in others:
        if not _OTHER.fullmatch(other):
            yield PropertyError(name, f"has {other!r}", expected="a name")


def check_id(name: str, number: int | None) -> Iterator[PropertyError]:
    """Yield an error if an id is out of range."""
    if number is not None and not 0 <= number <= LARGEST_ID:
        yield PropertyError(name, f"is {number}", expected=f"0 to {LARGEST_ID}")


def check_membership(name: str, others: tuple[str, ...] | None, membership: str) -> Iterator[PropertyError]:
    """Yield an error if ``membership`` is invalid, or inclusive without the property ``name``."""
    if membership not in ("minimum", "inclusive"):
        yield PropertyError("membership", f"is {membership!r}", expected="minimum or inclusive")
    elif membership == "inclusive" and others is None:
        yield missing_property("membership", f"is inclusive, and {name} is missing", because=[name])


def is_id(other: str | int) -> bool:
    """Return whether an account is given by its id."""
    return isinstance(other, int) or (other.isascii() and other.isdecimal())


def is_field(text: str) -> bool:
    """Return whether a text can be a database field: printable and without a colon."""
    return ":" not in text and all(character.isprintable() for character in text)


_PATTERNS = (
    re.compile(r"\$1\$[^$]{0,8}\$[./0-9A-Za-z]{22}"),
    re.compile(r"\$5\$(?:rounds=[0-9]+\$)?[^$]{0,16}\$[./0-9A-Za-z]{43}"),
    re.compile(r"\$6\$(?:rounds=[0-9]+\$)?[^$]{0,16}\$[./0-9A-Za-z]{86}"),
    re.compile(r"\$2[abxy]\$[0-9]{2}\$[./0-9A-Za-z]{53}"),
    re.compile(r"\$g?y\$[./0-9A-Za-z]+\$[./0-9A-Za-z]{0,86}\$[./0-9A-Za-z]{43}"),
    # Formats of other or future libcrypt versions: an id, parameters, and a hash.
    re.compile(r"\$(?![1256]\$|2[abxy]\$|g?y\$)[0-9a-z-]{1,16}\$.*[./0-9A-Za-z]{16,}"),
)
_PRINTED = re.compile(r"[!-9<-~]+")  # neither blanks nor : and ;
NONE = ("*", "!")
"""Values of the hash field that match no password."""


def problem_of(password: str) -> str:
    """Return why a text is not valid in shadow(5), to follow the property's name. Empty if it is valid."""
    if password in NONE:
        return ""
    if password.startswith("!"):
        return "begins with !, expected the hash alone, and locked: true"
    # crypt(3) never produces these characters in a hash.
    is_plain = _PRINTED.fullmatch(password) and not {*"!*\\"} & {*password}
    if is_plain and any(pattern.fullmatch(password) for pattern in _PATTERNS):
        return ""
    return "is not a hash, expected a crypt(3) hash such as '$6$…' or '$y$…', or '*' or '!' for none"


def hash_of(field: str) -> str:
    """Return the hash in a field without the lock. Empty if the field contains only a lock."""
    return field.lstrip("!")


def is_met(password: str, field: str) -> bool:
    """Return whether a field has the desired password, locked or not.

    An empty field, which allows every login, never does.
    """
    return field != "" and hash_of(field) == hash_of(password)


def is_locked(field: str) -> bool:
    """Return whether the password in a field is locked."""
    return field.startswith("!")


def field_of(password: str, result: str, *, locked: bool | None) -> str:
    """Return the field for the desired password. If ``locked`` is ``None``, a locked account stays locked.

    An account that never had a password does not count as locked.
    """
    stays_locked = is_locked(result) and bool(hash_of(result))
    lock = "!" if (stays_locked if locked is None else locked) else ""
    return (lock + hash_of(password)) or "!"


DAYS = ("password_min_days", "password_max_days", "password_warn_days")
NEVER = "never"
_MOST_DAYS = 2**31 - 1


class UserProperties(Properties, frozen=True):
    """The properties of a user."""

    uid: int | None = None
    """The id. The system chooses an unset id."""
    group: str | int | None = None
    """The primary group: name or id. Default for a new user: the group of the same name, or the system's choice."""
    groups: tuple[str, ...] | None = None
    """Supplementary groups. Unset: unmanaged."""
    membership: str = "minimum"
    """``minimum``: keep other supplementary groups. ``inclusive``: remove them."""
    home: str | None = None
    """The home. For a new user, the default is ``/home/NAME``. Otherwise unset means unmanaged."""
    manage_home: bool | None = None
    """Create a missing home, and move it if ``home`` changes. The default is true, and false with ``system``."""
    shell: str | None = None
    """The login shell. For a new user, the default is the system's choice."""
    comment: str | None = None
    """The full name or another comment."""
    password: Secret | None = None
    """A hash of crypt(3), or ``*`` or ``!`` for no password."""
    locked: bool | None = None
    """Whether the password is locked by ``!`` before the hash. Keys still permit a login."""
    system: bool = False
    """Create the user with a system id. An existing user stays unchanged."""
    expires: str | None = None
    """The day when the account expires, such as ``2030-12-31``, or ``never``."""
    password_max_days: int | None = None
    """Maximum age of the password in days, -1 for no limit."""
    password_min_days: int | None = None
    """Minimum age of the password in days, -1 for no limit."""
    password_warn_days: int | None = None
    """Days of warning before the password expires, -1 for none."""
    authorized_keys: tuple[str, ...] | None = None
    """Public keys for login by SSH, as lines of ``~/.ssh/authorized_keys``."""
    exclusive_keys: bool = False
    """Remove all other keys."""
    remove_home: bool = False
    """Also remove the home, with ``ensure: absent``."""


def check_user(properties: UserProperties) -> Iterator[PropertyError]:
    """Yield all errors in the properties of a user."""
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
        expected = f"a day such as '2030-12-31', from 1970-01-01 on, or {NEVER}"
        yield PropertyError("expires", f"is {properties.expires!r}", expected=expected)
    for name in DAYS:
        if (days := getattr(properties, name)) is not None and not -1 <= days <= _MOST_DAYS:
            yield PropertyError(name, f"is {days}", expected="a number of days, or -1 for no limit")
    yield from _check_keys(properties)
    if properties.remove_home and properties.ensure != "absent":
        yield PropertyError("remove_home", "is only for ensure: absent", because=["ensure"])


def days_of(expires: str) -> int | None:
    """Return the field of shadow(5): days since 1970-01-01, -1 for never. ``None`` if the date is invalid."""
    if expires == NEVER:
        return -1

    try:
        days = (date.fromisoformat(expires) - date(1970, 1, 1)).days
    except ValueError:
        return None
    return days if days >= 0 and len(expires) == 10 else None


def day_of(days: int) -> str:
    """Return the text of such a field."""
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
            expected = "no colon, line end or other control character"
            yield PropertyError(name, f"is {text!r}", expected=expected)


def _check_password(properties: UserProperties) -> Iterator[PropertyError]:
    password = properties.password.reveal() if properties.password else None
    if password is not None and (problem := problem_of(password)):
        yield PropertyError("password", problem)
    elif password in NONE and properties.locked is False:
        yield PropertyError("locked", "is false, but unlocking requires a password", because=["password"])


def _check_keys(properties: UserProperties) -> Iterator[PropertyError]:
    if properties.exclusive_keys and properties.authorized_keys is None:
        yield PropertyError(
            "exclusive_keys", "requires authorized_keys, which may be empty", because=["authorized_keys"]
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


class GroupProperties(Properties, frozen=True):
    """The properties of a group."""

    gid: int | None = None
    """The id. The system chooses an unset id."""
    system: bool = False
    """Create the group with a system id. An existing group stays unchanged."""
    members: tuple[str, ...] | None = None
    """The listed users. Unset: unmanaged."""
    membership: str = "minimum"
    """``minimum``: keep other members. ``inclusive``: remove other members."""


def check_group(properties: GroupProperties) -> Iterator[PropertyError]:
    """Yield all errors in the properties of a group."""
    yield from check_name(properties.name)
    yield from check_ensure(properties.ensure)
    yield from check_id("gid", properties.gid)
    yield from check_others("members", properties.members or ())
    yield from check_membership("members", properties.members, properties.membership)
    if properties.name == "root" and properties.ensure == "absent":
        yield PropertyError("ensure", "is 'absent', and root is not removed", because=["name"])
    if properties.gid is not None and (properties.gid == 0) is not (properties.name == "root"):
        yield PropertyError("gid", f"is {properties.gid}, and 0 is root's alone", because=["name"])


P = TypeVar("P", UserProperties, GroupProperties)
List = tuple[str, ...] | None


def agree_on_group(first: GroupProperties, second: GroupProperties) -> GroupProperties:
    """Merge two declarations of a group. Raises ``Contradiction``."""
    complete = [
        left_side.members is not None and left_side.membership == "inclusive" for left_side in (first, second)
    ]
    return agree(
        first,
        second,
        rules={
            "members": lambda left_side, other: joined((left_side, other), complete),
            "membership": lambda left_side, other: "inclusive",
        },
    )


def agree_on_user(first: UserProperties, second: UserProperties) -> UserProperties:
    """Merge two declarations of a user. Raises ``Contradiction``."""
    groups = [
        left_side.groups is not None and left_side.membership == "inclusive" for left_side in (first, second)
    ]
    keys = [
        left_side.authorized_keys is not None and left_side.exclusive_keys for left_side in (first, second)
    ]
    agreed = agree(
        first,
        second,
        rules={
            "groups": lambda left_side, other: joined((left_side, other), groups),
            "membership": lambda left_side, other: "inclusive",
            "group": _same_group,
            "authorized_keys": lambda left_side, other: _require_unique_keys(
                joined((left_side, other), keys)
            ),
        },
    )
    return msgspec.structs.replace(agreed, exclusive_keys=any(keys))


def joined(lists: tuple[List, List], complete: Collection[bool]) -> List:
    """Join both lists. Raises ``ValueError`` if a complete list lacks an entry of the other list."""
    provided = [{*one} for one in lists if one is not None]
    wholes = [{*(one or ())} for one, is_whole in zip(lists, complete, strict=True) if is_whole]
    both = set().union(*provided)
    if any(whole != both for whole in wholes):
        raise ValueError("a complete list lacks members of the other list")
    return tuple(sorted(both))


def _same_group(first: str | int | None, other: str | int | None) -> str | int | None:
    """Merge two primary groups. Needed because an id may be a number or text."""
    if first is None or other is None:
        return first if other is None else other
    if str(first) != str(other):
        raise ValueError("two groups")
    return str(first)


def _require_unique_keys(lines: List) -> List:
    """Raise ``ValueError`` if two lines give one key different options."""
    keys = [find_key(line) for line in lines or ()]
    if len({key.identity for key in keys if key is not None}) < len(keys):
        raise ValueError("one key with different options")
    return lines


# Order of users and groups. Groups without listed members form a chain in manifest order, and each user waits for the
# last group of the chain only. A thousand users and a thousand groups would otherwise need a million pairs.


def before_user(properties: UserProperties, groups: Sequence[GroupProperties]) -> Iterator[Reference]:
    """Yield the groups that come before a user."""
    if properties.ensure == "absent":
        return
    yield from (Reference.to("group", name) for name in sorted(_named_by(properties)))
    if (last := next(filter(_is_in_chain, reversed(groups)), None)) is not None:
        yield Reference.to("group", last.name)


def before_group(
    properties: GroupProperties, users: Sequence[UserProperties], groups: Sequence[GroupProperties]
) -> Iterator[Reference]:
    """Yield the users and groups that come before a group."""
    if properties.ensure == "absent":
        yield from (Reference.to("user", user.name) for user in users if user.ensure == "absent")
    elif not _is_in_chain(properties):
        listed = {*(getattr(properties, "members", None) or ())}
        for user in users:
            if user.name in listed and properties.name not in _named_by(user):
                yield Reference.to("user", user.name)
    elif (previous := _previous(properties, groups)) is not None:
        yield Reference.to("group", previous.name)


def _is_in_chain(group: GroupProperties) -> bool:
    return group.ensure == "present" and not getattr(
        group, "members", None
    )  # a group whose members cannot be resolved counts as one without


def _previous(group: GroupProperties, groups: Sequence[GroupProperties]) -> GroupProperties | None:
    """Return the preceding group of the chain."""
    group_properties = None
    for other in groups:
        if other is group:
            return group_properties
        if _is_in_chain(other):
            group_properties = other
    return None


def _named_by(user: Properties) -> set[str]:
    """Return the groups that a new user requires, including the primary group, by default of the same name."""
    if not isinstance(user, UserProperties):  # only its name can be resolved
        return set()
    return {user.name if user.group is None else str(user.group), *(user.groups or ())}


# Contradictions

Contradictions = Iterator[tuple[GroupProperties, UserProperties, str]]


def contradictions(users: Iterable[UserProperties], groups: Iterable[GroupProperties]) -> Contradictions:
    """Yield groups and users that would undo each other in every run, with a sentence about the user."""
    by_name = {group.name: group for group in groups if isinstance(group, GroupProperties)}
    listed = [group for group in by_name.values() if group.members is not None]
    for user in filter(lambda item: isinstance(item, UserProperties), users):
        if user.ensure == "absent":
            yield from _of_absent(user, listed)
            continue
        yield from _of_groups(user, by_name)
        if user.groups is not None and user.membership == "inclusive":
            yield from _of_members(user, listed)


def _of_absent(user: UserProperties, listed: Sequence[GroupProperties]) -> Contradictions:
    for group in listed:
        if group.ensure == "present" and user.name in (group.members or ()):
            yield group, user, f"ensure is absent, and the members of a group have {user.name!r}"


def _of_groups(user: UserProperties, by_name: dict[str, GroupProperties]) -> Contradictions:
    """Yield conflicts with groups that the user names."""
    for name in sorted(_named_by(user) & by_name.keys()):
        group = by_name[name]
        is_named = name in (user.groups or ()) or str(user.group) == name
        if group.ensure == "absent" and is_named:
            yield group, user, f"is to be in {name!r}, which is to be absent"
        elif _leaves_out(group, user):
            yield group, user, f"groups has {name!r}, whose inclusive members do not have {user.name!r}"


def _leaves_out(group: GroupProperties, user: UserProperties) -> bool:
    if group.members is None or group.membership != "inclusive" or group.ensure == "absent":
        return False
    is_supplementary = group.name in (user.groups or ()) and not _is_primary(group, user)
    return is_supplementary and user.name not in group.members


def _of_members(user: UserProperties, listed: Sequence[GroupProperties]) -> Contradictions:
    """Yield conflicts of groups that list a user whose inclusive groups omit them."""
    for group in listed:
        lists = group.ensure == "present" and user.name in (group.members or ())
        if lists and group.name not in (user.groups or ()) and not _is_primary(group, user):
            yield (
                group,
                user,
                f"inclusive groups do not have {group.name!r}, whose members have {user.name!r}",
            )


def _is_primary(group: GroupProperties, user: UserProperties) -> bool:
    primary = user.name if user.group is None else str(user.group)
    return primary in (group.name, str(group.gid))
