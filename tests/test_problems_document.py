"""docs/problems.md is generated, has each code, and its examples have the problem that they show."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from foundation.problem_pages import load_entries, page
from foundation.problems import ProblemCode
from puller.authoring.lint.check import lint_bundle
from puller.manifest.manifest import Inputs
from puller.manifest.source import MANIFEST, ManifestSource

if TYPE_CHECKING:
    from tests.conftest import Execute

ROOT = Path(__file__).parents[1]
ENTRIES = load_entries()
MANIFESTS = {code: entry.manifest for code, entry in ENTRIES.items() if entry.manifest}
ERRORS = {code: entry.error for code, entry in ENTRIES.items() if entry.error}


def test_every_code_has_an_entry_and_the_page_is_generated() -> None:
    assert set(ENTRIES) == set(ProblemCode)
    assert (ROOT / "docs/problems.md").read_text() == page()


@pytest.mark.parametrize("code", MANIFESTS, ids=str)
def test_the_example_has_the_problem(code: ProblemCode, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(MANIFESTS[code])
    linted = lint_bundle(ManifestSource(tmp_path / MANIFEST, MANIFEST), Inputs({}, {}))
    assert code in {finding.problem.code for finding in linted.findings}


@pytest.mark.parametrize("code", ERRORS, ids=str)
def test_the_error_class_has_the_code(code: ProblemCode) -> None:
    module, _, name = ERRORS[code].rpartition(".")
    assert getattr(import_module(module), name).code is code


def test_help_prints_the_entry(execute: Execute) -> None:
    status, output = execute("help", "unknown-property")
    assert (status, ENTRIES[ProblemCode.UNKNOWN_PROPERTY].meaning in output) == (0, True)
    status, output = execute("help", "unknown-propert")
    assert (status, "did you mean 'unknown-property'" in output) == (64, True)
