"""Check of a file: its existence, type, attributes, content and age."""

import grp
import os
import pwd
import stat
import time
from collections.abc import Iterator

from bundles.deadline import Deadline
from puller.checks.kinds import Answer, File, NotCarriedOut

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


def ask(check: File, deadline: Deadline) -> Answer:
    """Check the file. Raises ``NotCarriedOut``, ``OSError`` and ``DeadlineError``."""
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
