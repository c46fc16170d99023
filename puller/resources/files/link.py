"""The ``link`` resource: symbolic links (``docs/resources/link.md``).

* Puller compares the text of a link. A relative target is relative to the link's directory.
* A rename replaces the path, so it is never missing, except that an empty directory is removed first.
* A file is replaced only with ``force``. A non-empty directory is never replaced.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any

from foundation.differences import Difference, changed, presence
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Properties, PropertyError, Resource, missing_property
from puller.resources.claims import Claim, Use
from puller.resources.paths import (
    PathState,
    attribute_differences,
    check_managed,
    group_id,
    group_name,
    require_parent,
    user_id,
    user_name,
)
from puller.system.local_paths import refuse_mounted
from puller.system.protocol import Attributes

_ENSURE = ("present", "absent")
_KINDS = {"symbolic link": "present", "present": "file"}


class LinkProperties(Properties, frozen=True):
    """The properties of a link. The name is the path."""

    target: str = ""
    """The target, stored as written. A relative target starts at the directory of the link."""
    force: bool = False
    """Replace a file or an empty directory at the path."""
    owner: str | int | None = None
    """Owner of the link: name, or numeric id. Unset: unmanaged."""
    group: str | int | None = None
    """Group of the link: name, or numeric id. Unset: unmanaged."""


class LinkState(PathState, frozen=True):
    """The state of a link's path, and the target of the link."""

    target: str = ""

    @property
    def kind(self) -> str:
        """``absent``, ``present`` (a link), ``file``, ``directory``, or another kind."""
        return _KINDS.get(super().kind, super().kind)


