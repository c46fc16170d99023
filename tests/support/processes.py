"""A plugin for the processes of a run: workers, temporary files, garbage collection, time limits.

* pytest-xdist spreads tests over one worker more than there are processors.
* Temporary files are in memory if there is room.
* A test that exceeds its time limit ends its worker, which prints the stacks of all threads.
"""

import contextlib
import faulthandler
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MEMORY = Path("/dev/shm")


"""Where ``tmp_path`` is, unless TMPDIR or --basetemp say otherwise: on a disk, half of the time goes to syncs."""


stderr = pytest.StashKey[int]()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one more than processors, because many tests wait, and because each worker collects all tests.

    A few files run in this process: starting workers takes longer than their tests.
    """
    are_files = [".py" in argument for argument in config.args]
    return 0 if all(are_files) and len(are_files) < 4 else len(os.sched_getaffinity(0)) + 1


def pytest_configure(config: pytest.Config) -> None:
    config.stash[stderr] = os.dup(2)  # while a test runs, its output is caught
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's `&`; tests interrupt what they start
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "TMPDIR" not in os.environ and has_room(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def has_room(directory: Path) -> bool:
    """Whether all files of the tests fit in there, and those that are programs can be started."""
    with contextlib.suppress(OSError):
        found = os.statvfs(directory)
        is_large = found.f_bavail * found.f_frsize > 2 * 1024**3
        return is_large and not found.f_flag & os.ST_NOEXEC and os.access(directory, os.W_OK)
    return False


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """All that is collected stays until the end, so that nothing is gained by searching it for garbage."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)  # of pytest-timeout
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """The interpreter itself prints the stacks of all threads and ends the process, whatever the test hangs in.

    An exception from a signal would not reach every hanging test, and may be what made it hang. Another worker goes on
    with the rest.
    """
    faulthandler.dump_traceback_later(settings.timeout, exit=True, file=item.config.stash[stderr])
    return True


@pytest.hookimpl(optionalhook=True)  # of pytest-timeout
def pytest_timeout_cancel_timer() -> bool:
    faulthandler.cancel_dump_traceback_later()
    return True


def pytest_enter_pdb() -> None:
    faulthandler.cancel_dump_traceback_later()
