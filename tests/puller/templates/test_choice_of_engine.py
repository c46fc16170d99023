"""One rule chooses the engine of a template everywhere: an explicit engine, then the file name, then the context."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hiera.expressions.expressions import evaluate
from puller.errors import ManifestError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest

if TYPE_CHECKING:
    from tests.support.stories import Execute

TEXTS = {
    "page.jet": "jet [[ data.port ]]",
    "page.tmpl": "go {{ .data.port }}",
    "page.gotmpl": "go {{ .data.port }}",
    "page.j2": "jinja {{ data.port }}",
    "page.jinja": "jinja {{ data.port }}",
    "page.conf": "jinja {{ data.port }}",
}
RENDERED = {name: f"{text.split()[0]} 80" for name, text in TEXTS.items()}

Load = Callable[[str], Manifest]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that loads a manifest with this text, next to templates of all engines."""
    for name, text in TEXTS.items():
        (tmp_path / "sub").mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / "sub" / name).write_text(text)
        (tmp_path / f"tree-of-{name}").mkdir()
        (tmp_path / f"tree-of-{name}" / "out").write_text(text)

    def build(text: str) -> Manifest:
        (tmp_path / "manifest.yaml").write_text(textwrap.dedent(text).replace("DIR", str(tmp_path)))
        return load_manifest(tmp_path / "manifest.yaml", "web/manifest.yaml", Inputs({}, {}))

    return build


FILE = f"DIR/made: {{template: NAME, owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'}}"


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_a_child_a_function_and_render_agree(
    load: Load, execute: Execute, tmp_path: Path, name: str
) -> None:
    file = FILE.replace("NAME", name)
    (tmp_path / "sub" / "child.yaml").write_text(
        f"resources: [{{file: [{file.replace('DIR/made', f'{tmp_path}/child')}]}}]"
    )
    manifest = load(
        f"data: {{port: 80}}\nresources: [{{file: [{file}]}}, {{apply: {{name: sub/child.yaml}}}}]"
    )
    status, output = execute("apply", str(tmp_path))
    assert status == 0, output
    assert (tmp_path / "made").read_text() == RENDERED[name]
    assert (tmp_path / "child").read_text() == RENDERED[name]
    assert evaluate(f"template('{name}')", manifest.scope) == RENDERED[name]
    engine = () if name != "page.conf" else ("--engine", "jinja")
    assert execute("render", str(tmp_path / name), *engine, "--set", "port=80") == (0, RENDERED[name])


@pytest.mark.parametrize("name", ["page.jet", "page.tmpl", "page.j2"])
def test_a_directory_of_templates_says_its_engine_by_its_name(
    load: Load, execute: Execute, tmp_path: Path, name: str
) -> None:
    load(f"data: {{port: 80}}\nresources: [{{scaffold: [{{DIR/made: {{source: tree-of-{name}}}}}]}}]")
    status, output = execute("apply", str(tmp_path))
    assert status == 0, output
    assert (tmp_path / "made" / "out").read_text() == RENDERED[name]
    options = ("--set", "port=80", "--format", "json")
    assert RENDERED[name] in execute("render", str(tmp_path / f"tree-of-{name}"), *options)[1]


REFUSED = {
    "file: {name: /a, template: page.jet, engine: jinja, owner: r, group: r, mode: '0644'}": "template is 'page.jet', "
    "a template of 'jet' by its name, but engine is 'jinja': rename it, or leave out engine",
    "file: {name: /a, template: page.j2, engine: go, owner: r, group: r, mode: '0644'}": "template is 'page.j2', a "
    "template of 'jinja' by its name, but engine is 'go'",
    "file: {name: /a, template: page.j2, engine: mako, owner: r, group: r, mode: '0644'}": "engine is 'mako', expected",
    "scaffold: {name: /a, source: tree.tmpl/, engine: jet}": "source is 'tree.tmpl', a template of 'go' by its name",
    "file: {name: /a, type: template, contents: page.jet, interpolate: true, owner: r, group: r, mode: '0644'}": (
        "template is 'page.jet', a template of 'jet' by its name, but engine is 'jinja'"
    ),
}


@pytest.mark.parametrize("resource", REFUSED)
def test_engine_of_name_and_property_must_agree(load: Load, resource: str) -> None:
    with pytest.raises(ManifestError) as error:
        load(f"resources: [{{{resource}}}]")
    assert REFUSED[resource] in str(error.value)


def test_evaluated_engine_name_fails_its_resource_alone(load: Load) -> None:
    (result,) = load(
        "data: {t: page.jet}\nresources: [{file: {name: /a, template: '{{ data.t }}', engine: go, owner: r, group: r, "
        "mode: '0644'}}]"
    ).declarations
    assert "template is 'page.jet', a template of 'jet' by its name" in result.failure


def test_render_refuses_an_engine_that_the_name_denies(load: Load, execute: Execute, tmp_path: Path) -> None:
    load("resources: []")
    status, output = execute("render", str(tmp_path / "page.jet"), "--engine", "jinja")
    assert (status, "by its name, but engine is 'jinja'" in output) == (64, True)


def test_resource_list_of_the_reference_uses_jet(load: Load, tmp_path: Path) -> None:
    text = "- exec: {name: 'echo [[ data.port ]]'}\n"
    (tmp_path / "list.txt").write_text(text)
    (tmp_path / "list.j2").write_text(text)
    manifest = load("data: {port: 80}\nccm: {resources_jet_file: list.txt}")
    assert manifest.declarations[0].properties.name == "echo 80"
    with pytest.raises(ManifestError, match=r"resources_template is 'list.j2', a template of 'jinja'"):
        load("data: {port: 80}\nccm: {resources_jet_file: list.j2}")
