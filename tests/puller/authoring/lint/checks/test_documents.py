"""Lint reads data documents that are no manifests, and lists of resources that a template renders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Execute

IDS = 'owner: root, group: root, mode: "0644"'


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for a bundle, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web").mkdir()
    return tmp_path / "web"


def test_expressions_in_given_data_are_followed_on_any_machine(execute: Execute, web: Path) -> None:
    (web / "manifest.yaml").write_text("resources: []\n")
    Path("given.yaml").write_text(
        'data: {port: 80}\noverrides:\n  os:Never: {port: "{{ data.prt }}", home: "{{ \'a\' | uper }}"}\n'
    )
    status, output = execute("lint", "web", "--data", "given.yaml")
    assert status == 1
    assert (
        "given.yaml:3:29: error: data has no 'prt' on any host (did you mean 'port'?) [unknown-name]"
        in output
    )
    assert (
        "given.yaml:3:54: error: unknown filter 'uper' (did you mean 'upper'?) [unknown-function]" in output
    )
    assert " 2 errors, " in output


def test_names_in_a_given_document_are_checked(execute: Execute, web: Path) -> None:
    (web / "manifest.yaml").write_text("resources: []\n")
    Path("base.yaml").write_text("data: {port: 80}\n")
    Path("given.yaml").write_text('data: {a: "{{ data.port }}"}\noverrides: {x: {b: "{{ data.a }}"}}\n')
    Path("given.yaml").write_text(Path("given.yaml").read_text() + "hierarchy: {order: [x]}\n")
    status, output = execute("lint", "web", "--data", "base.yaml", "--data", "given.yaml")
    assert (status, " 0 errors, 0 warnings" in output) == (0, True), output


def test_an_expression_in_the_data_of_a_library_is_followed(execute: Execute, web: Path) -> None:
    Path("common").mkdir()
    Path("common/library.yaml").touch()
    Path("common/data.yaml").write_text('data: {port: 80}\noverrides: {os:Never: {port: "{{ data.prt }}"}}\n')
    (web / "manifest.yaml").write_text(
        "libraries: {common: ../common}\nresources:\n"
        f'  - file: [{{/a: {{content: "{{{{ data.port }}}}", {IDS}}}}}]\n'
    )
    status, output = execute("lint", "web")
    assert status == 1
    assert "common/data.yaml:2:39: error: data has no 'prt' on any host (did you mean 'port'?)" in output


def listed(web: Path, text: str, data: str = "data: {name: app}\n") -> None:
    """A bundle whose resources are those that ``text`` renders."""
    (web / "manifest.yaml").write_text(f"{data}resources_template: list.j2\n")
    (web / "list.j2").write_text(text)


WRONG = {
    f"- file: [{{/a: {{source: 'files/{{{{ data.name }}}}.cnf', {IDS}}}}}]\n": "source files/app.cnf is missing in",
    "- exec: [echo {{ data.name }} > /tmp/x]\n": "> is an argument of echo",
    "- exec: [{'true': {health_checks: [{command: \"sh -c 'a\"}]}}]\n": "single quote that is not closed",
    f"- file: [{{/a: {{control: {{if: facts.os.famly == 'x'}}, {IDS}}}}}]\n": "facts.os has no 'famly'",
}


@pytest.mark.parametrize("text", WRONG)
def test_errors_in_a_rendered_list_are_reported(execute: Execute, web: Path, text: str) -> None:
    listed(web, text)
    _, output = execute("lint", "web")
    assert WRONG[text] in output
    assert "web/list.j2 (rendered):1:" in output


def test_files_named_by_a_rendered_list_are_used(execute: Execute, web: Path) -> None:
    listed(web, f"- file: [{{/a: {{template: '{{{{ data.name }}}}.tmpl', {IDS}}}}}]\n")
    (web / "app.tmpl").write_text("{{ .data.nme }}\n")
    status, output = execute("lint", "web")
    assert status == 1
    assert "web/app.tmpl:1:10: error: data has no 'nme' on any host (did you mean 'name'?)" in output
    assert "unused-file" not in output


def test_data_of_a_rendered_list_may_differ_elsewhere(execute: Execute, web: Path) -> None:
    listed(
        web,
        f"- file: [{{/a: {{template: a.j2, data: {{port: 80}}, {IDS}}}}}]\n"
        "- apply: [{child.yaml: {data: {port: 80}}}]\n",
    )
    (web / "a.j2").write_text("{{ data.port }}{% if data.port == 1 %}{{ data.other }}{% endif %}\n")
    (web / "child.yaml").write_text(
        f"resources:\n  - file: [{{/b: {{content: '{{{{ data.other if data.port == 1 else 2 }}}}', {IDS}}}}}]\n"
    )
    status, output = execute("lint", "web")
    assert (status, " 0 errors, 0 warnings" in output) == (0, True), output


def test_a_secret_in_a_rendered_list_is_not_shown(execute: Execute, web: Path) -> None:
    data = "data:\n  # @sensitive\n  password: hunter2hunter2\n"
    text = '- exec: [{a: {command: "x \'{{ data.password }}"}}]\n'
    text += f"- file: [{{/a: {{source: 'files/{{{{ data.password }}}}', {IDS}}}}}]\n"
    listed(web, text, data)
    status, output = execute("lint", "web")
    assert "single quote that is not closed" in output
    assert "is missing in the bundle, with the available facts" in output
    assert "hunter2" not in output
    assert status in (0, 1)
