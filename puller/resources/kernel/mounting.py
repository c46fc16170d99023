"""mount, umount, and systemd told of both: the commands of mounts, in a limited time.

A server that does not answer is so the failure of one resource. Nothing is unmounted lazily or by force.
"""

import os
from collections.abc import Sequence

from foundation.problems import ProblemCode
from puller.errors import ResourceError, reason
from puller.resources.kernel.processes import Processes, some
from puller.system.commands import Command, Completed
from puller.system.protocol import System

TIMEOUT = 60.0  # seconds
SYSTEMD = "/run/systemd/system"
"""The directory that is there where systemd runs."""

_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
_TAIL = 5  # lines of what a failed command printed
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
    """Mount as fstab says. Raises ``ResourceError``."""
    _execute(system, "mount", "--", point)


def mount_by(system: System, arguments: Sequence[str]) -> None:
    """Run mount with these arguments. Raises ``ResourceError``."""
    _execute(system, "mount", *arguments)


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
    if package and not any(os.path.exists(f"{one}/mount.{kind}") for one in _HELPER_DIRECTORIES):
        raise ResourceError(
            f"mount.{kind} is missing",
            code=ProblemCode.MISSING_DEPENDENCY,
            hint=f"it comes with the package {package}",
        )


def _held(point: str) -> str:
    by = Processes().in_use(point)
    return f"; it is held by {some(by)}" if by else ""


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


def _sentence(what: str, completed: Completed) -> str:
    printed = (completed.stderr.strip() or completed.stdout.strip()).splitlines()[-_TAIL:]
    said = "; ".join(line.strip() for line in printed)
    return f"{what}: {completed.outcome}" + (f"; it said: {said}" if said else "")
