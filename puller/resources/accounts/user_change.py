"""The change of a user and its home, in steps of one tool each. The next run resumes after an interrupted step.

All requirements for a home are checked before any change, and in a dry run. ``userdel -r`` and ``usermod -m`` would
fail only after they have removed or changed the account.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from itertools import chain

from foundation.differences import Difference
from puller.errors import ResourceError
from puller.resources.accounts import account_databases
from puller.resources.accounts.account_databases import Known, UserEntry, login_defs
from puller.resources.accounts.account_properties import DAYS, NEVER, UserProperties, field_of
from puller.resources.accounts.authorized_keys import write
from puller.resources.accounts.user_state import (
    UserState,
    default_home,
    desired_keys,
    differences_of,
    is_missing_home,
    look_at,
    manages_home,
)
from puller.resources.base import Context
from puller.resources.owned_paths import refuse_owned_below
from puller.resources.paths import distrust_of_new_way, parents, require_makeable, user_name
from puller.system.identity import Identity
from puller.system.local_paths import refuse_mounted
from puller.system.protocol import Attributes
from puller.system.trusted_files import distrust_of_way


def find_home(home: str, context: Context) -> os.stat_result | None:
    """Return the ``lstat`` of a home, or ``None`` if it is missing."""
    return context.system.lstat(home)


def require_new_home(home: str, uid: int | None, context: Context) -> None:
    """Raise ``ResourceError`` if a new user cannot have a home.

    The user gets an empty directory of root. A directory that already has the uid stays unchanged.
    """
    require_makeable_parents(home, uid, context)
    status = find_home(home, context)
    if status is None or (uid is not None and stat.S_ISDIR(status.st_mode) and status.st_uid == uid):
        return
    if not stat.S_ISDIR(status.st_mode):
        detail = "a link" if stat.S_ISLNK(status.st_mode) else "not a directory"
        raise ResourceError(f"home {home} is {detail}")
    if status.st_uid != 0 or context.system.children(home):
        detail = "and is not empty" if status.st_uid == 0 else f"(uid {status.st_uid})"
        raise ResourceError(
            f"home {home} belongs to {user_name(status.st_uid)} {detail}, so Puller does not assign it to a new user."
            " Declare it as a file with the owner that it should have, and the user with manage_home: false"
        )

    refuse_mounted(home, "given to a new user")


def require_makeable_parents(home: str, uid: int | None, context: Context) -> None:
    """Raise ``ResourceError`` if the directories above a home cannot be created, or another user can redirect them."""
    parent = os.path.dirname(home)
    if not context.uncertain(parent):
        require_makeable(parent, context.system)
    _require_own_way(home, uid, context)


def missing_parents(home: str, context: Context) -> list[str]:
    """Return the missing directories above a home, the outermost first."""
    return [path for path in reversed([*parents(home)]) if not context.system.is_directory(path)]


def make_parents(home: str, context: Context) -> None:
    """Create the missing directories above a home for root, as useradd does. usermod does not."""
    for path in missing_parents(home, context):
        context.system.make_directory(path, Attributes(os.geteuid(), os.getegid(), 0o755))


def expect_parents(home: str, context: Context) -> None:
    """Expect the directories that ``make_parents`` creates, in a dry run."""
    for path in missing_parents(home, context):
        context.system.expect(path, "directory")


def clear_for_new(home: str, uid: int | None, context: Context) -> None:
    """Remove an empty directory of root at the path, so that useradd creates the home with its final attributes.

    An interrupted run then leaves a missing home, not a home that the user cannot write to.
    """
    status = find_home(home, context)
    if status is not None and status.st_uid == 0 and uid != 0:
        context.system.remove(home, status)


def is_own_already(user: UserEntry, new: str, known: Known, context: Context) -> bool:
    """Return whether another directory is the user's alone, so that it can become the home without a move.

    An example is an earlier home. The present home must be missing or empty, because two homes are not merged.
    """
    present = find_home(user.home, context)
    if present is not None and (not stat.S_ISDIR(present.st_mode) or context.system.children(user.home)):
        return False
    return find_home(new, context) is not None and not _why_not_own(user, new, known, context)


def require_movable_home(user: UserEntry, new: str, known: Known, context: Context) -> None:
    """Raise ``ResourceError`` if the home of a user cannot be moved, or is not theirs alone."""
    require_makeable_parents(new, user.uid, context)
    if is_own_already(user, new, known, context):
        return
    if context.system.exists(new):
        raise ResourceError(f"home {new} exists, so the home of {user.name} is not moved there")
    if find_home(user.home, context) is not None:
        _require_own(user, "moved", known, context)


def require_removable_home(user: UserEntry, known: Known, context: Context) -> None:
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


def _require_own(user: UserEntry, description: str, known: Known, context: Context) -> None:
    if why := _why_not_own(user, user.home, known, context):
        raise ResourceError(f"home {user.home} of {user.name} {why}, so it is not {description}")

    refuse_mounted(user.home, description)


def _why_not_own(user: UserEntry, home: str, known: Known, context: Context) -> str:
    """Return why an existing home is not the user's alone, in a directory of root; empty if it is."""
    status = find_home(home, context)
    above = context.system.lstat(os.path.dirname(home))
    if home == "/" or not os.path.isabs(home) or os.path.normpath(home) != home:
        return "is not a plain path of its own"
    if status is None or not stat.S_ISDIR(status.st_mode):
        return "is a link" if status and stat.S_ISLNK(status.st_mode) else "is not a directory"
    if status.st_uid != user.uid:
        return f"belongs to {user_name(status.st_uid)}"
    if above is None or above.st_uid != 0 or not stat.S_ISDIR(above.st_mode) or distrust_of_way(home):
        return "is not in a directory of root"
    others = (item for item in known.names.users.values() if item.name != user.name)
    # A home of another user below this one counts as well, because it would be moved or removed too.
    shared = next((item for item in others if f"{item.home}/".startswith(f"{home}/")), None)
    return f"is also the home of {shared.name}" if shared else ""


