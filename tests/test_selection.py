"""A plain run and ``--left-out`` select each test exactly once, except the generated cases.

With ``--left-out``, each worker starts with slow tests.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ordering import spread_over

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest
from hypothesis import given, settings, strategies

@pytest.mark.representatives(3)
@pytest.mark.parametrize("number", range(7))
def test_matrix(number):
    pass

@pytest.mark.sample(2)
@pytest.mark.representatives(1)
@pytest.mark.parametrize("number", range(5))
def test_sampled(number):
    pass

@pytest.mark.representatives(1)
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.crash), 5])
def test_sweep(step):
    pass

@pytest.fixture
def host():
    pass

@pytest.mark.parametrize("number", range(5))
def test_story(host, number):
    pass

@pytest.mark.everything
def test_slow():
    pass

@pytest.fixture(params=[5, pytest.param(1, marks=pytest.mark.crash)])
def sweep(request):
    pass

@pytest.mark.everything
def test_slow_sweep(sweep):
    pass

@pytest.mark.nginx
def test_tool():
    pass

@given(strategies.integers())
def test_generated(number):
    assert settings().max_examples in (8, 50)

def test_plain():
    pass
"""
GENERATED = "test_it.py::test_generated"


@pytest.mark.everything
def test_left_out_is_the_complement_of_a_plain_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.support.selection"]\n')
    (tmp_path / "test_it.py").write_text(TESTS)
    plain, left_out, everything = (collect(tmp_path, *o) for o in ((), ("--left-out",), ("--everything",)))
    matrix = [f"test_it.py::test_matrix[{number}]" for number in range(7)]
    assert plain == {
        "test_it.py::test_story[0]",
        "test_it.py::test_sampled[0]",
        matrix[0],
        matrix[3],
        matrix[6],
        "test_it.py::test_sweep[5]",
        GENERATED,
        "test_it.py::test_plain",
    }
    assert plain & left_out == {GENERATED}
    assert plain | left_out == everything
    assert len(everything) == 22
    complete = collect(tmp_path, "--everything", "--thorough")
    assert complete - everything == {f"test_it.py::test_sampled[{number}]" for number in (2, 3)}
    assert "test_it.py::test_slow_sweep[5]" not in everything, "it tries a part of the steps of [1]"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=30), st.integers(1, 4))
def test_each_test_is_in_the_part_of_one_worker(sizes: list[tuple[int, int]], workers: int) -> None:
    groups = [(weight, [(group, n) for n in range(size)]) for group, (weight, size) in enumerate(sizes)]
    tests = spread_over(groups, workers)
    assert sorted(tests) == [test for _, group in groups for test in group]
    for _, group in groups:
        in_order = [test for test in tests if test[0] == group[0][0]]
        assert in_order == group


def test_parts_of_workers_start_with_the_slowest_tests() -> None:
    groups = [(0, list("abcdefgh")), (30, ["A"]), (10, ["B"]), (0, list("ijkl")), (20, ["C", "D"])]
    assert "".join(spread_over(groups, 2)) == "Aabcdefg" + "CDBhijkl"
    # Slow tests that exceed the part of a worker are not moved: their file shares its fixtures.
    assert "".join(spread_over([(9, list("CDEF")), (0, ["a"]), (8, ["B"])], 2)) == "CDEF" + "Ba"


def collect(directory: Path, *options: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "-c", f"{ROOT}/pyproject.toml", f"--rootdir={directory}"]
    quiet = ["-p", "no:cacheprovider", "--numprocesses=0", "--collect-only", "--quiet"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *quiet, *options, str(directory)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if "::" in line}
