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


def test_the_readme_builds_and_installs_the_package() -> None:
    assert "    packaging/build deb --release bookworm" in README
    assert "    apt install ./dist/puller_*.deb" in README


def test_files_of_the_tree_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"`(packaging/[-a-z./]+[a-z])[ `]", PAGE))
    assert {"packaging/build", "packaging/lock", "packaging/requirements.lock"} <= named
    assert not [path for path in named if not (ROOT / path).exists()]
