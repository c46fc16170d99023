"""docs/problems.md is generated, has each code, and its examples have the problem that they show."""

from __future__ import annotations

import shlex
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from foundation.problem_pages import load_entries, page
from foundation.problems import Problem, ProblemCode, problems_of
from puller.authoring.lint.check import lint_bundle
from puller.manifest.manifest import Inputs
from puller.manifest.source import MANIFEST, ManifestSource

if TYPE_CHECKING:
    from tests.support.stories import Execute

ROOT = Path(__file__).parents[1]
ENTRIES = load_entries()
MANIFESTS = {code: entry.manifest for code, entry in ENTRIES.items() if entry.manifest}
COMMANDS = {code: entry.commands.splitlines() for code, entry in ENTRIES.items() if entry.commands}
ERRORS = {code: entry.error for code, entry in ENTRIES.items() if entry.error}

WITHOUT_EXAMPLE = {
    ProblemCode.CHECKSUM_MISMATCH,  # of a download
    ProblemCode.INTERNAL_ERROR,
    ProblemCode.SYSTEM_ERROR,
    ProblemCode.UNPACKABLE_FILE,  # a link or device
}
"""Codes whose example needs more than texts and commands."""


def test_every_code_has_an_entry_and_the_page_is_generated() -> None:
    assert set(ENTRIES) == set(ProblemCode)
    assert (ROOT / "docs/problems.md").read_text() == page()


def write_files(code: ProblemCode, directory: Path) -> None:
    for name, text in ENTRIES[code].files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


@pytest.mark.parametrize("code", MANIFESTS, ids=str)
def test_the_example_has_the_problem(code: ProblemCode, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(MANIFESTS[code])
    write_files(code, tmp_path)
    linted = lint_bundle(ManifestSource(tmp_path / MANIFEST, MANIFEST), Inputs({}, {}))
    assert code in {name for finding in linted.findings for name in (finding.problem.code, finding.rule)}


@pytest.mark.parametrize("code", COMMANDS, ids=str)
def test_the_last_command_fails_with_the_problem(
    code: ProblemCode, tmp_path: Path, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(code, tmp_path)
    reported: list[Problem] = []

    def words(command: str) -> list[str]:
        return shlex.split(command.replace("$PWD", str(tmp_path)))[1:]

    def report(error: Exception) -> int:
        reported.extend(problems_of(error))
        return 1

    monkeypatch.setattr("puller.cli._report", report)
    *before, last = COMMANDS[code]
    for command in before:
        assert execute(*words(command))[0] == 0
    execute(*words(last))
    assert {problem.code for problem in reported} == {code}


def test_every_code_has_an_example_or_an_error_class() -> None:
    without = set(ENTRIES) - MANIFESTS.keys() - COMMANDS.keys() - ERRORS.keys()
    assert without == WITHOUT_EXAMPLE


@pytest.mark.parametrize("code", ERRORS, ids=str)
def test_the_error_class_has_the_code(code: ProblemCode) -> None:
    module, _, name = ERRORS[code].rpartition(".")
    assert getattr(import_module(module), name).code is code


def test_help_prints_the_entry(execute: Execute) -> None:
    status, output = execute("help", "unknown-property")
    assert (status, ENTRIES[ProblemCode.UNKNOWN_PROPERTY].meaning in output) == (0, True)
    status, output = execute("help", "unknown-propert")
    assert (status, "did you mean 'unknown-property'" in output) == (64, True)
