"""mount, umount, and systemd told of both: the commands of mounts, in a limited time; and who holds a mount.

A server that does not answer is so the failure of one resource. Nothing is unmounted lazily or by force.
"""

import os
from collections.abc import Iterator

from puller.errors import ResourceError, reason
from puller.system.commands import Command, Completed
from puller.system.protocol import System

TIMEOUT = 60.0  # seconds
PROC = "/proc"
SYSTEMD = "/run/systemd/system"
"""The directory that is there where systemd runs."""

_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
_TAIL = 5  # lines of what a failed command printed
_MOST_NAMED = 8
_HELPERS = {
    "nfs": "nfs-common (nfs-utils)",
    "nfs4": "nfs-common (nfs-utils)",
    "cifs": "cifs-utils",
    "smb3": "cifs-utils",
    "glusterfs": "glusterfs-client",
    "ceph": "ceph-common",
    "ntfs-3g": "ntfs-3g",
    "fuse.sshfs": "sshfs",
}
_HELPER_DIRECTORIES = ("/sbin", "/usr/sbin", "/usr/local/sbin")


def mount(system: System, point: str) -> None:
    """Mount as fstab says. Raises ``ResourceError``."""
    _execute(system, "mount", "--", point)


def remount(system: System, point: str) -> None:
    """Give a mount the options that fstab says. Raises ``ResourceError``."""
    _execute(system, "mount", "-o", "remount", "--", point)


def unmount(system: System, point: str) -> None:
    """Take away the topmost mount of a point. Raises ``ResourceError`` with the processes that hold it."""
    try:
        _execute(system, "umount", "--", point)
    except ResourceError as error:
        raise ResourceError(f"{error}{_held(point)}") from None


def tell_systemd(system: System) -> str:
    """Let systemd, where it runs, make its units of fstab anew; gives what went wrong with that."""
    if not os.path.isdir(SYSTEMD):
        return ""
    try:
        _execute(system, "systemctl", "--system", "--no-ask-password", "daemon-reload")
    except ResourceError as error:
        return f"systemd has not read /etc/fstab: {error}"
    return ""


def require_helper(kind: str) -> None:
    """Raise ``ResourceError`` where the program is missing that mounts file systems of this type."""
    package = _HELPERS.get(kind)
    name = f"mount.{kind.removeprefix('fuse.')}" if kind != "fuse.sshfs" else "mount.fuse.sshfs"
    if package and not any(os.path.exists(f"{directory}/{name}") for directory in _HELPER_DIRECTORIES):
        raise ResourceError(f"{name} is missing; it comes with the package {package}")


def holders(point: str) -> list[str]:
    """The processes that have a file or directory of a mount open, are in it, or run a program of it."""
    numbers = sorted(filter(str.isdecimal, os.listdir(PROC)), key=int)
    found = (one for one in numbers if any(_is_in(path, point) for path in _paths(f"{PROC}/{one}")))
    return [f"{_name(number)} ({number})" for number in found]


def say(names: list[str]) -> str:
    """Some of many, for a message."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _held(point: str) -> str:
    by = holders(point)
    return f"; it is held by {say(by)}" if by else ""


def _is_in(path: str, point: str) -> bool:
    return path == point or path.startswith(f"{point.rstrip('/')}/")


def _paths(process: str) -> Iterator[str]:
    """What a process has open; nothing of one that ends meanwhile, or that is not ours to see."""
    names = ["cwd", "root", "exe"]
    try:
        names += [f"fd/{number}" for number in os.listdir(f"{process}/fd")]
    except OSError:
        pass
    for name in names:
        try:
            yield os.readlink(f"{process}/{name}")
        except OSError:
            continue


def _name(number: str) -> str:
    try:
        with open(f"{PROC}/{number}/comm", encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return "a process"


def _execute(system: System, *arguments: str) -> None:
    try:
        completed = system.execute(Command(arguments, _ENVIRONMENT, timeout=TIMEOUT))
    except FileNotFoundError:
        package = "systemd" if arguments[0] == "systemctl" else "mount (util-linux)"
        raise ResourceError(f"{arguments[0]} is missing; it comes with the package {package}") from None
    except OSError as error:
        raise ResourceError(f"{arguments[0]} cannot be started: {reason(error)}") from error
    if completed.exit_code != 0:
        raise ResourceError(_sentence(" ".join(arguments[:-2] or arguments), completed))


def _sentence(what: str, completed: Completed) -> str:
    said = "; ".join((completed.stderr.strip() or completed.stdout.strip()).splitlines()[-_TAIL:])
    return f"{what.removesuffix(' --')}: {completed.outcome}" + (f"; it said: {said}" if said else "")
