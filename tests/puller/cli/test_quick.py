"""The quick reading of a command line and click's come to the same; what is not plain is click's alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puller.cli.commands import run_click
from puller.cli.quick import find_job
from puller.run import jobs

PLAIN = [
    "run",
    "run --noop",
    "run --offline -q",
    "run --config here.yaml -v",
    "run --detailed-exitcodes --no-diff -q",
    "run --as-user --noop",
    "run --config here.yaml --as-user",
    "apply --as-user web",
    "apply web",
    "apply --noop web --diff",
    "apply web --fact a=b --fact c=d --verbose",
    "apply --facts FILE --data FILE --data FILE web",
    "apply web --set a.b=1 --set c=[d] --private-key FILE",
    "apply web --facts-dir DIR --state-directory DIR --quiet",
    "apply --diff --no-diff web",
    "apply --config here.yaml web",
]

NOT_PLAIN = [
    "",
    "--help",
    "run --help",
    "run web",
    "apply web --offline",
    "run --config",
    "run --config=here.yaml",
    "run --nop",
    "run -vq",
    "apply",
    "apply web db",
    "apply web --fact",
    "apply web --fact --noop",
    "apply web --set -1",
    "apply --facts no-such-file web",
    "apply -- web",
    "facts",
    "hiera lookup a",
]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options that the jobs were started with."""
    options: list[Any] = []

    def note(given: Any, *_: object) -> int:
        options.append(given)
        return 0

    monkeypatch.setattr(jobs, "run", note)
    monkeypatch.setattr(jobs, "apply", note)
    return options


@pytest.mark.parametrize("line", PLAIN)
def test_both_readings_of_a_plain_line_are_the_same(line: str, seen: list[Any], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    arguments = line.replace("FILE", str(tmp_path / "file")).replace("DIR", str(tmp_path)).split()
    job = find_job(arguments)
    assert job is not None
    job()
    run_click(arguments)
    quick, click = (msgspec.structs.asdict(options) for options in seen)
    assert quick == click
    # The path of a user's configuration is of a type of its own.
    assert [type(value) for value in quick.values()] == [type(value) for value in click.values()]


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_click(line: str) -> None:
    assert find_job(line.split()) is None


@pytest.mark.parametrize(("call", "is_kept"), [("main()", True), ("main(['--version'])", False)])
def test_a_process_that_ends_does_not_look_for_circles_among_all_that_it_has_made(
    call: str, is_kept: bool
) -> None:
    """One that goes on, as a program does that calls the command, has to."""
    program = (
        "import gc, sys\n"
        "from puller.cli import main\n"
        "sys.argv = ['puller', '--version']\n"
        f"try:\n    {call}\n"
        f"except SystemExit:\n    sys.exit(0 if bool(gc.get_freeze_count()) is {is_kept} else 'it is not so')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
