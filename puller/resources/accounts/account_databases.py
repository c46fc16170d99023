"""The local account databases: read once for all users and groups, and changed by the system's own tools.

* Only local files are read. ``System.user_id`` also queries directory services.
* Invalid lines are skipped, so that a damaged line does not block all other accounts.
* Only the tools write the databases. They take a lock and keep several databases in step.
* The lock of another process is awaited first. If the wait fails, the error names the process.
* Secrets are passed on standard input, because every user can read the command line of a process.
* Exit code 0 does not prove a change (``usermod -U`` ends with 0 even if it refuses), so the resource reads the state
  again.
"""

import os
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Self

import msgspec

from hiera.values import Secret
from puller.errors import ResourceError, reason
from puller.resources.base import Context
from puller.resources.read_once import ReadOnce
from puller.system import processes
from puller.system.commands import Command
from puller.system.processes import find_holder
from puller.system.protocol import AccountKind

DIRECTORY = "/etc"
"""The directory of the databases, their lock and ``login.defs``."""


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
    """A line of shadow(5). Days are numbers, and -1 stands for an empty field."""

    password: Secret
    min_days: int = -1
    max_days: int = -1
    warn_days: int = -1
    expires: int = -1
    """Days since 1970-01-01."""


class Names:
    """All users and groups. If lines share a name or an id, the first counts, as it does for the system."""

    def __init__(self, passwd: bytes, group: bytes) -> None:
        self.users = {user.name: user for user in reversed([*_users(passwd)])}
        self.groups = {group.name: group for group in reversed([*_groups(group)])}

    @cached_property
    def users_by_id(self) -> dict[int, UserEntry]:
        """Users by uid."""
        return {user.uid: user for user in self.users.values()}

    @cached_property
    def groups_by_id(self) -> dict[int, Group]:
        """Groups by gid."""
        return {group.gid: group for group in self.groups.values()}

    @cached_property
    def memberships(self) -> dict[str, set[str]]:
        """The groups that list each user as a member."""
        result: dict[str, set[str]] = {}
        for group in self.groups.values():
            for member in group.members:
                result.setdefault(member, set()).add(group.name)
        return result


class Databases:
    """The databases for all resources of a run, stored in ``Context.shared``. Methods raise ``OSError``."""

    def __init__(self) -> None:
        passwd, group, shadow = (f"{DIRECTORY}/{name}" for name in ("passwd", "group", "shadow"))
        self._names = ReadOnce(
            [passwd, group], lambda result: Names(result.get(passwd, b""), result.get(group, b""))
        )
        # Separate, because only root can read it, and groups do not need it.
        self._shadow = ReadOnce([shadow], lambda result: _lines(result.get(shadow, b"")))

    @classmethod
    def of(cls, context: Context) -> Self:
        """Return the instance of this run."""
        if cls not in context.shared:
            context.shared[cls] = cls()
        result: Self = context.shared[cls]
        return result

    @classmethod
    def forget(cls, context: Context) -> None:
        """Discard the cached databases after a tool has changed them."""
        context.shared.pop(cls, None)

    def names(self, context: Context) -> Names:
        """Return the users and groups."""
        return self._names.current(context)

    def ageing(self, user: UserEntry, context: Context) -> Ageing:
        """Return the hash and the days of a user. If the user is only in passwd, return the hash from there."""
        fields = self._shadow.current(context).get(user.name)
        if fields is None:
            return Ageing(Secret("") if user.password.reveal() == "x" else user.password)
        fields = [*fields, *[""] * 9]
        return Ageing(
            Secret(fields[1]), _days(fields[3]), _days(fields[4]), _days(fields[5]), _days(fields[7])
        )


class Known:
    """The accounts that exist for a resource: the local databases, and in noop the expected changes of this run."""

    def __init__(self, context: Context) -> None:
        self.names = Databases.of(context).names(context)
        self._expected = context.system.expected_accounts

    def is_gone(self, kind: AccountKind, name: str) -> bool:
        """Return whether this run would have removed the account."""
        expected = self._expected(kind)
        return name in expected and expected[name] is None

    def is_new(self, kind: AccountKind, name: str) -> bool:
        """Return whether this run would have created the account, or given it another id."""
        return self._expected(kind).get(name) is not None

    def user_with(self, uid: int) -> str:
        """Return the name of the user with an id. Empty if the id is free."""
        user = self.names.users_by_id.get(uid)
        return self._holder("user", uid, user.name if user else "")

    def group_with(self, gid: int) -> str:
        """Return the name of the group with an id. Empty if the id is free."""
        group = self.names.groups_by_id.get(gid)
        return self._holder("group", gid, group.name if group else "")

    def _holder(self, kind: AccountKind, number: int, found: str) -> str:
        expected = self._expected(kind)
        new = next((name for name, expected_id in expected.items() if expected_id == number), "")
        return new or ("" if found in expected else found)

    def users_of(self, gid: int) -> Iterator[str]:
        """Yield all users whose primary group has this id."""
        for user in self.names.users.values():
            if user.gid == gid and not self.is_gone("user", user.name):
                yield user.name

    def groups_of(self, user: str) -> set[str]:
        """Return the groups that list a user as a member."""
        return self.names.memberships.get(user, set())


def find_user(name: str) -> UserEntry | None:
    """Return a user from the current passwd(5), outside of a run. ``None`` if it is missing. Raises ``OSError``."""
    with open(f"{DIRECTORY}/passwd", "rb") as file:
        return Names(file.read(), b"").users.get(name)


