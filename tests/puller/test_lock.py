"""One run at a time; the lock ends with its holder."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from puller.errors import BusyError, ConfigurationError
from puller.lock import only_run

HOLD = (
    "import sys, time, pathlib; from puller.lock import only_run\nwith only_run(pathlib.Path(sys.argv[1])):\n"
)


def hold(directory: Path, then: str) -> "subprocess.Popen[str]":
    program = HOLD + f"    {then}\n"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_run_is_refused_at_once_and_told_who_holds_the_lock(tmp_path: Path) -> None:
    with hold(tmp_path, "print('held', flush=True); time.sleep(60)") as holder:
        with (
            pytest.raises(
                BusyError, match=rf"another run is at work \(process {holder.pid}\); nothing was done"
            ),
            only_run(tmp_path),
        ):
            pass
        holder.kill()


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    with hold(tmp_path, "print('held', flush=True); time.sleep(60)") as holder:
        holder.kill()
    with only_run(tmp_path):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_a_child_that_lives_on_does_not_keep_the_lock(tmp_path: Path) -> None:
    then = "import subprocess; subprocess.Popen(['sleep', '5'], close_fds=False); print('held', flush=True)"
    with hold(tmp_path, then) as holder:
        holder.wait(timeout=10)
        started = time.monotonic()
        with only_run(tmp_path):
            assert time.monotonic() - started < 4


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "lock").symlink_to("precious")
    with pytest.raises(ConfigurationError, match="lock: cannot be opened"), only_run(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "precious"
