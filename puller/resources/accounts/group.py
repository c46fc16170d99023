"""The ``group`` resource: a local group, its id and its listed members (``docs/resources/group.md``).

* The databases are read once for all groups, and only ``groupadd``, ``groupmod``, ``gpasswd`` and ``groupdel`` write
  them.
* A user with this primary group is not a listed member, and is neither counted nor removed.
* Rejects an id of another group, and the removal of a primary group, before a tool fails.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from foundation.differences import Difference, changed, presence
from puller.errors import ResourceError
from puller.resources.accounts import account_databases
from puller.resources.accounts.account_databases import Known, database_paths, find_group
from puller.resources.accounts.account_properties import (
    GroupProperties,
    agree_on_group,
    before_group,
    check_group,
    contradictions,
    require_new_name,
)
from puller.resources.base import Declared, PropertyError, Resource
from puller.system.protocol import UNKNOWN_ID
from puller.values.common_properties import Reference


class GroupState(msgspec.Struct, frozen=True):
    """A group in the databases. ``gid`` is ``None`` if the group is missing."""

    gid: int | None = None
    members: tuple[str, ...] = ()


class Group(Resource[GroupProperties, GroupState]):
    """A group of this machine."""

    type_name = "group"
    properties_type = GroupProperties
    providers = ("shadow",)
    removable = True

    _notes: tuple[str, ...] = ()

    def look(self) -> GroupState:
        """Return the current group. Raises ``ResourceError`` if it is not local."""
        name, known = self.properties.name, self._known
        if known.is_gone("group", name):
            return GroupState()
        if (result := known.names.groups.get(name)) is not None:
            return GroupState(result.gid, result.members)
        number = self.context.system.group_id(name)
        if number is not None and not known.is_new("group", name):
            raise ResourceError(f"group {name} is not local: another source than /etc/group has it")
        return GroupState(number)

    def differences(self, actual: GroupState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        properties, result = self.properties, self.final_ensure(actual)
        if result != properties.ensure:
            return [presence(result, properties.ensure)]
        if result == "absent":
            return ()
        differences = []
        if properties.gid not in (None, actual.gid):
            differences.append(changed("gid", str(actual.gid), str(properties.gid)))
        if {*(desired := self._desired_members(actual))} != {*actual.members}:
            differences.append(changed("members", _listed(actual.members), _listed(desired)))
        return differences

    def change(self, differences: Sequence[Difference], actual: GroupState) -> None:
        """Change the group (``docs/resources/group.md``). Each step runs one tool, and the next run resumes after it.

        1. Reject impossible changes.
        2. Remove the group, or
        3. create it and read its state.
        4. Change its id.
        5. Write the complete list of members.
        """
        # 1. Reject
        self._refuse(actual, differences)
        name, properties = self.properties.name, self.properties
        # 2. Remove
        if properties.ensure == "absent":
            account_databases.run_tool(self.context, "groupdel", "--", name)
            return
        # 3. Create
        if actual.gid is None:
            account_databases.run_tool(self.context, "groupadd", *self._new(), "--", name)
            actual = self.look()
            differences = self.differences(actual)
        for difference in differences:
            # 4. Id
            if difference.property == "gid":
                account_databases.run_tool(self.context, "groupmod", "-g", str(properties.gid), "--", name)
                self._note_gid(actual)
            # 5. Members
            elif difference.property == "members":
                members = self._without_strangers(self._desired_members(actual))
                account_databases.run_tool(self.context, "gpasswd", "-M", ",".join(members), "--", name)

    def _new(self) -> list[str]:
        properties = self.properties
        gid = [] if properties.gid is None else ["-g", str(properties.gid)]
        return [*gid, *(["-r"] if properties.system else [])]

    def noop_message(self, differences: Sequence[Difference], actual: GroupState) -> str:
        self._refuse(actual, differences)
        properties, expect = self.properties, self.context.system.expect_account
        if properties.ensure == "absent":
            expect("group", properties.name, None)
            return "Would have removed the group"
        if actual.gid is None:
            expect("group", properties.name, UNKNOWN_ID if properties.gid is None else properties.gid)
            return "Would have created the group"
        words = []
        for difference in differences:
            if difference.property == "gid":
                expect("group", properties.name, properties.gid)
                self._note_gid(actual)
                words.append(f"changed gid from {actual.gid} to {properties.gid}")
            else:
                words += self._member_words(actual)
        return f"Would have {'; '.join(words)}"

    def _member_words(self, actual: GroupState) -> list[str]:
        desired = self._desired_members(actual)
        added = [name for name in desired if name not in actual.members]
        removed = [name for name in actual.members if name not in desired]
        words = [("added", added), ("removed", removed)]
        return [f"{what} {', '.join(names)}" for what, names in words if names]

    def _note_gid(self, actual: GroupState) -> None:
        self._notes = (f"files that belong to the group keep the number {actual.gid}",)

    @property
    def notes(self) -> Sequence[str]:
        return self._notes

    def final_ensure(self, actual: GroupState) -> str:
        return "absent" if actual.gid is None else "present"

    @classmethod
    def subjects(cls, properties: GroupProperties) -> Iterable[str]:
        """Return the databases of users and groups."""
        del properties
        return database_paths()

    def changed_paths(self, actual: GroupState) -> None:
        """Return ``None``: the databases are shared, so their previous content does not restore this group alone."""
        del actual

    def describe(self, actual: GroupState) -> dict[str, Any]:
        if actual.gid is None:
            return {"ensure": "absent"}
        return {"ensure": "present", "gid": actual.gid, "members": [*actual.members]}

    @classmethod
    def hinders(cls, properties: GroupProperties, declared: Sequence[GroupProperties]) -> bool:
        group = find_group(properties.name)
        return group is not None and any(
            other.ensure != "absent" and other.gid == group.gid for other in declared
        )

    @property
    def _known(self) -> Known:
        return Known(self.context)

    def _desired_members(self, actual: GroupState) -> tuple[str, ...]:
        """Return the complete list of members after the change."""
        properties = self.properties
        if properties.members is None:
            return actual.members
        retained = () if properties.membership == "inclusive" else actual.members
        return tuple(dict.fromkeys((*retained, *properties.members)))

    def _without_strangers(self, members: Sequence[str]) -> list[str]:
        """Return the members without undeclared names of missing users, which make gpasswd reject the list.

        Manual edits of passwd leave such names in a group.
        """
        find = self.context.system.user_id
        return [name for name in members if name in (self.properties.members or ()) or find(name) is not None]

    def _refuse(self, actual: GroupState, differences: Sequence[Difference]) -> None:
        """Raise for a predictable failure of a tool, so that noop reports it."""
        changed = {difference.property for difference in differences}
        if self.properties.ensure == "absent":
            self._refuse_primary(actual)
            return
        if "ensure" in changed:
            require_new_name(self.properties.name, self.context)
        gid = self.properties.gid
        if gid is not None and changed & {"ensure", "gid"} and (other := self._known.group_with(gid)):
            raise ResourceError(f"gid {gid} belongs to group {other}")
        if changed & {"ensure", "members"}:
            self._refuse_strangers(actual)

    def _refuse_primary(self, actual: GroupState) -> None:
        users = [] if actual.gid is None else [*self._known.users_of(actual.gid)]
        if users:
            suffix = f" and {len(users) - 1} more" if len(users) > 1 else ""
            raise ResourceError(f"is the primary group of user {users[0]}{suffix}, so it is not removed")

    def _refuse_strangers(self, actual: GroupState) -> None:
        context = self.context
        for name in self.properties.members or ():
            if name in actual.members or context.system.user_id(name) is not None:
                continue
            if not context.uncertain("/etc/passwd"):
                raise ResourceError(f"members has the unknown user {name!r}")

    # Loading of the manifest

    @classmethod
    def check(cls, properties: GroupProperties) -> Iterator[PropertyError]:
        return check_group(properties)

    @classmethod
    def agree(cls, first: GroupProperties, second: GroupProperties) -> GroupProperties:
        return agree_on_group(first, second)

    @classmethod
    def follows(cls, properties: GroupProperties, declared: Declared) -> Iterable[Reference]:
        return before_group(properties, declared("user"), declared("group"))

    @classmethod
    def contradictions(cls, declared: Declared) -> Iterable[tuple[Any, Any, str]]:
        return contradictions(declared("user"), declared("group"))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)) or "nobody"
