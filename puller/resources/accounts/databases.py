"""The local databases of accounts, read once for all users and groups, and what a dry run adds to them.

* Only local files are read: what a directory service knows beside them is asked for by ``System.user_id``.
* A line that is not understood is none: one that somebody has damaged must not keep all others from being managed.
* Nothing is ever written here: the system's own tools do that (``puller.resources.accounts.tools``).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Self

import msgspec

from hiera.values.secrets import Secret
from puller.resources.base import Context
from puller.resources.read_once import ReadOnce
from puller.system.protocol import AccountKind

DIRECTORY = "/etc"
"""Where the databases, their lock and ``login.defs`` are."""


def database_paths() -> tuple[str, ...]:
    """Return the paths of the local databases of users and groups."""
    return tuple(f"{DIRECTORY}/{name}" for name in ("passwd", "shadow", "group", "gshadow"))


class UserEntry(msgspec.Struct, frozen=True):
    """A line of passwd(5)."""

    name: str
    password: Secret
    uid: int
    gid: int
    comment: str
    home: str
    shell: str


class Group(msgspec.Struct, frozen=True):
    """A line of group(5)."""

    name: str
    gid: int
    members: tuple[str, ...]


class Ageing(msgspec.Struct, frozen=True):
    """A line of shadow(5); days are numbers, -1 for an empty field."""

    password: Secret
    min_days: int = -1
    max_days: int = -1
    warn_days: int = -1
    expires: int = -1
    """Days since 1970-01-01."""


class Names:
    """All users and groups; of two lines with one name, or one id, the first counts, as for the system."""

    def __init__(self, passwd: bytes, group: bytes) -> None:
        self.users = {user.name: user for user in reversed([*_users(passwd)])}
        self.groups = {group.name: group for group in reversed([*_groups(group)])}

    @cached_property
    def users_by_id(self) -> dict[int, UserEntry]:
        """By uid."""
        return {user.uid: user for user in self.users.values()}

    @cached_property
    def groups_by_id(self) -> dict[int, Group]:
        """By gid."""
        return {group.gid: group for group in self.groups.values()}

    @cached_property
    def memberships(self) -> dict[str, set[str]]:
        """By user, the groups that list them."""
        found: dict[str, set[str]] = {}
        for group in self.groups.values():
            for member in group.members:
                found.setdefault(member, set()).add(group.name)
        return found


class Databases:
    """The databases for all resources of a run, kept in ``Context.shared``. Methods raise ``OSError``."""

    def __init__(self) -> None:
        passwd, group, shadow = (f"{DIRECTORY}/{name}" for name in ("passwd", "group", "shadow"))
        self._names = ReadOnce(
            [passwd, group], lambda found: Names(found.get(passwd, b""), found.get(group, b""))
        )
        # By itself: only root can read it, and who looks at a group need not.
        self._shadow = ReadOnce([shadow], lambda found: _lines(found.get(shadow, b"")))

    @classmethod
    def of(cls, context: Context) -> Self:
        """The one of this run."""
        if cls not in context.shared:
            context.shared[cls] = cls()
        found: Self = context.shared[cls]
        return found

    @classmethod
    def forget(cls, context: Context) -> None:
        """A tool has changed them: whoever asks next reads them again."""
        context.shared.pop(cls, None)

    def names(self, context: Context) -> Names:
        """Users and groups."""
        return self._names.current(context)

    def ageing(self, user: UserEntry, context: Context) -> Ageing:
        """The hash and the days of a user; of one who is in passwd only, the hash that is there."""
        fields = self._shadow.current(context).get(user.name)
        if fields is None:
            return Ageing(Secret("") if user.password.reveal() == "x" else user.password)
        fields = [*fields, *[""] * 9]
        return Ageing(
            Secret(fields[1]), _days(fields[3]), _days(fields[4]), _days(fields[5]), _days(fields[7])
        )


class Known:
    """Who is there for a resource: the local databases, and in noop what this run would have made of them."""

    def __init__(self, context: Context) -> None:
        self.names = Databases.of(context).names(context)
        self._expected = context.system.expected_accounts

    def is_gone(self, kind: AccountKind, name: str) -> bool:
        """Whether this run would have removed it."""
        expected = self._expected(kind)
        return name in expected and expected[name] is None

    def is_new(self, kind: AccountKind, name: str) -> bool:
        """Whether this run would have made it, or given it another id."""
        return self._expected(kind).get(name) is not None

    def user_with(self, uid: int) -> str:
        """The name of a user by id; empty when nobody has it."""
        user = self.names.users_by_id.get(uid)
        return self._holder("user", uid, user.name if user else "")

    def group_with(self, gid: int) -> str:
        """The name of a group by id; empty when none has it."""
        group = self.names.groups_by_id.get(gid)
        return self._holder("group", gid, group.name if group else "")

    def _holder(self, kind: AccountKind, number: int, found: str) -> str:
        expected = self._expected(kind)
        new = next((name for name, expected_id in expected.items() if expected_id == number), "")
        return new or ("" if found in expected else found)

    def users_of(self, gid: int) -> Iterator[str]:
        """All whose primary group has this id."""
        for user in self.names.users.values():
            if user.gid == gid and not self.is_gone("user", user.name):
                yield user.name

    def groups_of(self, user: str) -> set[str]:
        """The groups that list a user as a member."""
        return self.names.memberships.get(user, set())


def find_user(name: str) -> UserEntry | None:
    """A user as passwd(5) has it now, outside of a run; ``None`` where there is none. Raises ``OSError``."""
    with open(f"{DIRECTORY}/passwd", "rb") as file:
        return Names(file.read(), b"").users.get(name)


def find_group(name: str) -> Group | None:
    """A group as group(5) has it now, outside of a run; ``None`` if it is missing. Raises ``OSError``."""
    with open(f"{DIRECTORY}/group", "rb") as file:
        return Names(b"", file.read()).groups.get(name)


def login_defs() -> dict[str, str]:
    """The settings of login.defs(5) for new accounts; none where there is no such file."""
    try:
        with open(f"{DIRECTORY}/login.defs", encoding="utf-8", errors="surrogateescape") as lines:
            words = [line.split(None, 1) for line in lines if not line.lstrip().startswith("#")]
    except FileNotFoundError:
        return {}
    return {pair[0]: pair[1].strip() for pair in words if len(pair) == 2}


def _lines(content: bytes) -> dict[str, list[str]]:
    """The fields of each line by the first one; lines of NIS (``+``, ``-``) and comments are nobody's."""
    found: dict[str, list[str]] = {}
    for line in content.decode("utf-8", "surrogateescape").split("\n"):
        fields = line.split(":")
        if len(fields) > 1 and fields[0] and fields[0][0] not in "+-#":
            found.setdefault(fields[0], fields)
    return found


def _users(content: bytes) -> Iterator[UserEntry]:
    for fields in _lines(content).values():
        if len(fields) == 7 and _is_id(fields[2]) and _is_id(fields[3]):
            name, password, uid, gid, comment, home, shell = fields
            home = home and (home.rstrip("/") or "/")  # one directory, however somebody wrote it
            yield UserEntry(name, Secret(password), int(uid), int(gid), comment, home, shell)


def _groups(content: bytes) -> Iterator[Group]:
    for fields in _lines(content).values():
        if len(fields) == 4 and _is_id(fields[2]):
            # One user, however often they are listed.
            members = tuple(dict.fromkeys(filter(None, fields[3].split(","))))
            yield Group(fields[0], int(fields[2]), members)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10


def _days(field: str) -> int:
    return int(field) if _is_id(field) else -1
