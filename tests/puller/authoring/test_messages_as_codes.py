"""All decisions stay the same if the text of every problem is its code alone."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import foundation.formatting
import foundation.problems
from foundation.problems import Problem, ProblemCode
from puller.authoring.lint.check import lint_bundle
from puller.cli.author.bundle import refuse_broken
from puller.errors import PullerError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import MANIFEST, Inputs, ManifestSource
from tests.puller.authoring.lint.test_broken_bundles import BROKEN, FINE, SUSPICIOUS
from tests.puller.authoring.lint.test_mutations import BUNDLES, MACHINES, ROOT, SEED, mutations

DECRYPT = "resources: [{exec: [{decrypt-backup: {command: /usr/bin/true, timeoutt: 5s}}]}]\n"
MOST = 2  # mutations for each bundle
UNDECLARED = "resources: [{exec: [{a: {command: /usr/bin/true, require: ['exec#b']}}]}]\n"


class Coded:
    """Replaces the text of problems, both in their formatting and in their creation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __enter__(self) -> None:
        def code(problem: Problem, **options: Any) -> str:
            del options
            return str(problem.code)

        def made(problem: Problem) -> None:
            msgspec.structs.force_setattr(problem, "message", str(problem.code))
            msgspec.structs.force_setattr(problem, "hint", "")

        self._monkeypatch.setattr(foundation.formatting, "_format", code)
        self._monkeypatch.setattr(foundation.problems, "_mask", made)

    def __exit__(self, *_: object) -> None:
        self._monkeypatch.undo()


def decisions(directory: Path, facts: dict[str, Any]) -> list[object]:
    """Return the decisions of lint, build or publish, and apply about a bundle."""
    source, inputs = ManifestSource(directory / MANIFEST, MANIFEST), Inputs(facts, {})
    linted = [
        {
            (item.rule, item.severity, item.place.order)
            for item in lint_bundle(source, inputs, of_any_host=of_any).findings
        }
        for of_any in (False, True)
    ]
    refused: list[object] = []
    for action in (lambda: refuse_broken([directory]), lambda: load_manifest(source.path, MANIFEST, inputs)):
        try:
            manifest: Any = action()
            refused.append(len(manifest.declarations) if manifest else None)
            refused.append([bool(item.failures) for item in manifest.declarations] if manifest else None)
        except PullerError as error:
            refused.append((type(error), error.exit_status, {problem.code for problem in error.problems}))
    return [*linted, *refused]


BROKEN_TEXTS = {name: files for name, (files, _) in BROKEN.items()}
OTHER_TEXTS = {
    "a name with a word of other messages": DECRYPT,
    "a reference to another bundle": UNDECLARED,
    **FINE,
    **{name: text for name, (text, _) in SUSPICIOUS.items()},
}
FILES = {**BROKEN_TEXTS, **{name: {MANIFEST: text} for name, text in OTHER_TEXTS.items()}}


@pytest.mark.representatives(10)
@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_decisions_about_a_bundle_need_no_text(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before = decisions(tmp_path, {})
    with Coded(monkeypatch):
        problem = Problem(code=ProblemCode.INVALID_VALUE, message="text")
        assert (str(problem), problem.message) == ("invalid-value", "invalid-value")
        assert decisions(tmp_path, {}) == before


@pytest.mark.parametrize("bundle", BUNDLES, ids=str)
@pytest.mark.representatives(1)
def test_decisions_about_mutations_of_examples_need_no_text(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Path(shutil.copytree(ROOT, tmp_path / "examples")) / bundle
    for mutation in itertools.islice(mutations(directory, SEED), MOST):
        original = mutation.file.read_text()
        mutation.file.write_text(mutation.text)
        before = decisions(directory, MACHINES[0])
        with Coded(monkeypatch):
            assert decisions(directory, MACHINES[0]) == before, str(mutation)
        mutation.file.write_text(original)
