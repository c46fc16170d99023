"""Only one run holds the lock, which ends with its process."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from puller.errors import BusyError, ConfigurationError
from puller.state import only_run

HOLD = """\
import sys, time, pathlib
from puller.state import only_run
with only_run(pathlib.Path(sys.argv[1])):
"""


def hold(directory: Path, then: str) -> "subprocess.Popen[str]":
    program = HOLD + f"    {then}\n"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.attack("overlap.two-runs")
def test_second_run_is_refused_with_the_lock_holder(tmp_path: Path) -> None:
    with hold(tmp_path, "print('held', flush=True); time.sleep(60)") as holder:
        with (
            pytest.raises(
                BusyError, match=rf"another run is active \(process {holder.pid}\), so nothing was done"
            ),
            only_run(tmp_path),
        ):
            pass
        holder.kill()


@pytest.mark.attack("overlap.killed-holder")
def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    with hold(tmp_path, "print('held', flush=True); time.sleep(60)") as holder:
        holder.kill()
    with only_run(tmp_path):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


@pytest.mark.attack("overlap.child")
def test_a_child_that_lives_on_does_not_keep_the_lock(tmp_path: Path) -> None:
    then = "import subprocess; child = subprocess.Popen(['sleep', '300'], close_fds=False); "
    then += "print('held', flush=True); print(child.pid, flush=True)"
    with hold(tmp_path, then) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            holder.wait(timeout=60)
            with only_run(tmp_path):
                os.kill(child, 0)  # still alive
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "lock").symlink_to("precious")
    with pytest.raises(ConfigurationError, match="lock: cannot be opened"), only_run(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "precious"


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_hard_link(path: Path) -> None:
    (path.parent / "other").write_bytes(b"of somebody else")
    path.hardlink_to(path.parent / "other")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_fifo, "lock: is not a regular file; remove it while no run is active"),
        (make_hard_link, "lock: has 2 names; remove it while no run is active"),
        (Path.mkdir, "lock: cannot be opened: is a directory"),
        (lambda path: path.symlink_to(path.parent / "other"), "lock: cannot be opened: too many levels of"),
    ],
)
def test_special_file_at_the_lock_path_is_reported(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path / "lock")
    with pytest.raises(ConfigurationError, match=message), only_run(tmp_path):
        pytest.fail("it holds no lock")
    assert not (tmp_path / "other").exists() or (tmp_path / "other").read_bytes() == b"of somebody else"