class Link(Resource[LinkProperties, LinkState]):
    """A symbolic link."""

    type_name = "link"
    claims_only_its_name = True
    properties_type = LinkProperties
    unused = {"absent": frozenset({"target", "owner", "group"})}  # noqa: RUF012  ClassVar in the base class

    _leads_nowhere = False

    def look(self) -> LinkState:
        path = self.properties.name
        status = self.context.system.lstat(path)
        if status is None or not stat.S_ISLNK(status.st_mode):
            return LinkState(status)
        return LinkState(status, os.readlink(path))

    def differences(self, actual: LinkState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        properties, status = self.properties, actual.found
        if actual.kind != properties.ensure:
            return [presence(actual.kind, properties.ensure)]
        if status is None:
            return ()
        differences = []
        if actual.target != properties.target:
            differences.append(changed("target", actual.target, properties.target))
        if properties.owner is not None or properties.group is not None:
            desired = self._wanted_attributes(status)
            differences += attribute_differences(status, desired, properties.owner, properties.group)
        return differences

    def change(self, differences: Sequence[Difference], actual: LinkState) -> None:
        """Create, update or remove the link (``docs/resources/link.md``).

        1. Refuse impossible changes, and changes that may lose data.
        2. Remove the link, or an empty directory that a rename cannot replace.
        3. Set the owner of a link that stays, or create the link with its final owner.
        """
        # 1. Refuse
        self._raise_predictable_failures(actual)
        # 2. Remove
        path, system, status = self.properties.name, self.context.system, actual.found
        if status is not None and (self.properties.ensure == "absent" or actual.kind == "directory"):
            system.remove(path, status)
            status = None
        if self.properties.ensure == "absent":
            return
        # 3. Set, or make
        if status is not None and self._stays(differences, status):
            system.set_attributes(path, self._wanted_attributes(status), status)
        else:
            system.make_link(path, self.properties.target, status, self._owner_of_new())
            self._leads_nowhere = not system.exists(self._end)

    def noop_message(self, differences: Sequence[Difference], actual: LinkState) -> str:
        self._raise_predictable_failures(actual)
        path, system = self.properties.name, self.context.system
        if self.properties.ensure == "absent":
            system.expect(path, "absent")
            return "Would have removed the link"
        if differences[0].property in ("owner", "group"):
            return "Would have updated attributes"
        system.expect_link(path, os.path.normpath(self._end))
        self._leads_nowhere = not system.exists(path) and not self.context.uncertain(self._end)
        if actual.kind in ("absent", "present"):
            return f"Would have {'created' if actual.kind == 'absent' else 'changed'} the link"
        kind = "directory" if actual.kind == "directory" else "file"
        return f"Would have replaced the {kind} by a link"

    def final_ensure(self, actual: LinkState) -> str:
        return actual.kind

    def describe(self, actual: LinkState) -> dict[str, Any]:
        status = actual.found
        if status is None or actual.kind != "present":
            return {"ensure": actual.kind}
        owners = {"owner": user_name(status.st_uid), "group": group_name(status.st_gid)}
        return {"ensure": actual.kind, "target": actual.target, **owners}

    @property
    def notes(self) -> Sequence[str]:
        return [f"its target does not exist: {self._end}"] if self._leads_nowhere else ()

    @property
    def _end(self) -> str:
        """The absolute path of the target."""
        return _end_of(self.properties)

    def _wanted_attributes(self, found: os.stat_result) -> Attributes:
        properties, context = self.properties, self.context
        uid = found.st_uid if properties.owner is None else user_id(properties.owner, context)
        gid = found.st_gid if properties.group is None else group_id(properties.group, context)
        return Attributes(uid, gid, stat.S_IMODE(found.st_mode))

    def _owner_of_new(self) -> tuple[int, int] | None:
        """Return the owner and group ids of a new link. -1 keeps the creator's id, as for chown(2)."""
        owner, group, context = self.properties.owner, self.properties.group, self.context
        if owner is None and group is None:
            return None
        uid = -1 if owner is None else user_id(owner, context)
        return uid, -1 if group is None else group_id(group, context)

    def _stays(self, differences: Sequence[Difference], found: os.stat_result) -> bool:
        """Return whether only the owner changes. A hard link is replaced, because its other names belong to others."""
        return differences[0].property in ("owner", "group") and found.st_nlink == 1

    def _raise_predictable_failures(self, actual: LinkState) -> None:
        """Raise the errors that ``change`` would raise, so that noop predicts them."""
        kind, name, status = actual.kind, self.properties.name, actual.found
        if status is not None:
            refuse_mounted(name, "removed" if self.properties.ensure == "absent" else "replaced")
        if self.properties.ensure == "absent":
            if kind != "present":
                raise ResourceError(
                    f"{name} is a {kind}, and only a link is removed", code=ProblemCode.CHANGE_REFUSED
                )
            return
        if kind == "directory" and self._holds_anything():
            detail = "is a directory that is not empty, which no link replaces"
            raise ResourceError(
                f"{name} {detail}",
                code=ProblemCode.CHANGE_REFUSED,
                hint=f"to remove it: file#{name} with ensure: absent and force: true",
            )
        if kind not in ("absent", "present") and not self.properties.force:
            raise ResourceError(
                f"{name} is a {kind}",
                code=ProblemCode.CHANGE_REFUSED,
                hint="replacing it by a link requires force: true",
            )
        require_parent(name, self.context)
        self._owner_of_new()  # raises for an unknown owner or group

    def _holds_anything(self) -> bool:
        """Return whether the directory is not empty. In noop, ignore children that the run would have removed."""
        name, system = self.properties.name, self.context.system
        result = (child for child, _ in system.children(name))
        return any(not self.context.noop or system.exists(f"{name}/{child}") for child in result)

    @classmethod
    def check(cls, properties: LinkProperties) -> Iterator[PropertyError]:
        ensure, target = properties.ensure, properties.target
        if ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {ensure!r}", expected="present or absent")
        yield from check_managed(properties.name)
        if "\0" in target:
            yield PropertyError("target", f"is {target!r}", expected="a path without NUL")
        elif not target and ensure == "present":
            yield missing_property(
                "target", "is missing", because=["ensure"], hint="it is required unless ensure is absent"
            )
        elif target and os.path.normpath(_end_of(properties)) == properties.name:
            yield PropertyError("target", f"is {target!r}, which is the link itself", because=["name"])
        for name in ("owner", "group"):
            if getattr(properties, name) == "":
                yield PropertyError(name, "is empty", expected="a name or an id")

    @classmethod
    def claims(cls, properties: LinkProperties) -> Iterator[Claim]:
        yield Claim(properties.name, Use.ABSENT if properties.ensure == "absent" else Use.LINK)

    @classmethod
    def is_whole(cls, properties: LinkProperties) -> bool:
        return properties.ensure == "absent" or None not in (properties.owner, properties.group)


def _end_of(properties: LinkProperties) -> str:
    return os.path.join(os.path.dirname(properties.name), properties.target)
