"""Jobs that start without click, and the end of the process."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from puller.cli import find_job
from puller.cli.command_table import run_click
from puller.run import jobs
from tests.support.rows import each_row


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options of the started jobs."""
    options: list[Any] = []

    def start(provided: Any, *_: object) -> int:
        options.append(provided)
        return 0

    monkeypatch.setattr(jobs, "run", start)
    monkeypatch.setattr(jobs, "apply", start)
    return options


@pytest.mark.parametrize(
    "line",
    ["run", "run --as-user", "run --config a.yaml", "apply web", "apply web --state-directory here"],
)
def test_job_without_click_has_the_options_of_click(line: str, started: list[Any]) -> None:
    job = find_job(line.split())
    assert job is not None
    job()
    run_click(line.split())
    first, second = (msgspec.structs.asdict(options) for options in started)
    assert first == second
    # The configuration of a user has its own type of path.
    assert [type(value) for value in first.values()] == [type(value) for value in second.values()]


@each_row(
    "line", ["", "--help", "run --config", "run --config --noop", "run web", "apply", "apply --help", "facts"]
)
def test_other_command_lines_are_left_to_click(line: str) -> None:
    assert find_job(line.split()) is None


@pytest.mark.parametrize(("call", "frozen"), [("main()", True), ("main(['--version'])", False)])
def test_only_a_process_that_ends_keeps_its_cycles(call: str, frozen: bool) -> None:
    program = (
        "import gc, sys\n"
        "from puller.cli import main\n"
        "sys.argv = ['puller', '--version']\n"
        f"try:\n    {call}\n"
        f"except SystemExit:\n    sys.exit(0 if bool(gc.get_freeze_count()) is {frozen} else 'wrong count')\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert completed.returncode == 0, completed.stderr
