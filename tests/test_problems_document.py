"""docs/problems.md is generated and contains each code, and its examples produce the described problem."""

from __future__ import annotations

import ast
import os
import shlex
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from foundation.problem_pages import load_entries, page
from foundation.problems import Problem, ProblemCode, problems_of
from puller.authoring.lint.check import lint_bundle
from puller.manifest.manifest import MANIFEST, Inputs, ManifestSource
from puller.reporting.report import Event, State
from tests.support.rows import each_row

if TYPE_CHECKING:
    from tests.support.stories import Execute

ROOT = Path(__file__).parents[1]
EXAMPLE = "/srv/example"
"""The directory that examples use for absolute paths."""
ENTRIES = load_entries()
MANIFESTS = {code: entry.manifest for code, entry in ENTRIES.items() if entry.manifest}
COMMANDS = {code: entry.commands.splitlines() for code, entry in ENTRIES.items() if entry.commands}
ERRORS = {code: entry.error for code, entry in ENTRIES.items() if entry.error}

PROOFS = {
    ProblemCode.AGENT_FALLBACK: "puller/run/test_agents_own_version.py::"
    "test_fallback_for_a_broken_agent_version_is_reported",
    ProblemCode.ANOTHER_RUN: "puller/state/test_lock.py::test_second_run_is_refused_with_the_lock_holder",
    ProblemCode.CHANGED_MEANWHILE: "puller/resources/files/test_file.py::"
    "test_concurrently_created_file_is_not_overwritten",
    ProblemCode.CHECKSUM_MISMATCH: "puller/resources/test_problem_codes.py::"
    "test_another_checksum_has_its_code",
    ProblemCode.REASON_REMAINS: "puller/run/test_reboots.py::test_remaining_reason_fails_without_a_loop",
    ProblemCode.INTERNAL_ERROR: "puller/engine/test_engine.py::test_failed_resource_does_not_end_the_run",
    ProblemCode.LOOKUP_FAILS: "hiera/tree/test_strategies.py::test_a_strategy_that_does_not_exist_is_refused",
    ProblemCode.METADATA_EXPIRED: "bundles/client/test_attacks.py::"
    "test_expired_metadata_of_each_role_names_the_clock",
    ProblemCode.METADATA_ROLLBACK: "bundles/client/test_attacks.py::test_an_older_timestamp_is_refused",
    ProblemCode.MISSING_DEPENDENCY: "bundles/publisher/test_roles.py::test_missing_extra_is_named",
    ProblemCode.NEEDED_BY_ANOTHER: "puller/resources/packages/test_packages_together.py::"
    "test_a_file_with_a_checksum_is_simulated_too",
    ProblemCode.NOTHING_TO_ENFORCE: "puller/run/test_run.py::test_problem_without_a_bundle_is_reported",
    ProblemCode.OVERSIZED_FILE: "bundles/transport/test_transport.py::"
    "test_an_answer_without_end_is_cut_off_at_the_limit",
    ProblemCode.ROLLBACK_FAILS: "puller/run/test_health_gate.py::"
    "test_when_rolling_back_helps_nothing_the_exit_status_says_so",
    ProblemCode.ROLLED_BACK: "puller/run/test_health_gate.py::test_bundle_that_breaks_a_check_is_rolled_back",
    ProblemCode.RUN_WARNING: "puller/run/test_health_gate.py::"
    "test_a_run_that_was_killed_is_told_and_tried_again",
    ProblemCode.STOPPED: "puller/run/test_run_interrupted.py::test_stopped_bundle_stops_later_bundles",
    ProblemCode.STORE_FAILURE: "bundles/store/test_assembly.py::"
    "test_a_disk_that_fails_meanwhile_leaves_nothing",
    ProblemCode.UNAVAILABLE_TOKEN: "bundles/publisher/test_roles.py::"
    "test_a_key_in_a_token_is_used_by_its_uri",
    ProblemCode.UNTRUSTED_PATH: "puller/system/test_written_by_others.py::"
    "test_writable_trust_anchor_is_refused",
}
"""Tests that produce a problem whose example needs more than texts and commands."""


def test_every_code_has_an_entry_and_the_page_is_generated() -> None:
    assert set(ENTRIES) == set(ProblemCode)
    assert (ROOT / "docs/problems.md").read_text() == page()


def write_files(code: ProblemCode, directory: Path) -> None:
    for name, text in ENTRIES[code].files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text.replace(EXAMPLE, str(directory)))


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
    """A failure of a resource counts as well."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/bin:/bin")
    write_files(code, tmp_path)
    reported: list[Problem] = []

    def words(command: str) -> list[str]:
        return shlex.split(command.replace("$PWD", str(tmp_path)))[1:]

    def report(error: Exception) -> int:
        reported.extend(problems_of(error))
        return 1

    def note(_: object, event: Event, *_others: object) -> None:
        if event.state is State.FAILED:
            reported.extend(event.problems)

    monkeypatch.setattr("puller.cli.output.report_error", report)
    monkeypatch.setattr("puller.reporting.run_log.Log.event", note)
    *before, last = COMMANDS[code]
    for command in before:
        assert execute(*words(command))[0] == 0
    execute(*words(last))
    assert [problem.code for problem in reported][-1:] == [code]


def test_every_code_has_an_example_or_a_proof() -> None:
    assert set(ENTRIES) - MANIFESTS.keys() - COMMANDS.keys() == set(PROOFS)


@each_row("code", PROOFS, ids=str)
def test_the_proof_expects_the_code_or_its_class(code: ProblemCode) -> None:
    path, _, name = PROOFS[code].partition("::")
    tree = ast.parse((ROOT / "tests" / path).read_text())
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    words = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    words |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    assert words & {code.name, ERRORS.get(code, "").rpartition(".")[2]}


@each_row("code", ERRORS, ids=str)
def test_the_error_class_has_the_code(code: ProblemCode) -> None:
    module, _, name = ERRORS[code].rpartition(".")
    assert getattr(import_module(module), name).code is code


def test_help_prints_the_entry(execute: Execute) -> None:
    status, output = execute("help", "unknown-property")
    assert (status, ENTRIES[ProblemCode.UNKNOWN_PROPERTY].meaning in output) == (0, True)
    status, output = execute("help", "unknown-propert")
    assert (status, "did you mean 'unknown-property'" in output) == (64, True)
