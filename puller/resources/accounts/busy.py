"""Processes of a user: with one, ``userdel`` refuses the user, and ``usermod`` another uid or home.

As these tools do it: by the ids of each process, where its root directory is ours (a container's users are others).
"""

import os

from puller.errors import ResourceError

PROC = "/proc"


def require_idle(name: str, uid: int) -> None:
    """Raise ``ResourceError`` with a process of the user; nothing is killed."""
    found = find_process(uid)
    if found is not None:
        pid, command = found
        raise ResourceError(f"user {name} is used by process {pid} ({command})", hint="end it first")


def find_process(uid: int) -> tuple[int, str] | None:
    """The id and the name of a process of a user; ``None`` when there is none, or no /proc to see it in."""
    try:
        ours = _root("self")
    except FileNotFoundError:
        return None
    for pid in filter(str.isdecimal, os.listdir(PROC)):
        try:
            with open(f"{PROC}/{pid}/status", encoding="utf-8", errors="replace") as lines:
                fields = dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)
            if str(uid) in fields["Uid"].split()[:3] and _root(pid) == ours:
                return int(pid), fields["Name"]
        except (OSError, KeyError):  # it is gone
            continue
    return None


def _root(pid: str) -> tuple[int, int]:
    found = os.stat(f"{PROC}/{pid}/root")
    return found.st_dev, found.st_ino