def find_group(name: str) -> Group | None:
    """Return a group from the current group(5), outside of a run. ``None`` if it is missing. Raises ``OSError``."""
    with open(f"{DIRECTORY}/group", "rb") as file:
        return Names(b"", file.read()).groups.get(name)


def login_defs() -> dict[str, str]:
    """Return the settings of login.defs(5) for new accounts. Empty if the file is missing."""
    try:
        with open(f"{DIRECTORY}/login.defs", encoding="utf-8", errors="surrogateescape") as lines:
            words = [line.split(None, 1) for line in lines if not line.lstrip().startswith("#")]
    except FileNotFoundError:
        return {}
    return {pair[0]: pair[1].strip() for pair in words if len(pair) == 2}


def _lines(content: bytes) -> dict[str, list[str]]:
    """Return the fields of each line by the first field. Skips comments and lines of NIS (``+``, ``-``)."""
    result: dict[str, list[str]] = {}
    for line in content.decode("utf-8", "surrogateescape").split("\n"):
        fields = line.split(":")
        if len(fields) > 1 and fields[0] and fields[0][0] not in "+-#":
            result.setdefault(fields[0], fields)
    return result


def _users(content: bytes) -> Iterator[UserEntry]:
    for fields in _lines(content).values():
        if len(fields) == 7 and _is_id(fields[2]) and _is_id(fields[3]):
            name, password, uid, gid, comment, home, shell = fields
            home = home and (home.rstrip("/") or "/")  # one spelling for each directory
            yield UserEntry(name, Secret(password), int(uid), int(gid), comment, home, shell)


def _groups(content: bytes) -> Iterator[Group]:
    for fields in _lines(content).values():
        if len(fields) == 4 and _is_id(fields[2]):
            # A user may be listed several times.
            members = tuple(dict.fromkeys(filter(None, fields[3].split(","))))
            yield Group(fields[0], int(fields[2]), members)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10


def _days(field: str) -> int:
    return int(field) if _is_id(field) else -1


WAIT = 15.0
"""Seconds to wait for the lock of the databases, the same as ``lckpwdf``."""
_TIMEOUT = 3600.0  # seconds; userdel removes a whole home, usermod moves it or changes its uid
_PAUSE = 0.1
_TAIL = 5  # lines of a failed tool's output
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}  # a date is midnight UTC in every time zone


def run_tool(context: Context, *arguments: str, secret: str = "") -> None:
    """Run a tool with ``secret`` on its standard input. Raises ``ResourceError`` with the end of its output.

    1. Wait for the lock.
    2. Run the tool.
    3. Discard cached databases, even after a failure.
    """
    # 1. Lock
    wait_for_lock()
    # 2. Run
    tool = arguments[0]
    command = Command(arguments, _ENVIRONMENT, timeout=_TIMEOUT, input=secret.encode("ascii"))
    try:
        completed = context.system.execute(command)
    except FileNotFoundError as error:
        package = "gpasswd, useradd and the like are in the package passwd (Debian) or shadow-utils"
        raise ResourceError(f"{tool} cannot be started: {reason(error)}", hint=package) from error
    except OSError as error:
        raise ResourceError(f"{tool} cannot be started: {reason(error)}") from error
    # 3. Discard, even after a failure
    finally:
        Databases.forget(context)
    if completed.exit_code != 0:
        printed = "\n".join((completed.stderr.strip() or completed.stdout.strip()).splitlines()[-_TAIL:])
        raise ResourceError(f"{tool}: {completed.outcome}" + (f"; it printed:\n{printed}" if printed else ""))


def wait_for_lock() -> None:
    """Wait until the lock of lckpwdf(3) is free. Raises ``ResourceError`` after ``WAIT`` seconds.

    Does not keep the lock, because the tool takes it itself.
    """
    path, deadline = f"{DIRECTORY}/.pwd.lock", time.monotonic() + WAIT
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as lock:
        while (holder := find_holder(lock.fileno())) is not None:
            processes.check_command()
            if time.monotonic() > deadline:
                raise ResourceError(
                    f"{path} is locked by {holder}, also after {WAIT:.0f} s", hint="try again later"
                )
            time.sleep(_PAUSE)


# Processes of a user. While one runs, ``userdel`` rejects the user, and ``usermod`` rejects a new uid or home. Like the
# tools, this code compares the ids of each process, and skips processes with another root directory (containers).

PROC = "/proc"


def require_idle(name: str, uid: int) -> None:
    """Raise ``ResourceError`` if the user has a process. Kills nothing."""
    process = find_process(uid)
    if process is not None:
        pid, command = process
        raise ResourceError(f"user {name} is used by process {pid} ({command})", hint="end it first")


def find_process(uid: int) -> tuple[int, str] | None:
    """Return the id and the name of a process of a user. ``None`` if none exists, or without /proc."""
    try:
        ours = _root("self")
    except FileNotFoundError:
        return None
    for pid in filter(str.isdecimal, os.listdir(PROC)):
        try:
            with open(f"{PROC}/{pid}/status", encoding="utf-8", errors="replace") as lines:
                fields = dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)
            if str(uid) in fields["Uid"].split()[:3] and _root(pid) == ours:
                return int(pid), fields["Name"]
        except (OSError, KeyError):  # the process has ended
            continue
    return None


def _root(pid: str) -> tuple[int, int]:
    status = os.stat(f"{PROC}/{pid}/root")
    return status.st_dev, status.st_ino
