"""The ``user`` resource: a local user with groups, home, password, ageing and keys (``docs/resources/user.md``).

* The account databases are read once for all users. Only ``useradd``, ``usermod``, ``userdel``, ``chpasswd`` and
  ``chage`` write them.
* Password hashes are passed on standard input and never printed.
* Changes that a tool would reject, or that would affect files of other users, are refused before the first command. A
  dry run reports the same refusals. Some tools fail halfway, and some do not report the problem.
* A user of a directory service (missing in passwd(5)) is refused.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from foundation.differences import Difference, DifferenceKind
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.accounts import account_databases, user_change
from puller.resources.accounts.account_databases import (
    Databases,
    Known,
    UserEntry,
    database_paths,
    find_user,
    login_defs,
    require_idle,
)
from puller.resources.accounts.account_properties import (
    DAYS,
    UserProperties,
    agree_on_user,
    before_user,
    check_user,
    day_of,
    hash_of,
    is_id,
    is_locked,
    require_new_name,
)
from puller.resources.accounts.authorized_keys import claim_of_keys
from puller.resources.accounts.user_change import UserChange
from puller.resources.accounts.user_state import (
    UserState,
    default_home,
    differences_of,
    gid_of,
    home_of,
    is_missing_home,
    look_at,
    manages_home,
)
from puller.resources.base import Context, Declared, PropertyError, Resource
from puller.resources.claims import Claim, Use
from puller.resources.paths import group_name
from puller.system.protocol import UNKNOWN_ID
from puller.values.common_properties import Reference


def refuse(
    properties: UserProperties, actual: UserState, differences: Sequence[Difference], context: Context
) -> None:
    """Raise ``ResourceError`` for the first change that is impossible or unsafe."""
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


def _refuse_removal(user: UserEntry, properties: UserProperties, known: Known, context: Context) -> None:
    if user.uid == 0:
        raise ResourceError(
            f"user {user.name} has uid 0, so it is not removed", code=ProblemCode.CHANGE_REFUSED
        )
    if properties.remove_home:
        user_change.require_removable_home(user, known, context)
    _require_idle(user)


def _refuse_values(
    properties: UserProperties, changed: Collection[str], known: Known, context: Context
) -> None:
    uid = properties.uid
    if uid is not None and "uid" in changed and (other := known.user_with(uid)):
        raise ResourceError(f"uid {uid} belongs to user {other}", code=ProblemCode.CHANGE_REFUSED)
    if properties.group is not None and "group" in changed:
        _require_group(properties.group, known, context)
    if "groups" in changed:
        for name in properties.groups or ():
            _require_local_group(name, known, context)
    if properties.shell is not None and "shell" in changed:
        _require_shell(properties.shell, context)


def _refuse_new(properties: UserProperties, context: Context) -> None:
    require_new_name(properties.name, context)
    if manages_home(properties):
        user_change.require_new_home(
            properties.home or default_home(properties.name), properties.uid, context
        )
    if properties.locked is False and properties.password is None:
        raise ResourceError(
            "locked is false, but a new user has no password to unlock",
            code=ProblemCode.CHANGE_REFUSED,
            hint="give one",
        )


def _refuse_change(
    user: UserEntry,
    properties: UserProperties,
    differences: Sequence[Difference],
    known: Known,
    context: Context,
) -> None:
    missing = {difference.property for difference in differences if difference.kind is DifferenceKind.ADDED}
    changed = {
        difference.property for difference in differences if difference.kind is not DifferenceKind.ADDED
    }
    if "home" in changed and properties.home is not None and manages_home(properties):
        user_change.require_movable_home(user, properties.home, known, context)
    if changed & {"uid", "home"}:
        _require_idle(user)
    if "home" in missing:
        user_change.require_makeable_parents(user.home, user.uid, context)
    elif "authorized_keys" in changed and not context.system.is_directory(user.home):
        raise ResourceError(
            f"home {user.home} is not there, so no keys can be put into it", code=ProblemCode.CHANGE_REFUSED
        )


def _refuse_unlocking(properties: UserProperties, actual: UserState, changed: Collection[str]) -> None:
    """Raise if no password exists: ``usermod -U`` then changes nothing, but ends with 0."""
    if "locked" not in changed or properties.locked is not False or properties.password is not None:
        return
    if actual.ageing is not None and not hash_of(actual.ageing.password.reveal()):
        raise ResourceError(
            "locked is false, but unlocking requires a password",
            code=ProblemCode.CHANGE_REFUSED,
            hint="give one",
        )


def _require_group(group: str | int, known: Known, context: Context) -> None:
    gid = gid_of(group, known, context)  # raises for an unknown name
    is_there = known.group_with(gid) or group_name(gid) != str(gid)
    if is_id(group) and not is_there and not context.uncertain("/etc/group"):
        raise ResourceError(f"group is {group}, but no group has this id", code=ProblemCode.CHANGE_REFUSED)


def _require_local_group(name: str, known: Known, context: Context) -> None:
    if known.is_new("group", name) or context.uncertain("/etc/group"):
        return
    if name not in known.names.groups or known.is_gone("group", name):
        if context.system.group_id(name) is not None:
            raise ResourceError(
                f"groups has {name!r}, which is not local, so Puller cannot change its members",
                code=ProblemCode.CHANGE_REFUSED,
            )
        raise ResourceError(f"groups has the unknown group {name!r}", code=ProblemCode.CHANGE_REFUSED)


def _require_shell(shell: str, context: Context) -> None:
    """Raise for an unusable shell: usermod only warns, and the user could not log in."""
    if os.path.isfile(shell) and os.access(shell, os.X_OK):
        return
    if not context.uncertain(shell) and not context.system.will_be_written(shell):
        raise ResourceError(f"shell {shell} is not an executable file", code=ProblemCode.CHANGE_REFUSED)


def _require_idle(user: UserEntry) -> None:
    require_idle(user.name, user.uid)


_SKELETON = "/etc/skel"
_WORDS = {"password": "changed the password", "locked": "locked the user", "home": "made the home"}


class User(Resource[UserProperties, UserState]):
    """A user of this machine."""

    type_name = "user"
    properties_type = UserProperties
    unused = {  # noqa: RUF012  ClassVar in the base class
        "absent": frozenset({"password", "comment", "shell", "groups", "authorized_keys", "exclusive_keys"})
    }
    providers = ("shadow",)
    secret_properties = frozenset({"password"})
    removable = True

    _notes: tuple[str, ...] = ()

    def look(self) -> UserState:
        return look_at(self.properties, self.context)

    def differences(self, actual: UserState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        return [*differences_of(self.properties, actual, self.context)]

    def change(self, differences: Sequence[Difference], actual: UserState) -> None:
        """Apply the properties with the system's own tools (``puller.resources.accounts.user_change``)."""
        self._refuse(differences, actual)
        self._note(differences, actual)
        work = UserChange(self.properties, actual, self.context)
        if self.properties.ensure == "absent":
            work.remove()
        else:
            work.apply()

    def noop_message(self, differences: Sequence[Difference], actual: UserState) -> str:
        self._refuse(differences, actual)
        self._note(differences, actual)
        properties, user = self.properties, actual.found
        if user is None:
            self._expect_new()
            return "Would have created the user"
        if properties.ensure == "absent":
            self._expect_gone(user)
            return "Would have removed the user" + (" and its home" if properties.remove_home else "")
        if properties.uid is not None:
            self.context.system.expect_account("user", user.name, properties.uid)
        if any(difference.property == "home" for difference in differences) and manages_home(properties):
            self._expect_home(user)
        if properties.authorized_keys and any(
            difference.property == "authorized_keys" for difference in differences
        ):
            home = properties.home if properties.home and manages_home(properties) else user.home
            self.context.system.expect(f"{home}/.ssh", "directory")
        return f"Would have {', '.join(self._words(differences, actual))}"

    def _words(self, differences: Sequence[Difference], actual: UserState) -> Iterator[str]:
        values = [item for item in differences if item.property not in _WORDS or item.property == "home"]
        values = [item for item in values if item.property != "authorized_keys" and not is_missing_home(item)]
        if values:
            yield "changed " + ", ".join(
                f"{item.property} from {item.current or 'empty'} to {item.desired or 'empty'}"
                for item in values
            )
        for difference in differences:
            if difference.property == "locked" and self.properties.locked is False:
                yield "unlocked the user"
            elif difference.property == "authorized_keys" and actual.keys is not None:
                yield actual.keys.done()
            elif difference not in values:
                yield _WORDS[difference.property]

    def final_ensure(self, actual: UserState) -> str:
        return "absent" if actual.found is None else "present"

    def changed_paths(self, actual: UserState) -> None:
        """Return ``None``: the databases are shared, so their previous content does not restore this user alone."""
        del actual

    @property
    def notes(self) -> Sequence[str]:
        return self._notes

    def describe(self, actual: UserState) -> dict[str, Any]:
        user = actual.found
        if user is None:
            return {"ensure": "absent"}
        known = Known(self.context)
        primary = known.group_with(user.gid) or user.gid
        ageing = Databases.of(self.context).ageing(user, self.context)
        field = ageing.password.reveal()
        return {
            "ensure": "present",
            "uid": user.uid,
            "group": primary,
            "groups": sorted(known.groups_of(user.name) - {primary}),
            "home": user.home,
            "shell": user.shell,
            "comment": user.comment,
            "has_password": hash_of(field) not in ("", "*"),
            "locked": is_locked(field),
            "expires": day_of(ageing.expires),
            **{name: getattr(ageing, name.removeprefix("password_")) for name in DAYS},
        }

    def _refuse(self, differences: Sequence[Difference], actual: UserState) -> None:
        refuse(self.properties, actual, differences, self.context)

    def _note(self, differences: Sequence[Difference], actual: UserState) -> None:
        """Record notes about effects of the change that remain on the machine."""
        properties, user, notes = self.properties, actual.found, []
        if user is None:
            return
        if any(difference.property == "uid" for difference in differences):
            notes.append(f"files of the user outside of the home keep the number {user.uid}")
        has_home = self.context.system.lstat(user.home) is not None
        if properties.ensure == "absent" and has_home and not properties.remove_home:
            notes.append(f"the home {user.home} stays")
        self._notes = tuple(notes)

    # Expected state for later resources of a dry run

    def _expect_new(self) -> None:
        properties, system = self.properties, self.context.system
        name, uid = properties.name, properties.uid
        system.expect_account("user", name, UNKNOWN_ID if uid is None else uid)
        has_own_group = login_defs().get("USERGROUPS_ENAB", "no") == "yes"
        if properties.group is None and has_own_group and system.group_id(name) is None:
            system.expect_account("group", name, UNKNOWN_ID)
        if manages_home(properties):
            home = properties.home or default_home(name)
            if system.lstat(home) is None:
                self._expect_skeleton(home)
            user_change.expect_parents(home, self.context)
            system.expect(home, "directory")
            if properties.authorized_keys:
                system.expect(f"{home}/.ssh", "directory")

    def _expect_skeleton(self, home: str) -> None:
        """Expect the files that useradd copies into a new home."""
        for directory, _, names in os.walk(_SKELETON):
            for name in names:
                relative = os.path.relpath(os.path.join(directory, name), _SKELETON)
                self.context.system.expect(os.path.join(home, relative), "file")

    def _expect_home(self, user: UserEntry) -> None:
        home, system = self.properties.home or user.home, self.context.system
        user_change.expect_parents(home, self.context)
        system.expect(home, "directory")
        if home != user.home:
            system.expect(user.home, "absent")

    def _expect_gone(self, user: UserEntry) -> None:
        """Expect the removal of the user. userdel also removes the group of the same name if no other user has it."""
        system, known = self.context.system, Known(self.context)
        group = known.names.groups.get(user.name)
        system.expect_account("user", user.name, None)
        if self.properties.remove_home:
            system.expect(user.home, "absent")
        is_own = group is not None and group.gid == user.gid and not {*group.members} - {user.name}
        if is_own and not [*known.users_of(user.gid)] and login_defs().get("USERGROUPS_ENAB") == "yes":
            system.expect_account("group", user.name, None)

    # Loading of the manifest

    @classmethod
    def is_in_use(cls, properties: UserProperties) -> bool:
        user = find_user(properties.name)
        return user is not None and account_databases.find_process(user.uid) is not None

    @classmethod
    def hinders(cls, properties: UserProperties, declared: Sequence[UserProperties]) -> bool:
        user = find_user(properties.name)
        return user is not None and any(
            other.ensure != "absent" and other.uid == user.uid for other in declared
        )

    @classmethod
    def check(cls, properties: UserProperties) -> Iterator[PropertyError]:
        return check_user(properties)

    @classmethod
    def agree(cls, first: UserProperties, second: UserProperties) -> UserProperties:
        return agree_on_user(first, second)

    @classmethod
    def subjects(cls, properties: UserProperties) -> Iterable[str]:
        """Return the databases of users and groups, the home directory, and the file of authorized keys."""
        homes = [] if properties.manage_home is False else [properties.home or home_of(properties.name)]
        return (*database_paths(), *homes, *cls.places(properties))

    @classmethod
    def places(cls, properties: UserProperties) -> Iterable[str]:
        if properties.ensure == "absent" or not properties.authorized_keys:
            return ()
        return (f"{properties.home or home_of(properties.name)}/.ssh/authorized_keys",)

    @classmethod
    def claims(cls, properties: UserProperties) -> Iterator[Claim]:
        home = properties.home or home_of(properties.name)
        if properties.ensure == "absent":
            if properties.remove_home:
                yield Claim(home, Use.ABSENT)
            return
        if properties.manage_home or (properties.manage_home is None and not properties.system):
            yield Claim(home, Use.CONTENTS)
        if properties.authorized_keys:
            yield claim_of_keys(
                f"{home}/.ssh/authorized_keys",
                properties.name,
                properties.authorized_keys,
                exclusive=properties.exclusive_keys,
            )

    @classmethod
    def tool_paths(cls, properties: UserProperties) -> Iterable[str]:
        # The user's own files, which are undeclared.
        return () if properties.ensure == "absent" else (properties.home or home_of(properties.name),)

    @classmethod
    def is_whole(cls, properties: UserProperties) -> bool:
        del properties
        return False  # the file may have keys of other resources

    @classmethod
    def follows(cls, properties: UserProperties, declared: Declared) -> Iterable[Reference]:
        return before_user(properties, declared("group"))
