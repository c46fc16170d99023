"""Rules for manifests of an agent without root (``--as-user``).

* Owner, group and the systemd instance of a service default to those of the user.
* A type that manages objects of all users, or a property that names another user, rejects the whole manifest. A
  condition (``control``) makes no difference, since it may hold later.
* Types of other distributions are unknown here. They report their own limits.
"""

import grp
import os
import pwd
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from foundation.problems import ProblemCode
from puller.resources.base import PropertyError

WANTS_ROOT: Mapping[str, str] = MappingProxyType(
    {
        "alternative": "alternatives belong to the machine",
        "cron": "jobs in /etc/cron.d belong to the machine, use a timer of systemd --user",
        "diversion": "files of packages belong to the machine",
        "group": "accounts belong to the machine",
        "host_entry": "/etc/hosts belongs to the machine",
        "hostname": "the name belongs to the machine",
        "kernel_module": "modules belong to the kernel",
        "locale": "locales belong to the machine",
        "mount": "file systems are mounted for the machine",
        "package": "packages are installed for the machine",
        "reboot": "the machine belongs to all users",
        "repository": "package repositories belong to the machine",
        "swap": "swap belongs to the kernel",
        "sysctl": "these settings belong to the kernel",
        "unit": "units in /etc/systemd/system belong to the machine, use a file in ~/.config/systemd/user",
        "timezone": "the time zone belongs to the machine",
        "user": "accounts belong to the machine",
    }
)
"""The reason why a type requires root."""

_OWNED = frozenset({"archive", "file"})
"""Types that require an owner and a group."""


def refusal(type_name: str) -> str:
    """Return why no resource of a type can be managed. Empty if some can."""
    why = WANTS_ROOT.get(type_name)
    return f"{type_name} resources require root ({why}), and this is the agent of a user" if why else ""


def complete(type_name: str, raw: dict[str, Any]) -> None:
    """Set the user's own defaults for missing properties."""
    if type_name in _OWNED and raw.get("create", True) is not False:
        for name, own in (("owner", _user_name()), ("group", _group_name())):
            if raw.get(name) in (None, ""):
                raw[name] = own
    if type_name == "service" and raw.get("scope", "user") == "user" and raw.get("user") is None:
        raw["scope"], raw["user"] = "user", _user_name()


def problems(type_name: str, raw: Mapping[str, Any], *, is_here: bool) -> Iterator[PropertyError]:
    """Yield the properties that require root, after their expressions are resolved.

    With ``is_here`` the current user runs the agent. Otherwise the user is unknown.
    """
    if type_name == "service" and raw.get("scope") == "system":
        yield PropertyError(
            "scope",
            "is 'system', which requires root, and this is the agent of a user",
            code=ProblemCode.REQUIRES_ROOT,
        )
    if raw.get("validate_in_place") is True:
        yield PropertyError(
            "validate_in_place",
            "is true, which requires root, and this is the agent of a user",
            code=ProblemCode.REQUIRES_ROOT,
        )
    if not is_here:
        return
    for name in ("owner", "user"):
        if _is_given(raw.get(name)) and not _is_me(raw[name]):
            yield PropertyError(
                name,
                f"is {raw[name]!r}, and this agent runs as {_user_name()}",
                code=ProblemCode.REQUIRES_ROOT,
                expected=_user_name(),
            )
    if _is_given(raw.get("group")) and not _is_my_group(raw["group"]):
        yield PropertyError(
            "group",
            f"is {raw['group']!r}, and this agent runs as {_user_name()}",
            code=ProblemCode.REQUIRES_ROOT,
            expected=f"a group of {_user_name()}",
        )


def _is_given(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def _is_me(who: str | int) -> bool:
    if str(who).isascii() and str(who).isdecimal():
        return int(who) == os.geteuid()
    try:
        return pwd.getpwnam(str(who)).pw_uid == os.geteuid()
    except KeyError:  # the type reports the unknown user
        return True


def _is_my_group(which: str | int) -> bool:
    try:
        gid = (
            int(which)
            if (str(which).isascii() and str(which).isdecimal())
            else grp.getgrnam(str(which)).gr_gid
        )
    except KeyError:
        return True
    return gid in (os.getegid(), *os.getgroups())


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _group_name() -> str:
    try:
        return grp.getgrgid(os.getegid()).gr_name
    except KeyError:
        return str(os.getegid())
