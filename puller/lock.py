"""One run at a time: a lock that ends with its holder, whatever way that ends."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from puller.errors import BusyError, ConfigurationError
from puller.system import reason


@contextlib.contextmanager
def only_run(directory: Path) -> Iterator[None]:
    """Hold the lock in ``directory`` while the block runs.

    Raises ``BusyError`` at once when another process holds it, ``ConfigurationError`` when it cannot be made. The
    descriptor is not inherited, so a child that lives on does not keep the lock.
    """
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{directory}/lock: cannot be opened: {reason(error)}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            by = f" (process {holder})" if holder.isdecimal() else ""
            raise BusyError(f"{directory}/lock: another run is at work{by}; nothing was done") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
