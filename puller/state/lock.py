"""One run at a time: a lock that ends with the process of its holder."""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from puller.errors import BusyError, ConfigurationError, file_problem

_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@contextlib.contextmanager
def only_run(directory: Path) -> Iterator[None]:
    """Hold the lock in ``directory`` during the block.

    Raise ``BusyError`` at once if another process holds it, ``ConfigurationError`` if it cannot be created. Child
    processes do not inherit the descriptor, so they cannot keep the lock.
    """
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", _OPEN, 0o600)
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be opened", where=directory / "lock")) from error
    try:
        _require_plain(descriptor, directory / "lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            by = f" (process {holder})" if (holder.isascii() and holder.isdecimal()) else ""
            raise BusyError(f"{directory}/lock: another run is active{by}, so nothing was done") from None
        with contextlib.suppress(OSError):  # only informs people about the holder
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _require_plain(descriptor: int, path: Path) -> None:
    """Raise ``ConfigurationError`` for a lock with several links: writing to it could change another user's file."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise ConfigurationError(f"{path}: is not a regular file", hint="remove it while no run is active")
    if status.st_nlink != 1:
        raise ConfigurationError(
            f"{path}: has {status.st_nlink} names", hint="remove it while no run is active"
        )