def make(user: UserEntry, context: Context) -> None:
    """Create a missing home with the mode that useradd uses."""
    make_parents(user.home, context)
    context.system.make_directory(user.home, Attributes(user.uid, user.gid, _mode()))


def _mode() -> int:
    settings = login_defs()
    try:
        if "HOME_MODE" in settings:
            return int(settings["HOME_MODE"], 8) & 0o777
        return 0o777 & ~int(settings.get("UMASK", "077"), 8)
    except ValueError:
        return 0o700


_OPTIONS = {"uid": "-u", "group": "-g", "shell": "-s", "comment": "-c"}
_DAY_OPTIONS = {"password_min_days": "-m", "password_max_days": "-M", "password_warn_days": "-W"}


class UserChange:
    """The change of one user. Methods raise ``ResourceError`` and ``OSError``."""

    def __init__(self, properties: UserProperties, actual: UserState, context: Context) -> None:
        self._properties, self._actual, self._context = properties, actual, context

    def remove(self) -> None:
        """Remove the user, and the home if requested and present."""
        properties, user = self._properties, self._actual.found
        has_home = user is not None and find_home(user.home, self._context) is not None
        recursive = ["-r"] if properties.remove_home and has_home else []
        account_databases.run_tool(self._context, "userdel", *recursive, "--", properties.name)

    def apply(self) -> None:
        """Create or change the user.

        1. Create it, with everything but the password.
        2. Change the fields of usermod in one call, including the lock.
        3. Set the hash on standard input, together with the lock if both change.
        4. Set the days.
        5. Create a missing home.
        6. Write the keys as the user, after its ids and home are final.
        """
        # 1. Create
        if self._actual.found is None:
            self._add()
        # 2. Fields
        if self._differs("home") and (moved := self._properties.home) and manages_home(self._properties):
            make_parents(moved, self._context)
        if arguments := [*self._modifications()]:
            self._run("usermod", *arguments)
        # 3. Hash
        if self._differs("password"):
            self._set_password()
        # 4. Days
        if days := [item for item in self._differences if item.property in DAYS]:
            options = ((_DAY_OPTIONS[item.property], self._days(item.property)) for item in days)
            self._run("chage", *chain.from_iterable(options))
        # 5. Home
        user = self._actual.found
        if not self._actual.has_home and user is not None:
            make(user, self._context)
        # 6. Keys
        self._write_keys()

    @property
    def _differences(self) -> Sequence[Difference]:
        return [*differences_of(self._properties, self._actual, self._context)]

    def _differs(self, name: str) -> bool:
        return any(difference.property == name for difference in self._differences)

    def _days(self, name: str) -> str:
        return str(getattr(self._properties, name))

    def _run(self, tool: str, *arguments: str, secret: str = "") -> None:
        """Run a tool on the user, and read the state again."""
        last = () if secret else ("--", self._properties.name)
        account_databases.run_tool(self._context, tool, *arguments, *last, secret=secret)
        self._actual = look_at(self._properties, self._context)

    # New users

    def _add(self) -> None:
        properties = self._properties
        home = properties.home or default_home(properties.name)
        if manages_home(properties):
            make_parents(home, self._context)
            clear_for_new(home, properties.uid, self._context)
        self._run("useradd", *self._additions(home))

    def _additions(self, home: str) -> Iterator[str]:
        properties = self._properties
        yield from ("-d", home, "-m" if manages_home(properties) else "-M")
        if properties.system:
            yield "-r"
        group = own_group(properties, self._context) if properties.group is None else properties.group
        values = {"-u": properties.uid, "-g": group, "-s": properties.shell, "-c": properties.comment}
        for option, value in values.items():
            if value is not None:
                yield from (option, str(value))
        if properties.groups:
            yield from ("-G", ",".join(dict.fromkeys(properties.groups)))
        if properties.expires is not None:
            yield from ("-e", _day(properties.expires))

    # Existing users

    def _modifications(self) -> Iterator[str]:
        has_password = self._differs("password")
        for difference in self._differences:
            name, desired = difference.property, getattr(self._properties, difference.property, None)
            if name in _OPTIONS:
                yield from (_OPTIONS[name], str(desired))
            elif name == "groups":
                yield from self._group_options()
            elif name == "home" and not is_missing_home(difference):
                yield from ("-d", str(desired), *(["-m"] if self._moves_home_to(str(desired)) else []))
            elif name == "expires":
                yield from ("-e", _day(str(desired)))
            elif name == "locked" and not has_password:
                yield "-L" if desired else "-U"

    def _moves_home_to(self, home: str) -> bool:
        user = self._actual.found
        if user is None or not manages_home(self._properties):
            return False
        return not is_own_already(user, home, Known(self._context), self._context)

    def _group_options(self) -> Iterator[str]:
        groups = dict.fromkeys(self._properties.groups or ())
        if self._properties.membership == "minimum":
            # Not the complete list, to keep concurrent additions.
            groups = dict.fromkeys(name for name in groups if name not in self._actual.groups)
            yield "-a"
        yield from ("-G", ",".join(groups))

    def _set_password(self) -> None:
        properties, ageing = self._properties, self._actual.ageing
        if properties.password is None or ageing is None:
            return
        field = field_of(properties.password.reveal(), ageing.password.reveal(), locked=properties.locked)
        self._run("chpasswd", "-e", secret=f"{properties.name}:{field}\n")

    def _write_keys(self) -> None:
        user, keys = self._actual.found, self._actual.keys
        expected = None if user is None else desired_keys(user, self._properties)
        if user is None or expected is None or keys is None or keys.is_right:
            return

        identity = Identity(user.name, user.uid, user.gid, (user.gid,), user.home, user.shell)
        write(expected, lambda act: self._context.system.act_as(identity, act))


def own_group(properties: UserProperties, context: Context) -> str | None:
    """Return the existing group of the user's name, because useradd would fail to create it.

    ``None`` if it is missing.
    """
    known, name = Known(context), properties.name
    is_there = name in known.names.groups and not known.is_gone("group", name)
    return name if is_there or known.is_new("group", name) else None


def _day(expires: str) -> str:
    """Return the date as an argument of usermod, which reads an empty text as never."""
    return "" if expires == NEVER else expires
