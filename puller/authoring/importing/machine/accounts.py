"""Users, groups, their keys, and their cron jobs."""

import datetime
import os
import re
from collections.abc import Sequence
from typing import Any, Final

from puller.authoring.importing.draft import Resource
from puller.authoring.importing.machine.machine_draft import MachineDraft
from puller.authoring.importing.machine.root_files import FILE_LIMIT, number_of
from puller.authoring.importing.reading import has_secret
from puller.authoring.importing.written_expressions import escaped

_USER_IDS: Final = range(1000, 60000)
_EPOCH: Final = datetime.date(1970, 1, 1)
_AGES: Final = (
    ("password_min_days", 3, ("", "0")),
    ("password_max_days", 4, ("", "99999")),
    ("password_warn_days", 5, ("", "7")),
)
"""Properties of a user, with their field of shadow(5) and its defaults."""


def add_accounts(draft: MachineDraft) -> None:
    """Add the groups and users of people, and the keys of root."""
    members: dict[str, list[str]] = {}
    for line in draft.machine.lines("etc/group"):
        parts = line.split(":")
        if len(parts) != 4 or (gid := number_of(parts[2])) is None:
            continue
        for member in filter(None, parts[3].split(",")):
            members.setdefault(member, []).append(parts[0])
        if gid in _USER_IDS:
            draft.add(Resource("group", parts[0], {"gid": gid}), "etc/group")
    secrets = {line.split(":")[0]: line.split(":") for line in draft.machine.lines("etc/shadow")}
    for line in draft.machine.lines("etc/passwd"):
        parts = line.split(":")
        if len(parts) != 7:
            continue
        if parts[0] == "root":
            if keys := _keys_of(draft, parts[5]):
                draft.add(Resource("user", "root", {"authorized_keys": keys}), "etc/passwd")
        elif number_of(parts[2]) in _USER_IDS and number_of(parts[3]) is not None:
            _add_user(draft, parts, members.get(parts[0], []), secrets.get(parts[0], []))


def _add_user(
    draft: MachineDraft, parts: Sequence[str], groups: Sequence[str], secret: Sequence[str]
) -> None:
    name, _, uid, gid, comment, home, shell = parts
    properties: dict[str, Any] = {"uid": int(uid), "group": draft.groups.get(int(gid), gid)}
    properties |= {"groups": groups} if groups else {}
    properties |= {"home": home, "shell": shell}
    if not draft.machine.exists(home.strip("/")):
        properties["manage_home"] = False
    properties |= {"comment": escaped(comment.rstrip(","))} if comment.rstrip(",") else {}
    keys = _keys_of(draft, home)
    properties |= {"authorized_keys": keys} if keys else {}
    for key, index, defaults in _AGES:
        if len(secret) > index and secret[index] not in defaults and secret[index].lstrip("-").isdecimal():
            properties[key] = int(secret[index])
    if len(secret) > 7 and (days := number_of(secret[7])) is not None and days < 1_000_000:
        properties["expires"] = str(_EPOCH + datetime.timedelta(days))
    password = secret[1] if len(secret) > 1 else ""
    remark = ""
    if password.startswith("!"):
        properties["locked"] = True
    elif password not in ("", "*"):
        remark = "the password hash is a secret, and is left out"
        draft.draft.check(
            f"The password of {name} is left out. Encrypt its hash with `puller hiera encrypt`."
        )
    draft.add(Resource("user", name, properties), "etc/passwd", remark)


def _keys_of(draft: MachineDraft, home: str) -> list[str]:
    """Return the public keys of a user."""
    path = f"{home.strip('/')}/.ssh/authorized_keys"
    if not home.startswith("/") or ".." in home or draft.machine.link(os.path.dirname(path)) is not None:
        return []
    lines = map(str.strip, draft.machine.lines(path, FILE_LIMIT))
    return [escaped(line) for line in lines if line and not line.startswith("#")]


def add_jobs(draft: MachineDraft) -> None:
    """Add the jobs of the crontabs of users."""
    for user in draft.machine.names("var/spool/cron/crontabs"):
        path = f"var/spool/cron/crontabs/{user}"
        environment: dict[str, str] = {}
        for number, line in enumerate(draft.machine.lines(path), 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            if match := re.fullmatch(r"(\w+)\s*=\s*(.*)", text):
                environment[match[1]] = match[2].strip("\"'")
                continue
            match = re.fullmatch(r"(@\w+|(?:\S+\s+){4}\S+)\s+(.*)", text)
            if match is None:
                draft.leave_out(path, f"line {number}", "the line is invalid")
                continue
            texts = [text, *(f"{name}={value}" for name, value in environment.items())]
            if any(has_secret(item.encode(errors="replace")) for item in texts):
                reason = "the job can contain a secret. Encrypt it, and use a cron job with a file"
                draft.leave_out(path, f"line {number}", reason)
                continue
            properties: dict[str, Any] = {
                "schedule": " ".join(match[1].split()),
                "command": escaped(match[2]),
            }
            properties |= {"user": user} if user != "root" else {}
            properties |= {"environment": dict(environment)} if environment else {}
            remark = "the job moves to /etc/cron.d. Remove it from the crontab"
            name = f"{re.sub(r'[^A-Za-z0-9_-]', '-', user)}-{number}"
            draft.add(Resource("cron", name, properties), path, remark)
