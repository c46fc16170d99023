"""A plugin for the processes of a run: workers, temporary files, garbage collection, time limits.

* pytest-xdist spreads tests over one worker more than there are processors.
* Each worker first imports its share of the test files, so that after a change each file is compiled once.
* Temporary files are in memory if there is room.
* Compiled code is kept, because otherwise each of thousands of processes would compile Puller.
* A test that exceeds its time limit ends its worker, which prints the stacks of all threads.
"""

import contextlib
import faulthandler
import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MEMORY = Path("/dev/shm")


"""Default directory of ``tmp_path``, without TMPDIR or --basetemp. On a disk, syncs take half of the time."""


stderr = pytest.StashKey[int]()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one more than processors, because many tests wait, and because each worker collects all tests.

    A few files run in this process: starting workers takes longer than their tests.
    """
    are_files = [".py" in argument for argument in config.args]
    return 0 if all(are_files) and len(are_files) < 4 else len(os.sched_getaffinity(0)) + 1


def pytest_configure(config: pytest.Config) -> None:
    config.stash[stderr] = os.dup(2)  # pytest captures the output of a running test
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # set by a shell's `&`, but tests need it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if "TMPDIR" not in os.environ and has_room(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def has_room(directory: Path) -> bool:
    """Return whether the directory has room for all files of the tests and can run programs."""
    with contextlib.suppress(OSError):
        result = os.statvfs(directory)
        is_large = result.f_bavail * result.f_frsize > 2 * 1024**3
        return is_large and not result.f_flag & os.ST_NOEXEC and os.access(directory, os.W_OK)
    return False


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Disable garbage collection, because all collected items stay until the end."""
    gc.disable()
    import_share(session.config)
    yield
    gc.freeze()
    gc.enable()


def import_share(config: pytest.Config) -> None:
    """Import the files that only this worker imports now, which compiles and stores them for the others.

    Compiling all test files takes 12 seconds. Without this, each worker compiles all of them at the same time.
    """
    if worker := getattr(config, "workerinput", None):
        found = (file for argument in config.args for file in Path(argument).rglob("test_*.py"))
        number = int(worker["workerid"].removeprefix("gw"))
        for file in sorted(found)[number :: worker["workercount"]]:
            with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection reports it
                module = file.absolute().relative_to(config.rootpath).with_suffix("")
                importlib.import_module(".".join(module.parts))


@pytest.hookimpl(optionalhook=True)  # of pytest-timeout
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """Let the interpreter print the stacks of all threads and end the process, wherever the test hangs.

    An exception from a signal would not reach every hanging test, and could cause the hang. Another worker continues.
    """
    faulthandler.dump_traceback_later(settings.timeout, exit=True, file=item.config.stash[stderr])
    return True


@pytest.hookimpl(optionalhook=True)  # of pytest-timeout
def pytest_timeout_cancel_timer() -> bool:
    faulthandler.cancel_dump_traceback_later()
    return True


def pytest_enter_pdb() -> None:
    faulthandler.cancel_dump_traceback_later()
