"""Lint reports failures that a machine would only find while it applies a resource, with the given facts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Execute

IDS = 'owner: root, group: root, mode: "0644"'
FILES = f'  - file: [{{"/etc/{{{{ v.name }}}}": {{template: v.j2, {IDS}}}, for: v in data.hosts}}]\n'


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for a bundle, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web").mkdir()
    return tmp_path / "web"


def test_item_without_a_template_variable_is_reported(execute: Execute, web: Path) -> None:
    (web / "v.j2").write_text("{{ v.port }}\n")
    data = "data:\n  hosts:\n    - {name: a, port: 80}\n    - {name: b, prt: 80}\n"
    (web / "manifest.yaml").write_text(f"{data}resources:\n{FILES}")
    _, output = execute("lint", "web")
    assert "warning: file#/etc/b: " in output
    assert "unknown key 'port' (did you mean 'prt'?)" in output
    assert "[resource-fails]" in output
    assert "file#/etc/a" not in output
    assert execute("lint", "web", "--strict")[0] == 1


def test_a_condition_that_gives_neither_true_nor_false_is_told(execute: Execute, web: Path) -> None:
    (web / "manifest.yaml").write_text(
        "data: {wanted: tue}\nresources:\n  - exec: [{a: {control: {if: data.wanted}}}]\n"
    )
    _, output = execute("lint", "web")
    assert "control: if data.wanted is 'tue', expected true or false" in output


def test_a_template_that_is_wrong_on_every_host_is_told_once(execute: Execute, web: Path) -> None:
    (web / "v.j2").write_text("\n{{ v.prt }}\n")
    (web / "manifest.yaml").write_text(f"data: {{hosts: [{{name: a, port: 80}}]}}\nresources:\n{FILES}")
    status, output = execute("lint", "web")
    assert status == 1
    assert "web/v.j2:2:6: error: " in output
    assert "1 error, 0 warnings" in output


@pytest.mark.parametrize("template", ["{{ oh( }}", "{% include 'no.j2' %}"])
def test_a_template_that_cannot_be_read_is_told_once(execute: Execute, web: Path, template: str) -> None:
    (web / "v.j2").write_text(f"{template}\n")
    (web / "manifest.yaml").write_text(f"data: {{hosts: [{{name: a, port: 80}}]}}\nresources:\n{FILES}")
    status, output = execute("lint", "web")
    assert status == 1
    assert "1 error, 0 warnings" in output, output


def test_a_source_that_is_missing_is_told_once(execute: Execute, web: Path) -> None:
    (web / "manifest.yaml").write_text(f"resources:\n  - file: [{{/a: {{source: files/no, {IDS}}}}}]\n")
    output = execute("lint", "web")[1]
    assert "1 error, 0 warnings" in output, output


def test_template_with_an_unknown_fact_is_unchecked(execute: Execute, web: Path) -> None:
    (web / "v.j2").write_text("{{ facts.role }}\n")
    (web / "manifest.yaml").write_text(f"data: {{hosts: [{{name: a}}]}}\nresources:\n{FILES}")
    status, output = execute("lint", "web", "--no-system-facts", "-v")
    assert (status, "0 errors, 0 warnings" in output) == (0, True), output
    assert "unchecked: " in output


def test_secret_in_a_failure_is_masked(execute: Execute, web: Path) -> None:
    (web / "v.j2").write_text("{{ {}[data.token] }}\n")
    (web / "manifest.yaml").write_text(
        f"data:\n  hosts: [{{name: a}}]\n  # @sensitive\n  token: hunter2hunter2\nresources:\n{FILES}"
    )
    for form in ("text", "json", "sarif", "junit", "github"):
        output = execute("lint", "web", "-v", "--format", form)[1]
        assert "file#/etc/a" in output
        assert "hunter2" not in output


def test_how_many_files_are_not_rendered_is_said(execute: Execute, web: Path) -> None:
    text = "resources:\n  - file:\n"
    for number in range(30):
        (web / f"{number}.j2").write_text("{{ [][1] }}\n")
        text += f"      - /etc/{number}: {{template: {number}.j2, {IDS}}}\n"
    (web / "manifest.yaml").write_text(text)
    _, output = execute("lint", "web", "-v")
    assert output.count("[resource-fails]") == 21
    assert "unchecked: the files of 10 further resources are not rendered. " in output
