"""The page on names shows the messages of lint."""

from collections.abc import Callable
from pathlib import Path

import pytest

from puller.authoring.lint.checks import names
from puller.authoring.lint.findings import Subject
from puller.manifest.manifest import Inputs

PAGE = (Path(__file__).parents[1] / "docs/lint-names.md").read_text()
RESOURCES = """
resources:
  - file:
      - /a: {content: "{{ data.prt }}", owner: root, group: root, mode: "0644"}
      - /b: {template: templates/app.conf.j2, owner: root, group: root, mode: "0644"}
"""


@pytest.fixture
def found(tmp_path: Path) -> Callable[[str, str], list[str]]:
    def run(manifest: str, template: str) -> list[str]:
        (tmp_path / "templates").mkdir()
        (tmp_path / "manifest.yaml").write_text(manifest)
        (tmp_path / "templates/app.conf.j2").write_text(template)
        return [str(item) for item in names.check(Subject(tmp_path, "web", Inputs({}, {}), None, ()))]

    return run


def test_its_findings_are_those_of_a_bundle(found: Callable[[str, str], list[str]]) -> None:
    manifest = f"data: {{port: 80}}{RESOURCES.replace('/a: {', '/aaaa: {')}"
    output = [line.partition(": ")[2] for line in found(manifest, "\n" * 6 + "{{ data.port | uper }}")]
    assert len(output) == 2
    assert all(sentence in PAGE for sentence in output)


def test_key_without_a_value_declares_a_host_input(found: Callable[[str, str], list[str]]) -> None:
    data = PAGE.partition("        data:\n")[2].partition("\n\n")[0]
    declared = "data:\n" + data.replace("        ", "") + RESOURCES
    assert found(declared.replace("data.prt", "data.password.of.it"), "{{ data.password }}") == []
