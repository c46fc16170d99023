"""Options that select the host and the data: ``--no-system-facts``, ``--modules``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Execute

MANIFEST = """\
resources:
  - exec: {name: "echo {{ lookup('facts.kernel', 'unknown') }} {{ lookup('facts.role', 'none') }}"}
"""


@pytest.fixture
def web(tmp_path: Path) -> str:
    (tmp_path / "manifest.yaml").write_text(MANIFEST)
    return str(tmp_path)


@pytest.mark.parametrize("command", [("render",), ("apply", "--noop"), ("explain", "exec#echo unknown db")])
def test_only_the_given_facts_are_there(execute: Execute, web: str, command: tuple[str, ...]) -> None:
    status, output = execute(*command, web, "--fact", "role=db", "--no-system-facts")
    assert (status, "echo unknown db" in output) == (0, True), output
    assert "unknown" not in execute("render", web)[1]


def test_lint_counts_checks_that_need_facts(execute: Execute, web: str, tmp_path: Path) -> None:
    manifest = MANIFEST.replace("lookup('facts.kernel', 'unknown')", "facts.kernel").replace(
        "name:", "cwd: /, name: x, command:"
    )
    (tmp_path / "manifest.yaml").write_text(manifest)
    assert "not checked" not in execute("lint", web)[1]
    assert " 1 expression not checked" in execute("lint", web, "--no-system-facts", "--fact", "role=db")[1]


@pytest.mark.parametrize("modules", [("--modules", "none"), ("--modules=none",)])
def test_a_directory_of_modules_that_is_not_there_is_a_mistake(
    execute: Execute, tmp_path: Path, modules: tuple[str, ...]
) -> None:
    (tmp_path / "hiera.yaml").write_text("version: 5\n")
    status, output = execute("hiera", "lookup", "a", "--environment", str(tmp_path), *modules)
    assert (status, "none" in output) == (64, True)


def test_undecryptable_value_is_named_with_its_line(execute: Execute, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    execute("hiera", "keys", "create", "--directory", str(keys))
    bad, binary = tmp_path / "bad.eyaml", tmp_path / "binary"
    bad.write_text("a: 1\nb: ENC[PKCS7,Zm9v]\n")
    binary.write_bytes(b"a\xff")
    key = ("--private-key", str(keys / "private_key.pkcs7.pem"))
    status, output = execute("hiera", "decrypt", str(bad), *key)
    assert (status, output) == (13, f"puller: {bad}:2: not PKCS#7 enveloped data in DER\n")
    status, output = execute("hiera", "decrypt", str(binary), *key)
    assert (status, output.strip()) == (64, f"puller: {binary}: is not UTF-8 text, at byte 1")
