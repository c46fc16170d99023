"""Calls of the system's account tools, one at a time, and the processes that block them.

* Only these tools write the account databases. They take a lock and keep several databases in step.
* A lock that another process holds is awaited first. If the wait fails, the error names the process.
* Secrets are passed on standard input, because every user can read the command line of a process.
* Exit code 0 does not prove a change (``usermod -U`` ends with 0 even if it refuses), so the resource reads the state
  again.
"""

import contextlib
import fcntl
import os
import struct
import time

from puller.errors import ResourceError, reason
from puller.resources.accounts import databases
from puller.resources.base import Context
from puller.system import signals
from puller.system.commands import Command

WAIT = 15.0
"""Seconds to wait for the lock of the databases, the same as ``lckpwdf``."""
_TIMEOUT = 3600.0  # seconds; userdel removes a whole home, usermod moves it or changes its uid
_PAUSE = 0.1
_TAIL = 5  # lines of a failed tool's output
_LOCK = struct.Struct("hhqqi")  # struct flock of Linux on 64 bits: type, whence, start, length, pid
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}  # a date is midnight UTC in every time zone


def run(context: Context, *arguments: str, secret: str = "") -> None:
    """Run a tool with ``secret`` on its standard input. Raises ``ResourceError`` with the end of its output.

    1. Wait for the lock.
    2. Run the tool.
    3. Discard cached databases, even after a failure.
    """
    # 1. Lock
    wait_for_lock()
    # 2. Run
    tool = arguments[0]
    command = Command(arguments, _ENVIRONMENT, timeout=_TIMEOUT, input=secret.encode("ascii"))
    try:
        completed = context.system.execute(command)
    except FileNotFoundError as error:
        package = "gpasswd, useradd and the like are in the package passwd (Debian) or shadow-utils"
        raise ResourceError(f"{tool} cannot be started: {reason(error)}", hint=package) from error
    except OSError as error:
        raise ResourceError(f"{tool} cannot be started: {reason(error)}") from error
    # 3. Discard, even after a failure
    finally:
        databases.Databases.forget(context)
    if completed.exit_code != 0:
        printed = "\n".join((completed.stderr.strip() or completed.stdout.strip()).splitlines()[-_TAIL:])
        raise ResourceError(f"{tool}: {completed.outcome}" + (f"; it printed:\n{printed}" if printed else ""))


def wait_for_lock() -> None:
    """Wait until the lock of lckpwdf(3) is free. Raises ``ResourceError`` after ``WAIT`` seconds.

    Does not keep the lock, because the tool takes it itself.
    """
    path, deadline = f"{databases.DIRECTORY}/.pwd.lock", time.monotonic() + WAIT
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as lock:
        while (holder := _holder(lock.fileno())) is not None:
            signals.check_command()
            if time.monotonic() > deadline:
                raise ResourceError(
                    f"{path} is locked by {holder}, also after {WAIT:.0f} s", hint="try again later"
                )
            time.sleep(_PAUSE)


def _holder(descriptor: int) -> str | None:
    """Return the process that holds the lock, or ``None`` if it is free."""
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    if kind == fcntl.F_UNLCK:
        return None
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as name:
        return f"process {pid} ({name.read().strip()})"
    return f"process {pid}" if pid > 0 else "a process elsewhere"


# Processes of a user. While one runs, ``userdel`` rejects the user, and ``usermod`` rejects a new uid or home. Like the
# tools, this code compares the ids of each process, and skips processes with another root directory (containers).

PROC = "/proc"


def require_idle(name: str, uid: int) -> None:
    """Raise ``ResourceError`` if the user has a process. Kills nothing."""
    found = find_process(uid)
    if found is not None:
        pid, command = found
        raise ResourceError(f"user {name} is used by process {pid} ({command})", hint="end it first")


def find_process(uid: int) -> tuple[int, str] | None:
    """Return the id and the name of a process of a user. ``None`` if none exists, or without /proc."""
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
        except (OSError, KeyError):  # the process has ended
            continue
    return None


def _root(pid: str) -> tuple[int, int]:
    found = os.stat(f"{PROC}/{pid}/root")
    return found.st_dev, found.st_ino
