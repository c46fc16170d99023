"""The change of a user in steps of one tool each. The next run resumes after an interrupted step."""

from collections.abc import Iterator, Sequence
from itertools import chain

from foundation.differences import Difference
from puller.resources.accounts import homes, tools
from puller.resources.accounts.account_properties import DAYS, NEVER, UserProperties, field_of
from puller.resources.accounts.authorized_keys import write
from puller.resources.accounts.databases import Known
from puller.resources.accounts.user_state import (
    UserState,
    default_home,
    differences_of,
    is_missing_home,
    look_at,
    manages_home,
    wanted_keys,
)
from puller.resources.base import Context
from puller.system.identity import Identity

_OPTIONS = {"uid": "-u", "group": "-g", "shell": "-s", "comment": "-c"}
_DAY_OPTIONS = {"password_min_days": "-m", "password_max_days": "-M", "password_warn_days": "-W"}


class UserChange:
    """The change of one user. Methods raise ``ResourceError`` and ``OSError``."""

    def __init__(self, properties: UserProperties, actual: UserState, context: Context) -> None:
        self._properties, self._actual, self._context = properties, actual, context

    def remove(self) -> None:
        """Remove the user, and the home if requested and present."""
        properties, user = self._properties, self._actual.found
        has_home = user is not None and homes.find_home(user.home, self._context) is not None
        recursive = ["-r"] if properties.remove_home and has_home else []
        tools.run(self._context, "userdel", *recursive, "--", properties.name)

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
        if arguments := [*self._modifications()]:
            self._run("usermod", *arguments)
        # 3. Hash
        if self._differs("password"):
            self._set_password()
        # 4. Days
        if days := [one for one in self._differences if one.property in DAYS]:
            options = ((_DAY_OPTIONS[one.property], self._days(one.property)) for one in days)
            self._run("chage", *chain.from_iterable(options))
        # 5. Home
        user = self._actual.found
        if not self._actual.has_home and user is not None:
            homes.make(user, self._context)
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
        tools.run(self._context, tool, *arguments, *last, secret=secret)
        self._actual = look_at(self._properties, self._context)

    # New users

    def _add(self) -> None:
        properties = self._properties
        home = properties.home or default_home(properties.name)
        if manages_home(properties):
            homes.clear_for_new(home, properties.uid, self._context)
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
            name, wanted = difference.property, getattr(self._properties, difference.property, None)
            if name in _OPTIONS:
                yield from (_OPTIONS[name], str(wanted))
            elif name == "groups":
                yield from self._group_options()
            elif name == "home" and not is_missing_home(difference):
                yield from ("-d", str(wanted), *(["-m"] if self._moves_home_to(str(wanted)) else []))
            elif name == "expires":
                yield from ("-e", _day(str(wanted)))
            elif name == "locked" and not has_password:
                yield "-L" if wanted else "-U"

    def _moves_home_to(self, home: str) -> bool:
        user = self._actual.found
        if user is None or not manages_home(self._properties):
            return False
        return not homes.is_own_already(user, home, Known(self._context), self._context)

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
        wanted = None if user is None else wanted_keys(user, self._properties)
        if user is None or wanted is None or keys is None or keys.is_right:
            return

        identity = Identity(user.name, user.uid, user.gid, (user.gid,), user.home, user.shell)
        write(wanted, lambda act: self._context.system.act_as(identity, act))


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
