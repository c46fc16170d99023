"""Two declarations of one user or group: lists that others may add to are joined, complete ones have to be the same.

* A complete list agrees with one that is at least wanted, when all of that is in it.
* What comes of it is sorted, so that it is the same whichever declaration comes first.
"""

from collections.abc import Collection
from typing import TypeVar

import msgspec

from puller.resources.accounts.group_properties import GroupProperties
from puller.resources.accounts.keys import find_key
from puller.resources.accounts.user_properties import UserProperties
from puller.resources.agreeing import agree

P = TypeVar("P", UserProperties, GroupProperties)
List = tuple[str, ...] | None


def agree_on_group(first: GroupProperties, second: GroupProperties) -> GroupProperties:
    """The properties of both; raises ``Contradiction``."""
    complete = [one.members is not None and one.membership == "inclusive" for one in (first, second)]
    return agree(
        first,
        second,
        rules={
            "members": lambda one, other: joined((one, other), complete),
            "membership": lambda one, other: "inclusive",
        },
    )


def agree_on_user(first: UserProperties, second: UserProperties) -> UserProperties:
    """The properties of both; raises ``Contradiction``."""
    groups = [one.groups is not None and one.membership == "inclusive" for one in (first, second)]
    keys = [one.authorized_keys is not None and one.exclusive_keys for one in (first, second)]
    agreed = agree(
        first,
        second,
        rules={
            "groups": lambda one, other: joined((one, other), groups),
            "membership": lambda one, other: "inclusive",
            "group": _same_group,
            "authorized_keys": lambda one, other: _one_line_a_key(joined((one, other), keys)),
        },
    )
    return msgspec.structs.replace(agreed, exclusive_keys=any(keys))


def joined(lists: tuple[List, List], complete: Collection[bool]) -> List:
    """Both lists as one; raises ``ValueError`` where a complete one lacks what the other wants."""
    given = [{*one} for one in lists if one is not None]
    wholes = [{*(one or ())} for one, is_whole in zip(lists, complete, strict=True) if is_whole]
    both = set().union(*given)
    if any(whole != both for whole in wholes):
        raise ValueError("a complete list lacks what the other one wants")
    return tuple(sorted(both))


def _same_group(one: str | int | None, other: str | int | None) -> str | int | None:
    """By a rule of its own, as an id may be written as a number or as text."""
    if one is None or other is None:
        return one if other is None else other
    if str(one) != str(other):
        raise ValueError("two groups")
    return str(one)


def _one_line_a_key(lines: List) -> List:
    """Raise ``ValueError`` for a key with two lines that differ in what may be done with it."""
    keys = [find_key(line) for line in lines or ()]
    if len({key.identity for key in keys if key is not None}) < len(keys):
        raise ValueError("one key with different options")
    return lines
