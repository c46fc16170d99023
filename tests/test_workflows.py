"""The workflows in ``.github`` run the checks of the gate, with pinned actions and the least permissions."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yaml"))
CHECKS = set(re.findall(r"^check_(\w+)\(\)", (ROOT / ".ci/check").read_text(), re.MULTILINE))
PINNED = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$")
WRITING_JOBS = {"release.yaml draft"}
PAGES = ("SECURITY.md", "CODE_OF_CONDUCT.md", "MAINTAINERS.md", "CONTRIBUTING.md")


def jobs() -> Iterator[tuple[Path, str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            yield path, name, job


def commands() -> Iterator[str]:
    for _, _, job in jobs():
        yield from (step["run"] for step in job["steps"] if "run" in step)


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([ROOT / ".ci/check", *arguments], capture_output=True, text=True, check=False)


def test_there_is_a_workflow_for_each_purpose() -> None:
    assert [path.stem for path in WORKFLOWS] == ["checks", "packages", "release", "tests"]


def test_workflows_call_checks_that_exist() -> None:
    matrix = [job["strategy"]["matrix"].get("check", []) for _, _, job in jobs() if "strategy" in job]
    called = {name for command in commands() for name in re.findall(r"\.ci/check (\w+)", command)}
    assert called | {name for names in matrix for name in names} <= CHECKS
    assert {
        "install",
        "tests",
        "format",
        "lint",
        "types",
        "documents",
        "workflows",
        "packages",
        "release",
    } <= (called | {name for names in matrix for name in names})


def test_gate_calls_the_same_checks() -> None:
    called = set(re.findall(r"\.ci/check (\w+)", (ROOT / ".ci/run").read_text()))
    assert {"install", "format", "lint", "types"} <= called <= CHECKS


def test_workflows_contain_no_command_of_their_own() -> None:
    """Besides the checks, they install system packages and draft a release."""
    assert [text for text in commands() if not re.match(r"(sudo )?\.ci/check |sudo apt-get |gh ", text)] == []


def test_pythons_are_those_of_the_classifiers() -> None:
    pythons = next(job["strategy"]["matrix"]["python"] for path, _, job in jobs() if path.stem == "tests")
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert pythons == classifiers


def test_actions_are_pinned_by_hash() -> None:
    lines = [line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    assert [line for line in lines if not PINNED.search(line)] == []


def test_jobs_have_a_time_limit_and_least_permissions() -> None:
    for path in WORKFLOWS:
        assert yaml.safe_load(path.read_text())["permissions"] == {}, path
    for path, name, job in jobs():
        assert job["timeout-minutes"] <= 60, name
        writes = "write" in job["permissions"].values()
        assert writes is (f"{path.name} {name}" in WRITING_JOBS), name


def test_unknown_check_names_the_others() -> None:
    done = run("nothing")
    assert done.returncode == 64
    assert all(name in done.stderr for name in CHECKS)


def test_version_check_refuses_another_tag() -> None:
    version = re.findall('^__version__ = "(.*)"$', (ROOT / "puller/version.py").read_text(), re.MULTILINE)[0]
    assert run("version", f"v{version}").returncode == 0
    assert run("version", "v999").returncode == 1


@pytest.mark.everything
@pytest.mark.skipif(not (ROOT / ".venv/bin/zizmor").exists(), reason="needs zizmor, of the extra check")
def test_linters_accept_the_files_in_github() -> None:
    done = run("workflows")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", PAGES)
def test_links_of_the_pages_for_contributors_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / name).read_text()):
        assert (ROOT / target).exists(), target


def test_owners_name_no_account_of_a_stranger() -> None:
    """A rule may only name the team of the organisation that MAINTAINERS.md names."""
    lines = (ROOT / ".github/CODEOWNERS").read_text().splitlines()
    teams = {word for line in lines if not line.startswith("#") for word in line.split()[1:]}
    assert [team for team in teams if team not in (ROOT / "MAINTAINERS.md").read_text()] == []
    assert any("@ORGANISATION/maintainers" in line for line in lines) is not bool(teams)
