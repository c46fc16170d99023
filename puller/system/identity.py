"""The user that a command runs as, where it is not the one that Puller runs as.

All that belongs to a login is taken from the databases of users and groups at once: ids, every group, home and shell.
"""

import grp
import os
import pwd
from typing import Self

import msgspec

from puller.errors import ResourceError


class Identity(msgspec.Struct, frozen=True):
    """A user with the primary group and all supplementary groups that a process of theirs has."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @classmethod
    def find(cls, user: str | int, group: str | int | None = None) -> Self:
        """The identity of a user by name or id, with another primary group if one is given.

        Raises ``ResourceError`` when there is no such user or group.
        """
        entry = _entry(user)
        gid = entry.pw_gid if group is None else _group_id(group)
        groups = tuple(os.getgrouplist(entry.pw_name, gid))
        return cls(entry.pw_name, entry.pw_uid, gid, groups, entry.pw_dir, entry.pw_shell or "/bin/sh")

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a login that name the user."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


def _entry(user: str | int) -> pwd.struct_passwd:
    try:
        if isinstance(user, int) or (user.isascii() and user.isdecimal()):
            return pwd.getpwuid(int(user))
        return pwd.getpwnam(user)
    except (KeyError, OverflowError) as error:
        raise ResourceError(f"user is {user!r}, and there is no such user") from error


def _group_id(group: str | int) -> int:
    if isinstance(group, int) or (group.isascii() and group.isdecimal()):
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise ResourceError(f"group is {group!r}, and there is no such group") from error
