"""``data`` of a file: variables of its template that replace the manifest's data."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from puller.bundle_paths import BundleFiles
from puller.errors import ManifestError
from puller.manifest.manifest import Manifest
from puller.resources.base import Context
from puller.resources.content_sources import fetch_url
from puller.resources.files.content import find_content
from puller.system.local import LocalSystem

if TYPE_CHECKING:
    from tests.puller.conftest import Load

HEAD = "data:\n  port: 80\n  # @sensitive\n  token: hunter2\nresources:\n  - file:\n"
IDS = "owner: root, group: root, mode: '0644'"
TEMPLATES = {
    "a.j2": "{{ data.port }} {{ facts.hostname }} {{ template('b.j2') }}",
    "b.j2": "{{ data.port }}{{ data.more | default('-') }}",
    "a.jet": "[[ data.port ]] [[ facts.hostname ]] [[ isset(data.more) ]]",
    "a.tmpl": "{{ .data.port }} {{ .facts.hostname }} {{ .data.more }}",
}


@pytest.fixture
def wanted(load: "Load", tmp_path: Path) -> Any:
    """Return a function that returns the expected text of a file and its declaration: ``wanted(properties)``."""
    for name, text in TEMPLATES.items():
        (tmp_path / name).write_text(text)

    def render(properties: str) -> tuple[str, Any]:
        manifest: Manifest = load(f"{HEAD}      - /x: {{{IDS}, {properties}}}", facts={"hostname": "web01"})
        (declaration,) = manifest.declarations
        files = BundleFiles.of(tmp_path)
        context = Context(LocalSystem(), files, manifest.scope, fetch_url, {}, lambda type_name: ["/x"])
        provided: Any = declaration.properties
        content = find_content(provided, context)
        assert content is not None
        return b"".join(content.chunks()).decode(), declaration

    return render


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ("template: a.j2", "80 web01 80-"),
        ("template: a.j2, data: {port: 81}", "81 web01 81-"),
        (
            "template: a.j2, data: {port: '{{ data.port + 2 }}', more: '{{ facts.hostname }}'}",
            "82 web01 82web01",
        ),
        ("template: a.jet, data: {port: 81}", "81 web01 false"),
        ("template: a.tmpl, data: {port: 81}", "81 web01 <no value>"),
        ("template: b.j2, data: '{{ {\"port\": 3} }}'", "3-"),
    ],
)
def test_the_template_sees_the_data_it_is_handed_and_the_facts(
    wanted: Any, properties: str, text: str
) -> None:
    assert wanted(properties)[0] == text


def test_no_data_is_data_too(wanted: Any) -> None:
    assert wanted("template: a.tmpl, data: {}")[0] == "<no value> web01 <no value>"


def test_a_secret_in_it_is_a_secret_in_the_file(wanted: Any) -> None:
    text, declaration = wanted("template: b.j2, data: {port: 1, more: '{{ data.token }}'}")
    assert text == "1hunter2"
    assert declaration.properties.sensitive
    assert declaration.shown()["data"] == "(sensitive)"
    assert "hunter2" not in str(declaration.shown())


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ("content: x, data: {a: 1}", "data is only for a template"),
        ("source: a.j2, data: {a: 1}", "data is only for a template"),
        ("ensure: directory, data: {a: 1}", "data is only for a template"),
        ("template: a.j2, data: [1]", "data is a list, expected a mapping"),
    ],
)
def test_data_without_a_template_is_refused(load: "Load", properties: str, sentence: str) -> None:
    with pytest.raises(ManifestError, match=sentence):
        load(f"{HEAD}      - /x: {{{IDS}, {properties}}}")
