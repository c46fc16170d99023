"""The page on packages: its commands are valid, and the files that it names exist."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/installing.md").read_text()
README = (ROOT / "README.md").read_text()
BUILDS = re.findall(r"^    packaging/build (.*)$", PAGE + README, re.MULTILINE)


@pytest.mark.parametrize("line", BUILDS)
def test_a_command_that_builds_is_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "packaging")
    from steps.command_line import make_parser

    options = make_parser().parse_args(shlex.split(line, comments=True))
    assert options.formats


def test_there_are_such_commands() -> None:
    assert len(BUILDS) >= 3


def test_the_commands_without_a_package_are_those_of_the_readme() -> None:
    lines = re.findall(r"^    (?:python3 -m venv|/opt/puller/bin/pip) .*$", PAGE, re.MULTILINE)
    assert len(lines) == 2
    assert all(line in README for line in lines)


def test_files_of_the_tree_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"`(packaging/[-a-z./]+[a-z])[ `]", PAGE))
    assert {"packaging/build", "packaging/lock", "packaging/requirements.lock"} <= named
    assert not [path for path in named if not (ROOT / path).exists()]
