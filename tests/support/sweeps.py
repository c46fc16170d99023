"""The type of the fixture ``sweep``, which interrupts each step of an action, and the kill of a process at a step."""

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from typing import Any

Sweep = Callable[[Callable[[int], bool]], int]

_CALLS = ("open", "mkdir", "fchmod", "fsync", "rename", "unlink", "rmdir")


def killed_before(number: int, story: Callable[[], object]) -> bool:
    """Run ``story`` in a process, kill it before change ``number`` to the disk, and return whether it was killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            calls = iter(range(number))
            for name in _CALLS:
                setattr(os, name, mortal(getattr(os, name), calls))
            story()
            status = 0
        except BaseException:  # noqa: BLE001  nothing may run on in the child; the status tells the parent
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
    return status != 0


def mortal(call: Any, calls: Iterator[int]) -> Any:
    def instead(*arguments: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)

    return instead
