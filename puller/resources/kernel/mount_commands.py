"""Commands for mounts: mount, umount and the reload of systemd, each with a time limit.

* If a server does not answer, only the resource of this mount fails.
* Mounts are never unmounted lazily or by force.
* If a mount is busy, the error names the processes that use it (proc(5)): by an open file, a directory or a program.
"""

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from bundles.first_few import first_few
from foundation.problems import ProblemCode
from puller.errors import ResourceError, reason
from puller.system.commands import Command, Completed
from puller.system.protocol import System

# Processes that use a mount.

PROC = "/proc"
_MOST_NAMED = 8


class Processes:
    """All processes of this machine. Each list is read once."""

    def in_use(self, point: str) -> list[str]:
        """Return the processes that use a mount, by name and number."""
        below = f"{point.rstrip('/')}/"
        return [
            f"{_name(number)} ({number})"
            for number, paths in self._paths.items()
            if any(path == point or path.startswith(below) for path in paths)
        ]

    def writers(self, mounts: Collection[int]) -> list[str]:
        """Return the processes that have a file open for writing in one of these mounts, by name and number."""
        if not mounts:
            return []
        return [
            f"{_name(number)} ({number})"
            for number in self._numbers
            if _writes_to(f"{PROC}/{number}", mounts)
        ]

    @cached_property
    def _numbers(self) -> list[str]:
        return sorted(filter(str.isdecimal, os.listdir(PROC)), key=int)

    @cached_property
    def _paths(self) -> dict[str, set[str]]:
        return {number: {*_paths(f"{PROC}/{number}")} for number in self._numbers}


def some(names: list[str]) -> str:
    """Return the first few names, for a message."""
    return first_few(names, _MOST_NAMED)


def _writes_to(process: str, mounts: Collection[int]) -> bool:
    """Return whether a process has a regular file open for writing in one of these mounts (proc(5), ``fdinfo``)."""
    try:
        numbers = os.listdir(f"{process}/fdinfo")
    except OSError:
        return False
    for number in numbers:
        try:
            with open(f"{process}/fdinfo/{number}", encoding="ascii", errors="replace") as stream:
                fields = dict(line.split(":", 1) for line in stream.read().splitlines() if ":" in line)
            is_open_for_writing = int(fields["flags"], 8) & os.O_ACCMODE != os.O_RDONLY
            if not is_open_for_writing or int(fields["mnt_id"]) not in mounts:
                continue
            # Pipes, sockets and devices can be written to on a read-only file system.
            if stat.S_ISREG(os.stat(f"{process}/fd/{number}").st_mode):
                return True
        except (OSError, KeyError, ValueError):  # the process ended meanwhile, or reading it is not permitted
            continue
    return False


def _paths(process: str) -> Iterator[str]:
    """Yield the paths that a process uses. Skip paths that cannot be read, or if the process ended meanwhile."""
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


TIMEOUT = 60.0  # seconds
SYSTEMD = "/run/systemd/system"
"""The directory that exists if systemd runs."""

_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
_TAIL = 5  # lines of output of a failed command
_HELPERS = {
    "nfs": "nfs-common (nfs-utils)",
    "nfs4": "nfs-common (nfs-utils)",
    "cifs": "cifs-utils",
    "smb3": "cifs-utils",
    "glusterfs": "glusterfs-client",
    "ntfs-3g": "ntfs-3g",
    "fuse.sshfs": "sshfs",
}
_HELPER_DIRECTORIES = ("/sbin", "/usr/sbin", "/usr/local/sbin")


def mount(system: System, point: str) -> None:
    """Mount according to fstab. Raises ``ResourceError``."""
    _execute(system, "mount", "--", point)


def mount_by(system: System, arguments: Sequence[str]) -> None:
    """Run mount with these arguments. Raises ``ResourceError``."""
    _execute(system, "mount", *arguments)


def unmount(system: System, point: str) -> None:
    """Unmount the topmost mount of a point. Raises ``ResourceError`` with the processes that use it."""
    try:
        _execute(system, "umount", "--", point)
    except ResourceError as error:
        raise ResourceError(f"{error}{_held(point)}") from None


def tell_systemd(system: System) -> str:
    """If systemd runs, make it regenerate its units from fstab. Return the error message, empty on success."""
    if not os.path.isdir(SYSTEMD):
        return ""
    try:
        _execute(system, "systemctl", "--system", "--no-ask-password", "daemon-reload")
    except ResourceError as error:
        return f"systemd has not read /etc/fstab: {error}"
    return ""


def require_helper(kind: str) -> None:
    """Raise ``ResourceError`` if the helper program that mounts this type of file system is missing."""
    package = _HELPERS.get(kind)
    if package and not any(os.path.exists(f"{item}/mount.{kind}") for item in _HELPER_DIRECTORIES):
        raise ResourceError(
            f"mount.{kind} is missing",
            code=ProblemCode.MISSING_DEPENDENCY,
            hint=f"it comes with the package {package}",
        )


def _held(point: str) -> str:
    by = Processes().in_use(point)
    return f". It is in use by {some(by)}" if by else ""


def _execute(system: System, *arguments: str) -> None:
    try:
        completed = system.execute(Command(arguments, _ENVIRONMENT, timeout=TIMEOUT))
    except FileNotFoundError:
        package = "systemd" if arguments[0] == "systemctl" else "mount (util-linux)"
        raise ResourceError(
            f"{arguments[0]} is missing",
            code=ProblemCode.MISSING_DEPENDENCY,
            hint=f"it comes with the package {package}",
        ) from None
    except OSError as error:
        raise ResourceError(f"{arguments[0]} cannot be started: {reason(error)}") from error
    if completed.exit_code != 0:
        shown = arguments[: arguments.index("--")] if "--" in arguments else arguments
        raise ResourceError(_sentence(" ".join(shown), completed))


def _sentence(description: str, completed: Completed) -> str:
    printed = (completed.stderr.strip() or completed.stdout.strip()).splitlines()[-_TAIL:]
    text = "; ".join(line.strip() for line in printed)
    return f"{description}: {completed.outcome}" + (f"; it said: {text}" if text else "")
