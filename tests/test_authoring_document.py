"""``docs/authoring.md``: its commands, run in order, print the shown output, and its workflow is valid."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from tests.support.stories import Execute

PAGE = (Path(__file__).parents[1] / "docs/authoring.md").read_text()
CONSOLES = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
WORKFLOW = re.findall(r"^```yaml\n(name: .*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
CHANGES = 2


def commands(console: str) -> list[tuple[str, str]]:
    """Return each command of a block with the output shown below it."""
    return [
        (match[1], match[2]) for match in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", console, re.MULTILINE)
    ]


def say(execute: Execute, command: str) -> tuple[int, str]:
    words = shlex.split(command)
    if words[0] == "puller":
        return execute(*words[1:])
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return 0, done.stdout


def test_documented_commands_work(execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet").mkdir()
    for command, shown in (pair for console in CONSOLES for pair in commands(console)):
        status, output = say(execute, command)
        assert status == (CHANGES if " preview " in command else 0), f"{command}\n{output}"
        if shown:
            assert re.sub(r", in [\d.]+ s$", "", output, flags=re.MULTILINE) == shown, command
        if " preview " in command:
            assert "+workers = 4" in output
            assert "runs, because of file#/opt/web-example/settings.conf" in output


def test_the_commands_of_the_workflow_work(
    execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the workflow's Puller commands on the two directories that the workflow has at that point."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet").mkdir()
    (tmp_path / "base").mkdir()
    assert execute("bundle", "new", "web")[0] == 0
    assert execute("bundle", "new", "web", "--directory", "base/web")[0] == 0
    assert execute("facts", "--of", "debian-12", "--save", "fleet/web01.json")[0] == 0
    steps = [step.get("run", "") for step in yaml.safe_load(WORKFLOW)["jobs"]["web"]["steps"]]
    typed = [line for step in steps for line in step.splitlines() if line.startswith("puller ")]
    assert [line.split()[1] for line in typed] == ["lint", "test", "preview"]
    for line in typed:
        status, output = say(execute, line.partition(" || ")[0])
        assert status == 0, f"{line}\n{output}"
    assert (tmp_path / "preview.md").read_text()
    assert (tmp_path / "tests.xml").read_text().startswith("<")
