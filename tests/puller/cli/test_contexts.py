"""Lint, render and preview use the test cases of a bundle as their context."""

from __future__ import annotations

import shutil
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
    assert (status, output.count("0888"), "machines" in output) == (1, 1, False)


def test_a_problem_of_some_cases_has_their_number(execute: Execute) -> None:
    change('mode: "0644"', "mode: \"{{ '0644' if facts.role == 'db' else '0888' }}\"")
    status, output = execute("lint", "bundles/shop")
    (line,) = (line for line in output.splitlines() if "0888" in line)
    assert (status, line.endswith("(on 1 of 2 machines)")) == (0, True), output


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


# --- puller.yaml of the repository ---------------------------------------------------------------------------

MACHINES = """\
machines:
  db: {os: debian-12, facts: {role: db}, bundles: [bundles/base, bundles/shop]}
  web: {os: rocky-9, facts: {role: web}, data: {port: 80}, bundles: [bundles/base, bundles/shop]}
  other: {bundles: [bundles/base]}
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return ``puller.yaml`` of a repository whose bundles have no test cases."""
    shutil.rmtree(tmp_path / "bundles/shop/tests")
    path = tmp_path / "puller.yaml"
    path.write_text(MACHINES)
    return path


def test_lint_uses_the_machines_of_the_repository(execute: Execute, repository: Path) -> None:
    assert execute("lint", "bundles/shop") == (0, "bundles/shop: 1 resource, 0 errors, 0 warnings\n")
    change('mode: "0644"', "mode: \"{{ '0644' if facts.role == 'db' else '0888' }}\"")
    status, output = execute("lint", "bundles/shop")
    assert (status, "(on 1 of 2 machines)" in output) == (0, True), output
    repository.unlink()
    assert "file#/srv" in execute("lint", "bundles/shop")[1]


def test_render_selects_a_machine_of_the_repository(execute: Execute, repository: Path) -> None:
    change("{{ facts.role }}", "{{ facts.role }} {{ data.port }}")
    change("resources:", "data: {port: 1}\nresources:")
    assert "content: db 1\n" in execute("render", "bundles/shop")[1]
    assert "content: web 80\n" in execute("render", "bundles/shop", "--machine", "web")[1]
    status, output = execute("render", "bundles/shop", "--machine", "wep")
    assert (status, output) == (64, "puller: --machine: unknown machine 'wep' (did you mean 'web'?)\n")
    assert execute("render", "bundles/shop", "--machine", "web", "--fact", "a=b")[0] == 64


def test_preview_uses_the_machines_of_the_repository(execute: Execute, repository: Path) -> None:
    shutil.copytree("bundles/shop", "bundles/old")
    change("{{ facts.role }}", "{{ facts.role }} new")
    status, output = execute("preview", "bundles/shop", "--from", "bundles/old")
    assert (status, "(db)" in output, "(web)" in output, "other" in output) == (2, True, True, False), output


def test_cases_replace_the_machines_of_the_repository(execute: Execute, repository: Path) -> None:
    Path("bundles/shop/tests").mkdir()
    Path("bundles/shop/tests/mail.yaml").write_text(CASE.replace("ROLE", "mail"))
    assert "content: mail\n" in execute("render", "bundles/shop")[1]
    assert execute("render", "bundles/shop", "--machine", "web")[0] == 64


def test_the_search_ends_at_the_top_of_a_checkout(execute: Execute, repository: Path) -> None:
    Path("bundles/.git").mkdir()
    assert "file#/srv" in execute("lint", "bundles/shop")[1]


@pytest.mark.parametrize("command", ["lint", "render", "preview"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("machines: {a: {bundle: []}}", "puller.yaml:1: bundle is not a key of machines (did you mean"),
        ("machines: {}\nbundles: []", "puller.yaml:2: bundles is not a key of a repository file"),
        ("machines: {a: {bundles: [], os: debian-1}}", "puller.yaml:1: os is the unknown system 'debian-1'"),
        ("machines: {a: {bundles: [none]}}", "puller.yaml:1: bundle 'none' is missing"),
        ("[]", "puller.yaml:1: invalid repository file, expected a mapping"),
        ("machines: [", "puller.yaml:2:1: did not find"),
    ],
)
def test_an_invalid_repository_file_is_an_error(
    command: str, text: str, message: str, repository: Path, execute: Execute
) -> None:
    repository.write_text(text)
    status, output = execute(command, "bundles/shop")
    assert (status, message in output) == (13, True), output
