"""Agreement between declarations of users and groups: merging, order and contradictions.

* Two declarations of one user or group are merged. Lists that allow additions are joined. A complete list must be
  equal to another complete list, and must contain the members of a list that allows additions.
* The merged lists are sorted, so that the order of the declarations does not matter.
* Groups are created before users. A group that lists members follows these users, unless a user names the group.
* Users are removed before groups. The primary group of a remaining user cannot be removed.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from puller.resources.accounts.account_properties import GroupProperties, UserProperties
from puller.resources.accounts.authorized_keys import find_key
from puller.resources.base import Properties
from puller.resources.property_agreement import agree
from puller.values.references import Reference

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
            "authorized_keys": lambda left_side, other: _one_line_a_key(joined((left_side, other), keys)),
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


def _one_line_a_key(lines: List) -> List:
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
