"""Checks of files (existence, type, attributes, content, age), of free space, and of processes.

Processes are found by name or by PID file.
"""

import grp
import os
import pwd
import stat
import time
from collections.abc import Iterator

import msgspec

from bundles.deadline import Deadline
from foundation.quantities import bytes_text
from puller.checks.kinds import Answer, Disk, File, NotCarriedOut, Process, parse_amount
from puller.errors import reason

_PIECE = 1 << 20  # bytes
_TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "fifo",
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
}


def ask(check: File | Disk | Process, deadline: Deadline) -> Answer:
    """Check a file, a file system or processes. Raises ``NotCarriedOut``, ``OSError`` and ``DeadlineError``."""
    if isinstance(check, File):
        return _ask_file(check, deadline)
    return _ask_disk(check) if isinstance(check, Disk) else _ask_processes(check)


def _ask_file(check: File, deadline: Deadline) -> Answer:
    try:
        status = os.stat(check.path, follow_symlinks=check.type != "link")
    except (FileNotFoundError, NotADirectoryError):
        return Answer(
            [f"{check.path} does not exist"] if check.exists else [], f"{check.path} does not exist"
        )
    if not check.exists:
        return Answer([f"{check.path} exists"])
    return Answer(
        [f"{check.path} {sentence}" for sentence in _wrong(check, status, deadline)],
        f"{check.path} exists",
    )


def _wrong(check: File, status: os.stat_result, deadline: Deadline) -> Iterator[str]:
    if check.type is not None and (kind := kind_of(status.st_mode)) != check.type:
        yield f"is a {kind}, expected a {check.type}"
    if check.mode is not None and check.mode.over(status.st_mode) != stat.S_IMODE(status.st_mode):
        yield f"has mode {stat.S_IMODE(status.st_mode):04o}, expected {check.mode}"
    if check.owner is not None and status.st_uid != _id(check.owner, "user"):
        yield f"belongs to {owner_name(status.st_uid)}, expected {check.owner}"
    if check.group is not None and status.st_gid != _id(check.group, "group"):
        yield f"belongs to group {group_name(status.st_gid)}, expected {check.group}"
    age = time.time() - status.st_mtime
    if check.max_age is not None and age > check.max_age:
        yield f"was written {age:.0f} s ago, expected at most {check.max_age:g} s"
    if check.max_age is not None and age < -1:
        yield f"was written {-age:.0f} s in the future"
    if check.min_age is not None and age < check.min_age:
        yield f"was written {age:.0f} s ago, expected at least {check.min_age:g} s"
    if check.min_size is not None and status.st_size < check.min_size:
        yield f"has {status.st_size} bytes, expected at least {check.min_size}"
    if check.contains is not None and not _contains(check.path, check.contains.encode(), deadline):
        yield f"does not contain {check.contains!r}"


def kind_of(mode: int) -> str:
    """Return the word for a file type, from ``st_mode``."""
    return _TYPES.get(stat.S_IFMT(mode), "file of an unknown type")


def owner_name(number: int) -> str:
    """Return the name of a user, or the id if it has no name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def group_name(number: int) -> str:
    """Return the name of a group, or the id if it has no name."""
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _id(provided: str | int, kind: str) -> int:
    if isinstance(provided, int) or (provided.isascii() and provided.isdecimal()):
        return int(provided)
    try:
        return pwd.getpwnam(provided).pw_uid if kind == "user" else grp.getgrnam(provided).gr_gid
    except KeyError:
        raise NotCarriedOut(f"{kind} {provided!r} does not exist") from None


def _contains(path: str, text: bytes, deadline: Deadline) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotCarriedOut(f"{path}: is not a regular file, so its content cannot be checked")
        retained = b""
        while piece := stream.read(_PIECE):
            deadline.verify()
            if text in retained + piece:
                return True
            retained = (retained + piece)[-(len(text) - 1) :] if len(text) > 1 else b""
    return False


def _ask_disk(check: Disk) -> Answer:
    """Query the free space, as unprivileged users see it."""
    disk = os.statvfs(check.path)
    free = disk.f_bavail * disk.f_frsize
    # As in df: space reserved for root counts neither as free nor as usable.
    usable = (disk.f_blocks - disk.f_bfree + disk.f_bavail) * disk.f_frsize
    wrong = []
    if check.free is not None:
        if not usable:
            raise NotCarriedOut(f"{check.path}: cannot determine the size of its file system")
        amount, is_part = parse_amount(check.free)
        if free < (usable * amount / 100 if is_part else amount):
            shown = f"{bytes_text(free)} ({free / usable:.1%})"
            wrong.append(f"{check.path}: {shown} are free, expected {check.free}")
    if check.inodes is not None:
        if not disk.f_files:
            raise NotCarriedOut(f"{check.path}: its file system does not count inodes")
        amount, is_part = parse_amount(check.inodes)
        if disk.f_favail < (disk.f_files * amount / 100 if is_part else amount):
            wrong.append(f"{check.path}: {disk.f_favail} inodes are free, expected {check.inodes}")
    return Answer(wrong, f"{check.path}: {bytes_text(free)} are free")


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


def _ask_processes(check: Process) -> Answer:
    """Read ``/proc``. Raises ``NotCarriedOut`` and ``OSError``."""
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
