"""Check of running processes, by name or by PID file."""

import os
from collections.abc import Iterator

import msgspec

from bundles.deadline import Deadline
from puller.checks.kinds import Answer, NotCarriedOut, Process
from puller.errors import reason

_LONGEST_NAME = 15  # characters; the kernel truncates longer names
_LONGEST_FILE = 64  # bytes


class Running(msgspec.Struct, frozen=True):
    """One process."""

    number: int
    name: str
    program: str
    """The base name of its first argument, if it has one."""

    def is_called(self, name: str) -> bool:
        """Return whether the process has this name.

        Compare a long name with the truncated name and the first argument.
        """
        if len(name.encode()) <= _LONGEST_NAME:
            return self.name == name
        return name.encode()[:_LONGEST_NAME] == self.name.encode() and self.program == name


def ask(check: Process, deadline: Deadline) -> Answer:
    """Read ``/proc``. Raises ``NotCarriedOut`` and ``OSError``."""
    del deadline
    if check.pidfile is not None:
        matches = _of_pid_file(check.pidfile)
        title = f"process of {check.pidfile}"
    else:
        matches = list(running())
        title = "process"
    if check.name is not None:
        matches = [process for process in matches if process.is_called(check.name)]
        title = f"{title} {check.name}"
    count = len(matches)
    summary = f"{title}: {count} running"
    if check.count is None:
        return Answer([] if count else [f"{summary}, expected one or more"], summary)
    return Answer([] if count == check.count else [f"{summary}, expected {check.count}"], summary)


def running() -> Iterator[Running]:
    """Yield all processes except zombies and this one.

    Raises ``NotCarriedOut`` if other users' processes are hidden.
    """
    if not os.path.exists("/proc/1/comm"):
        raise NotCarriedOut("the processes of other users are hidden, so run this as root")
    for entry in os.listdir("/proc"):
        if (
            (entry.isascii() and entry.isdecimal())
            and int(entry) != os.getpid()
            and (process := _look(int(entry))) is not None
        ):
            yield process


def _of_pid_file(path: str) -> list[Running]:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            text = stream.read(_LONGEST_FILE) or b""
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise NotCarriedOut(f"{path}: {reason(error)}") from error
    first = text.split()[:1]
    if not first or not first[0].isdigit() or int(first[0]) == 0:
        raise NotCarriedOut(f"{path}: does not contain a process ID")
    if not os.path.exists("/proc/1/comm"):
        raise NotCarriedOut("the processes of other users are hidden, so run this as root")
    process = _look(int(first[0]))
    return [] if process is None else [process]


def _look(number: int) -> Running | None:
    """Return a process, ``None`` if it has ended."""
    try:
        with open(f"/proc/{number}/stat", "rb") as stream:
            text = stream.read()
        with open(f"/proc/{number}/cmdline", "rb") as stream:
            first = stream.read(4096).partition(b"\0")[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may contain parentheses and blanks, so it ends at the last parenthesis.
    before, _, remainder = text.rpartition(b")")
    if remainder.split()[:1] in ([b"Z"], [b"X"]):
        return None
    name = before.partition(b"(")[2]
    return Running(number, os.fsdecode(name), os.path.basename(os.fsdecode(first)))
