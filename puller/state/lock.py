"""One run at a time: a lock that ends with its holder, whatever way that ends."""

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
    """Hold the lock in ``directory`` while the block runs.

    Raises ``BusyError`` at once when another process holds it, ``ConfigurationError`` when it cannot be made. The
    descriptor is not inherited, so a child that lives on does not keep the lock.
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
            raise BusyError(f"{directory}/lock: another run is at work{by}; nothing was done") from None
        with contextlib.suppress(OSError):  # it only tells people who holds the lock
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _require_plain(descriptor: int, path: Path) -> None:
    """What is written into a lock that has another name, too, would be written into a file of somebody else."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"{path}: is not a regular file", hint="remove it when no run is at work")
    if found.st_nlink != 1:
        raise ConfigurationError(
            f"{path}: has {found.st_nlink} names", hint="remove it when no run is at work"
        )
