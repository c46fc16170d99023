"""The executable bit of a file in the bundle is set on every host, whatever the previous state.

* A host with history ends in the same state as a fresh host, also if a user has changed the bit.
* The dry run predicts the change, and a second run changes nothing.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from puller.values.file_mode import FileMode

OURS: dict[str, Any] = {}


def file(target: Path, mode: str) -> dict[str, Any]:
    return {"file": {str(target / "run"): {**OURS, "source": "tree/run", "mode": mode}}}


def tree(target: Path, mode: str) -> dict[str, Any]:
    provided = {**OURS, "ensure": "directory", "source": "tree", "recurse": True, "mode": mode}
    return {"file": {str(target): provided}}


def scaffold(target: Path, mode: str) -> dict[str, Any]:
    return {"scaffold": {str(target): {"source": "tree", **({"mode": mode} if mode else {})}}}


CASES = {
    "file with X": (file, "u=rwX,go=rX", 0o755, 0o644),
    "file with changes": (file, "go-w", 0o755, 0o644),
    "file with a mask": (file, "x4x", 0o745, 0o644),
    "file with digits": (file, "0755", 0o755, 0o755),
    "tree with X": (tree, "u=rwX,go=rX", 0o755, 0o644),
    "tree with changes": (tree, "o-r", 0o750, 0o640),
    "tree with digits": (tree, "0644", 0o644, 0o644),
    "scaffold": (scaffold, "", 0o755, 0o644),
    "scaffold with X": (scaffold, "u=rwX,g=rX,o=", 0o750, 0o640),
    "scaffold with digits": (scaffold, "0600", 0o600, 0o600),
}


@pytest.fixture
def apply(tmp_path: Path, execute: Callable[..., tuple[int, str]]) -> Callable[..., str]:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "run").write_text("#!/bin/sh\n")
    (tmp_path / "target").mkdir()
    OURS.update(owner=str(tmp_path.stat().st_uid), group=str(tmp_path.stat().st_gid))

    def apply(resource: dict[str, Any], *options: str) -> str:
        listed = {"resources": [{kind: [named] for kind, named in resource.items()}]}
        (tmp_path / "manifest.yaml").write_text(yaml.safe_dump(listed))
        state = ("--state-directory", str(tmp_path / "state"))
        code, output = execute("apply", str(tmp_path / "manifest.yaml"), *state, *options)
        assert code == 0, output
        return output

    return apply


@pytest.mark.parametrize("case", CASES)
@pytest.mark.representatives(6)
def test_the_bit_of_the_source_arrives_in_both_ways(
    case: str, tmp_path: Path, apply: Callable[..., str]
) -> None:
    declare, mode, program, plain = CASES[case]
    source, target = tmp_path / "tree" / "run", tmp_path / "target" / "run"
    resource = declare(tmp_path / "target", mode)
    for is_program in (False, True, False, True):
        source.chmod(0o755 if is_program else 0o644)
        expected = program if is_program else plain
        is_other = target.exists() and stat.S_IMODE(target.stat().st_mode) != expected
        assert ("1 would change" in apply(resource, "--noop")) is (is_other or not target.exists())
        apply(resource)
        assert oct(stat.S_IMODE(target.stat().st_mode)) == oct(expected)
        assert "1 stable" in apply(resource)


@pytest.mark.parametrize("case", CASES)
def test_a_bit_that_a_user_changed_is_repaired(case: str, tmp_path: Path, apply: Callable[..., str]) -> None:
    declare, mode, program, plain = CASES[case]
    source, target = tmp_path / "tree" / "run", tmp_path / "target" / "run"
    resource = declare(tmp_path / "target", mode)
    for bits, expected in ((0o755, program), (0o644, plain)):
        source.chmod(bits)
        apply(resource)
        target.chmod(stat.S_IMODE(target.stat().st_mode) ^ 0o111)
        apply(resource)
        assert oct(stat.S_IMODE(target.stat().st_mode)) == oct(expected)


def test_a_command_decides_about_a_plain_template(tmp_path: Path, apply: Callable[..., str]) -> None:
    resource = scaffold(tmp_path / "target", "")
    resource["scaffold"][str(tmp_path / "target")]["post"] = [{"*": "chmod +x {}"}]
    apply(resource)
    assert stat.S_IMODE((tmp_path / "target" / "run").stat().st_mode) == 0o755
    assert "1 stable" in apply(resource)


@pytest.mark.parametrize("kind", [tree, scaffold])
def test_new_content_and_a_new_bit_arrive_together(
    kind: Callable[..., dict[str, Any]], tmp_path: Path, apply: Callable[..., str]
) -> None:
    resource = kind(tmp_path / "target", "u=rwX,go=rX")
    apply(resource)
    (tmp_path / "tree" / "run").write_text("#!/bin/sh\ntrue\n")
    (tmp_path / "tree" / "run").chmod(0o755)
    apply(resource)
    assert stat.S_IMODE((tmp_path / "target" / "run").stat().st_mode) == 0o755
    assert "1 stable" in apply(resource)


@pytest.mark.parametrize("kind", [file, tree, scaffold])
def test_a_private_program_is_not_opened_to_others(
    kind: Callable[..., dict[str, Any]], tmp_path: Path, apply: Callable[..., str]
) -> None:
    """If the mode leaves readers alone, only existing readers get the bit."""
    (tmp_path / "tree" / "run").chmod(0o755)
    resource = kind(tmp_path / "target", "o-w")
    apply(resource)
    (tmp_path / "target" / "run").chmod(0o600)
    apply(resource)
    assert stat.S_IMODE((tmp_path / "target" / "run").stat().st_mode) == 0o700


CLAUSES = st.from_regex(r"[ugoa]{1,3}[-+=][rwxXst]{1,3}(,[ugoa]{1,3}[-+=][rwxXst]{1,3}){0,2}", fullmatch=True)


@pytest.mark.everything
@given(CLAUSES, st.integers(0, 0o7777), st.booleans())
def test_copy_has_its_mode_after_a_single_run(changes: str, bits: int, is_program: bool) -> None:
    mode = FileMode.parse(changes)
    once = mode.over_copy(stat.S_IFREG | bits, is_program=is_program)
    assert mode.over_copy(stat.S_IFREG | once, is_program=is_program) == once
