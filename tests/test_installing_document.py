"""The page on packages: its commands are valid, and the files that it names exist."""

import fnmatch
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
    assert "    apt install ./dist/puller_*+deb12_*.deb" in README


VERSION = "1.0.0"
RELEASE = [
    *(
        f"{name}_{VERSION}-1+deb{number}_amd64.deb"
        for name in ("puller", "puller-fleet", "puller-s3")
        for number in (12, 13)
    ),
    *(f"{name}-{VERSION}-1.x86_64.rpm" for name in ("puller", "puller-fleet", "puller-s3")),
    *(f"puller-{VERSION}-python{python}-linux-x86_64.tar.gz" for python in ("3.11", "3.13")),
]
"""Packages of a release, which readers have in one directory."""


@pytest.mark.parametrize("name", ["README.md", "docs/installing.md", "docs/upgrading.md"])
def test_patterns_match_one_package_of_a_release(name: str) -> None:
    text = (ROOT / name).read_text()
    patterns = re.findall(r"(?<![/\w])(?:\./)?(?:dist/)?(puller[-_]\S*\*[^\s`]*\.(?:deb|rpm|tar\.gz))", text)
    assert patterns
    matches = {pattern: fnmatch.filter(RELEASE, pattern) for pattern in patterns}
    assert {pattern: files for pattern, files in matches.items() if len(files) != 1} == {}


def test_files_of_the_tree_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"`(packaging/[-a-z./]+[a-z])[ `]", PAGE))
    assert {"packaging/build", "packaging/lock", "packaging/requirements.lock"} <= named
    assert not [path for path in named if not (ROOT / path).exists()]
