"""Full file systems in words: where, what was to go there, how much that takes, and how much is free."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from puller.errors import ResourceError
from puller.values.units import bytes_text

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def needing_space(where: str, directory: int, what: str, need: Callable[[], int | None]) -> Iterator[None]:
    """Raises ``ResourceError`` in place of *no space left*; ``need`` is asked for the bytes then, if they are known.

    ``directory`` is open, and on the file system in question.
    """
    found = os.statvfs(directory)  # before: afterwards nothing is free
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise

        size, free = need(), bytes_text(found.f_bavail * found.f_frsize)
        space = "space" if size is None else bytes_text(size)
        full = "no space left on the file system" if error.errno == errno.ENOSPC else "no quota left"
        raise ResourceError(f"{where}: {full}: wanted {space} for {what}, {free} were free") from error
