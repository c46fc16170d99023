"""The properties of a group, and what is wrong with them (``docs/resources/group.md``)."""

from collections.abc import Iterator

from puller.resources.accounts.names import (
    check_ensure,
    check_id,
    check_membership,
    check_name,
    check_others,
)
from puller.resources.base import Properties, PropertyError


class GroupProperties(Properties, frozen=True):
    """The properties of a group."""

    gid: int | None = None
    """Its id; chosen by the system when not given."""
    system: bool = False
    """Make it with an id of the range for the system's own; of a group that is there nothing is compared."""
    members: tuple[str, ...] | None = None
    """Users that it lists; left as they are when not given."""
    membership: str = "minimum"
    """``minimum``: other members stay; ``inclusive``: they are removed."""


def check_group(properties: GroupProperties) -> Iterator[PropertyError]:
    """All that is wrong with the properties of a group."""
    yield from check_name(properties.name)
    yield from check_ensure(properties.ensure)
    yield from check_id("gid", properties.gid)
    yield from check_others("members", properties.members or ())
    yield from check_membership("members", properties.members, properties.membership)
    if properties.name == "root" and properties.ensure == "absent":
        yield PropertyError("ensure", "is 'absent', and root is not removed", because=["name"])
    if properties.gid is not None and (properties.gid == 0) is not (properties.name == "root"):
        yield PropertyError("gid", f"is {properties.gid}, and 0 is root's alone", because=["name"])
