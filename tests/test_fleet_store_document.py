"""``docs/fleet-store.md``: its commands run as printed, and its table of states agrees with the code."""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from puller.fleet.views import Condition
from tests.simulators import fleet as simulated

if TYPE_CHECKING:
    from tests.support.stories import Execute

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/fleet-store.md").read_text()
COMMANDS = re.findall(r"^\$ puller (.*)$", PAGE, re.MULTILINE)
QUESTIONS = re.findall(r"`puller (fleet status[^`]*)`", PAGE)


@pytest.fixture(autouse=True)
def _reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    begin = simulated.now() - timedelta(hours=4)
    simulated.deliver(Path("reports"), simulated.wave(simulated.names(12), begin, 2, breaks="RedHat"))


def run(execute: Execute, line: str) -> str:
    line = line.replace("/srv/reports", "reports").replace("/srv/www/fleet", "pages")
    status, output = execute(*shlex.split(line))
    assert status == 0, f"{line}: {output}"
    return output


def test_the_commands_answer(execute: Execute) -> None:
    assert len(COMMANDS) == 3
    for line in COMMANDS:
        assert run(execute, line)
    assert Path("pages/index.html").exists()
    assert len(QUESTIONS) >= 5
    for line in QUESTIONS:
        assert run(execute, line)


def test_the_table_of_states_is_that_of_the_code() -> None:
    words = re.findall(r"^\| `([a-z-]+)`(?:, \*([a-z ]+)\*)? \|", PAGE, re.MULTILINE)
    assert {word for word, _ in words} == set(Condition)
    for word, label in words:
        assert Condition(word).label == (label or word.replace("-", " "))
