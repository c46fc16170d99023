"""Files that this process may read, by Landlock of the kernel; it may write, make, remove and execute none.

Source: Documentation/userspace-api/landlock.rst of the kernel. Kernels without it (before 5.13, or where it is switched
off) leave files to the user and the capabilities of the process.
"""

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_VERSION = 1
_PATH_BENEATH = 1
_READ_FILE, _READ_DIRECTORY = 1 << 2, 1 << 3
_BIND_TCP = 1
_SCOPES = 0b11  # abstract sockets and signals, of processes outside
# How many rights to files a version of the interface knows, beginning with the first.
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_MOST_RIGHTS = 16


def version(libc: ctypes.CDLL) -> int:
    """The version of the kernel's interface; 0 where there is none."""
    return max(int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))), 0)


def restrict(libc: ctypes.CDLL, readable: Iterable[str]) -> bool:
    """Allow this process to read what is below ``readable``, and nothing else; what is not there is left out.

    Ports are not listened on either, and other processes not signalled, where the kernel can say so. Returns whether
    the rules are in force: a kernel without Landlock has none. Raises ``OSError`` when the kernel refuses.
    """
    found = version(libc)
    if found == 0:
        return False
    rights = (1 << _RIGHTS.get(found, _MOST_RIGHTS)) - 1
    words = [rights, _BIND_TCP, _SCOPES][: 1 if found < 4 else 2 if found < 6 else 3]
    attributes = b"".join(word.to_bytes(8, "little") for word in words)
    ruleset = _called(libc, _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    try:
        for path in readable:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                _allow(libc, ruleset, path)
        _called(libc, _RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    finally:
        os.close(ruleset)
    return True


def _allow(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        rights = _READ_FILE | (_READ_DIRECTORY if is_directory else 0)
        rule = rights.to_bytes(8, "little") + descriptor.to_bytes(4, "little")
        _called(libc, _ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint(0))
    finally:
        os.close(descriptor)


def _called(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    answer = int(libc.syscall(number, *arguments))
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return answer
