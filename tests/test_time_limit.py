"""A hanging test fails after its time limit with the stacks of all threads, and the other tests run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HANGING = """
import threading

import pytest

def waits(gate):
    gate.wait()

def test_that_hangs():
    threading.Thread(target=waits, args=(threading.Event(),), daemon=True).start()
    lock = threading.Lock()
    with lock:
        lock.acquire()

def test_that_is_well():
    pass
"""


@pytest.mark.everything
def test_hanging_test_ends_with_stacks_of_all_threads(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.support.processes"]\n')
    (tmp_path / "test_it.py").write_text(HANGING)
    options = ["-c", f"{ROOT}/pyproject.toml", f"--rootdir={tmp_path}", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "--numprocesses=1", "-o", "timeout=1", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    assert "1 failed, 1 passed" in done.stdout
    for function in ("waits", "test_that_hangs"):
        assert f'test_it.py", line {line_of(function)} in {function}' in done.stderr


def line_of(function: str) -> int:
    """Return the last line of the function, at which it hangs."""
    lines = HANGING.splitlines()
    begin = lines.index(next(line for line in lines if line.startswith(f"def {function}(")))
    return lines.index("", begin)
