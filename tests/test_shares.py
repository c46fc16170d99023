"""Workers with shares of the test files run each test once, also if a worker ends at a test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """
pytest_plugins = ["tests.attack_results", "tests.support.selection", "tests.support.shares"]
"""
ENDING = """
import os

def test_before():
    pass

def test_ending():
    os._exit(3)

def test_after():
    pass
"""


@pytest.mark.everything
def test_each_test_runs_once_even_if_a_worker_ends(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in "abcde":
        (tmp_path / f"test_{name}.py").write_text(
            f"def test_it():\n    open(r'{tmp_path}/{name}', 'x').close()\n"
        )
    (tmp_path / "test_ending.py").write_text(ENDING)
    command = [sys.executable, "-m", "pytest", "-c", f"{ROOT}/pyproject.toml", f"--rootdir={tmp_path}", "-q"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--numprocesses=2", str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 7 passed" in done.stdout
    assert "crashed while running 'test_ending.py::test_ending'" in done.stdout
    assert all((tmp_path / name).exists() for name in "abcde")
