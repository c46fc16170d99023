"""The holder of a lock of fcntl(2) on a file. Nothing here takes a lock, so other programs never wait for Puller."""

import contextlib
import fcntl
import os
import struct

_LOCK = struct.Struct("hhqqi")  # struct flock of Linux on 64 bits: type, whence, start, length, pid


def find_holder(descriptor: int) -> str | None:
    """Return the process that holds a lock on the open file, or ``None`` if it is free. Raise ``OSError``."""
    requested = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, requested))
    if kind == fcntl.F_UNLCK:
        return None
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as name:
        return f"process {pid} ({name.read().strip()})"
    return f"process {pid}" if pid > 0 else "a process elsewhere"
