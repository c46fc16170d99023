"""The ``user`` resource: a local user, with groups, home, password, ageing and keys (``docs/resources/user.md``).

* The databases are read once for all, and written by ``useradd``, ``usermod``, ``userdel``, ``chpasswd`` and ``chage``
  only; the hash of a password goes through standard input and is shown nowhere.
* What a tool would fail at, or do to somebody else's files, is refused before the first one is started.
* A user whom a directory service knows and passwd(5) does not is refused.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from foundation.differences import Difference
from puller.resources.accounts import busy
from puller.resources.accounts.agreement import agree_on_user
from puller.resources.accounts.databases import (
    Databases,
    Known,
    User,
    database_paths,
    find_user,
    login_defs,
)
from puller.resources.accounts.keys import claim_of_keys
from puller.resources.accounts.order import before_user
from puller.resources.accounts.passwords import hash_of, is_locked
from puller.resources.accounts.user_change import UserChange
from puller.resources.accounts.user_properties import DAYS, UserProperties, check_user, day_of
from puller.resources.accounts.user_refusals import refuse
from puller.resources.accounts.user_state import (
    UserState,
    default_home,
    differences_of,
    home_of,
    is_missing_home,
    look_at,
    manages_home,
)
from puller.resources.base import Declared, PropertyError, Resource
from puller.resources.claims import Claim, Use
from puller.system.protocol import UNKNOWN_ID
from puller.values.reference import Reference

_SKELETON = "/etc/skel"
_WORDS = {"password": "changed the password", "locked": "locked the user", "home": "made the home"}


class Account(Resource[UserProperties, UserState]):
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
        """Make it so, by the system's own tools (``puller.resources.accounts.user_change``)."""
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
        if any(one.property == "home" for one in differences) and manages_home(properties):
            self._expect_home(user)
        if properties.authorized_keys and any(one.property == "authorized_keys" for one in differences):
            home = properties.home if properties.home and manages_home(properties) else user.home
            self.context.system.expect(f"{home}/.ssh", "directory")
        return f"Would have {', '.join(self._words(differences, actual))}"

    def _words(self, differences: Sequence[Difference], actual: UserState) -> Iterator[str]:
        values = [one for one in differences if one.property not in _WORDS or one.property == "home"]
        values = [one for one in values if one.property != "authorized_keys" and not is_missing_home(one)]
        if values:
            yield "changed " + ", ".join(
                f"{one.property} from {one.current or 'empty'} to {one.desired or 'empty'}" for one in values
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
        """The databases are everybody's: what was in them before a trial says nothing of this user alone."""
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
        """What a change leaves to be known."""
        properties, user, notes = self.properties, actual.found, []
        if user is None:
            return
        if any(difference.property == "uid" for difference in differences):
            notes.append(f"files of the user outside of the home keep the number {user.uid}")
        has_home = self.context.system.lstat(user.home) is not None
        if properties.ensure == "absent" and has_home and not properties.remove_home:
            notes.append(f"the home {user.home} stays")
        self._notes = tuple(notes)

    # What a dry run knows of it later

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
            system.expect(home, "directory")
            if properties.authorized_keys:
                system.expect(f"{home}/.ssh", "directory")

    def _expect_skeleton(self, home: str) -> None:
        """Expect the files that useradd copies into a new home."""
        for directory, _, names in os.walk(_SKELETON):
            for name in names:
                relative = os.path.relpath(os.path.join(directory, name), _SKELETON)
                self.context.system.expect(os.path.join(home, relative), "file")

    def _expect_home(self, user: User) -> None:
        home, system = self.properties.home or user.home, self.context.system
        system.expect(home, "directory")
        if home != user.home:
            system.expect(user.home, "absent")

    def _expect_gone(self, user: User) -> None:
        """userdel takes away the group of the same name, too, when it is nobody else's."""
        system, known = self.context.system, Known(self.context)
        group = known.names.groups.get(user.name)
        system.expect_account("user", user.name, None)
        if self.properties.remove_home:
            system.expect(user.home, "absent")
        is_own = group is not None and group.gid == user.gid and not {*group.members} - {user.name}
        if is_own and not [*known.users_of(user.gid)] and login_defs().get("USERGROUPS_ENAB") == "yes":
            system.expect_account("group", user.name, None)

    # At load

    @classmethod
    def is_in_use(cls, properties: UserProperties) -> bool:
        user = find_user(properties.name)
        return user is not None and busy.find_process(user.uid) is not None

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
        """The databases of users and groups, the home directory, and the file of authorized keys."""
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
        # The user's own files, which no manifest declares.
        return () if properties.ensure == "absent" else (properties.home or home_of(properties.name),)

    @classmethod
    def is_whole(cls, properties: UserProperties) -> bool:
        del properties
        return False  # others may have keys in the file

    @classmethod
    def follows(cls, properties: UserProperties, declared: Declared) -> Iterable[Reference]:
        return before_user(properties, declared("group"))
