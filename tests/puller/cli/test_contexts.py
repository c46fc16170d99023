"""Lint, render and preview use the test cases of a bundle as their context."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stories import Execute

BASE = 'resources: [{file: [{/srv: {ensure: directory, owner: root, group: root, mode: "0755"}}]}]\n'
SHOP = """\
resources:
  - file:
      - /srv/shop: {content: "{{ facts.role }}", owner: root, group: root, mode: "0644", require: [file#/srv]}
"""
CASE = """\
os: debian-12
facts: {role: ROLE}
with: [../base]
expect: {"file#/srv/shop": {content: ROLE}}
"""


@pytest.fixture(autouse=True)
def _bundles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the bundle ``shop``, which refers to a resource of ``base`` and to a fact of its hosts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PULLER_SITE", raising=False)
    for name, text in (("base", BASE), ("shop", SHOP)):
        Path("bundles", name).mkdir(parents=True)
        Path("bundles", name, "manifest.yaml").write_text(text)
    Path("bundles/shop/tests").mkdir()
    for role in ("db", "web"):
        Path(f"bundles/shop/tests/{role}.yaml").write_text(CASE.replace("ROLE", role))


def change(old: str, new: str) -> None:
    manifest = Path("bundles/shop/manifest.yaml")
    manifest.write_text(manifest.read_text().replace(old, new))


def test_lint_answers_as_the_tests_do(execute: Execute) -> None:
    assert execute("test", "bundles/shop")[0] == 0
    assert execute("lint", "bundles/shop") == (0, "bundles/shop: 1 resource, 0 errors, 0 warnings\n")
    change("facts.role", "facts.rle")
    assert execute("test", "bundles/shop")[0] == 1
    status, output = execute("lint", "bundles/shop", "-v")
    assert (status, "facts.rle" in output) == (0, True)
    change("file#/srv]", "file#/none]")
    assert execute("test", "bundles/shop")[0] == 1
    assert execute("lint", "bundles/shop")[0] == 1


def test_a_problem_of_all_cases_is_printed_once(execute: Execute) -> None:
    change('mode: "0644"', 'mode: "0888"')
    status, output = execute("lint", "bundles/shop")
    assert (status, output.count("0888"), "test cases" in output) == (1, 1, False)


def test_a_problem_of_some_cases_has_their_number(execute: Execute) -> None:
    change('mode: "0644"', "mode: \"{{ '0644' if facts.role == 'db' else '0888' }}\"")
    status, output = execute("lint", "bundles/shop")
    (line,) = (line for line in output.splitlines() if "0888" in line)
    assert (status, line.endswith("(in 1 of 2 test cases)")) == (0, True), output


@pytest.mark.parametrize("option", ["--fact role=db", "--os debian-12", "--no-system-facts"])
def test_options_replace_the_cases(option: str, execute: Execute) -> None:
    status, output = execute("lint", "bundles/shop", *option.split())
    assert (status, "file#/srv" in output) == (1, True)
    assert execute("lint", "bundles/shop", *option.split(), "--with", "bundles/base")[0] == 0


def test_cases_that_expect_a_rejection_are_left_out(execute: Execute) -> None:
    Path("bundles/shop/tests/none.yaml").write_text("os: debian-12\nwith: [../base]\nfails: role\n")
    Path("bundles/shop/tests/broken.yaml").write_text("os: [")
    assert execute("lint", "bundles/shop")[0] == 0


def test_render_reads_the_bundles_of_the_cases(execute: Execute) -> None:
    status, output = execute("render", "bundles/shop", "--fact", "role=db")
    assert (status, "/srv/shop" in output) == (0, True), output


def test_preview_uses_the_machines_of_the_cases(execute: Execute) -> None:
    assert execute("site", "init", "--no-passphrase")[0] == 0
    assert execute("site", "publish", "bundles/shop", "--version", "1.0.0")[0] == 0
    change("{{ facts.role }}", "{{ facts.role }} new")
    status, output = execute("preview", "bundles/shop")
    assert (status, "(db)" in output, "(web)" in output) == (2, True, True), output
    assert execute("preview", "bundles/base")[0] == 64
