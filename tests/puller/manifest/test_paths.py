"""Paths in manifests and templates: everywhere, a path means the same file."""

import os
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.system.processes import StopRequests

IDS = f"owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'"

BUNDLE = {
    "manifest.yaml": "resources: [{apply: {name: roles/web/main.yaml}}]",
    "shared/x": "shared",
    "shared/x.j2": "{% import 'bundle:shared/m.j2' as m %}{{ m.say() }}",
    "shared/x.tmpl": "{{ readFile `bundle:shared/x` }}",
    "shared/m.j2": "{% macro say() -%} shared {%- endmacro %}",
    "shared/base.j2": "{% block body %}{% endblock %}",
    "shared/tree/f": "[[ readFile(`bundle:shared/x`) ]]",
    "shared/list.j2": "- file: {name: DIR/out, content: shared, IDS}",
    "shared/kid.yaml": "resources: [{file: {name: DIR/out, source: x, IDS}}]",
    "roles/web/x": "no",
    "roles/web/x.j2": "no",
}

FILE = "resources: [{file: {name: DIR/out, IDS, %s}}]"
DOORS = {
    "source": FILE % "source: '{}x'",
    "a template of Jinja2": FILE % "template: '{}x.j2'",
    "a template of Go": FILE % "template: '{}x.tmpl'",
    "read_file": FILE % "content: \"{{{{ read_file('{}x') }}}}\"",
    "template()": FILE % "content: \"{{{{ template('{}x.j2') }}}}\"",
    "resources_template": "resources_template: '{}list.j2'",
    "scaffold": "resources: [{scaffold: {name: DIR/made, source: '{}tree'}}]",
    "apply": "resources: [{apply: {name: '{}kid.yaml'}}]",
    "include": FILE % "template: include.j2",
    "import": FILE % "template: import.j2",
    "extends": FILE % "template: extends.j2",
    "include in a scaffold": "resources: [{scaffold: {name: DIR/made, source: tree, engine: jinja}}]",
}
TEMPLATES = {
    "include.j2": "{% include '{}x.j2' %}",
    "import.j2": "{% from '{}m.j2' import say %}{{ say() }}",
    "extends.j2": "{% extends '{}base.j2' %}{% block body %}shared{% endblock %}",
    "tree/f": "{% import 'bundle:shared/m.j2' as m %}{{ m.say() }}",
}

Build = Callable[[Mapping[str, str]], Manifest]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Return a function that loads the manifest of these files."""

    def load(files: Mapping[str, str]) -> Manifest:
        for name, text in files.items():
            path = tmp_path / "bundle" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).replace("DIR", str(tmp_path)).replace("IDS", IDS))
        return load_manifest(tmp_path / "bundle/manifest.yaml", "bundle/manifest.yaml", Inputs({}, {}))

    return load


def written(manifest: Manifest, tmp_path: Path) -> Any:
    """Return the written files, or the failures of the run."""

    def fetch(url: str) -> bytes:
        raise AssertionError(url)

    settings = Settings()
    owed = tmp_path / "owed.json"
    applied = apply_catalog(
        manifest,
        settings,
        StopRequests(),
        PendingRefreshes(owed, "web", noop=settings.noop),
        state_directory=owed.parent,
        fetch=fetch,
    )
    errors = [error for event in applied.events for error in event.errors]
    out = tmp_path / "made/f" if (tmp_path / "made").exists() else tmp_path / "out"
    return errors or out.read_text()


def with_prefix(prefix: str, text: str) -> str:
    return text.replace("{}", prefix).replace("{{{{", "{{").replace("}}}}", "}}")


@pytest.mark.parametrize("prefix", ["../../shared/", "bundle:shared/", "bundle:roles/../shared/"])
@pytest.mark.parametrize("door", DOORS)
def test_a_path_in_a_child_leads_anywhere_in_the_bundle(
    build: Build, tmp_path: Path, door: str, prefix: str
) -> None:
    templates = {f"roles/web/{name}": with_prefix(prefix, text) for name, text in TEMPLATES.items()}
    files = {**BUNDLE, **templates, "roles/web/main.yaml": with_prefix(prefix, DOORS[door])}
    assert written(build(files), tmp_path) == "shared"


@pytest.mark.attack("paths.out", "paths.link")
@pytest.mark.parametrize("prefix", ["../../../", "bundle:../", "../../out/"])
@pytest.mark.parametrize("door", [door for door in DOORS if door != "include in a scaffold"])
def test_a_path_that_leads_out_of_the_bundle_is_refused(
    build: Build, tmp_path: Path, door: str, prefix: str
) -> None:
    """The path is refused even if the file exists."""
    for name, text in BUNDLE.items():
        path = tmp_path / Path(name).name
        if name.startswith("shared/") and not name.startswith("shared/tree"):
            path.write_text(text)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/f").write_text("x")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle/out").symlink_to("..")
    templates = {f"roles/web/{name}": with_prefix(prefix, text) for name, text in TEMPLATES.items()}
    files = {**BUNDLE, **templates, "roles/web/main.yaml": with_prefix(prefix, DOORS[door])}
    try:
        output = str(written(build(files), tmp_path))
    except ManifestError as error:
        output = str(error)
    assert "is outside of the bundle" in output
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "reference", ["apply#../base.yaml", "apply#bundle:roles/base.yaml", "apply#roles/base.yaml"]
)
def test_a_child_is_referred_to_by_any_path_that_means_it(build: Build, reference: str) -> None:
    manifest = build(
        {
            "manifest.yaml": "resources: [{apply: [{roles/base.yaml: }, {roles/web/main.yaml: }]}]",
            "roles/base.yaml": "resources: [{exec: {name: one}}]",
            "roles/web/main.yaml": f"resources: [{{exec: {{name: two, require: ['{reference}']}}}}]",
        }
    )
    assert manifest.names_of("apply") == ["roles/base.yaml", "roles/web/main.yaml"]
    position = manifest.names_of("exec").index("two")
    two = [d.properties.name for d in manifest.declarations].index("two")
    assert position == 1
    required = [manifest.declarations[index].properties.name for _, index in manifest.requirements(two)]
    assert required == ["roles/base.yaml"]


def test_the_names_of_children_are_relative_to_the_top_manifest(build: Build) -> None:
    manifest = build(
        {
            "manifest.yaml": "resources: [{apply: {name: roles/web/main.yaml}}]",
            "roles/web/main.yaml": "resources: [{apply: [{../a.yaml: }, {'bundle:roles/b.yaml': }, {c.yaml: }]}]",
            "roles/a.yaml": "resources: [{exec: {name: a}}]",
            "roles/b.yaml": "resources: [{exec: {name: b}}]",
            "roles/web/c.yaml": "resources: [{exec: {name: c}}]",
        }
    )
    names = ["roles/a.yaml", "roles/b.yaml", "roles/web/c.yaml", "roles/web/main.yaml"]
    assert manifest.names_of("apply") == names
    places = [
        declaration.where for declaration in manifest.declarations if declaration.type.type_name == "exec"
    ]
    assert places == ["bundle/roles/a.yaml:1", "bundle/roles/b.yaml:1", "bundle/roles/web/c.yaml:1"]


def test_a_library_that_is_not_declared_is_named(build: Build) -> None:
    with pytest.raises(ManifestError) as caught:
        build({"manifest.yaml": "resources: [{apply: {name: 'comon:vhost.yaml'}}]"})
    assert str(caught.value) == (
        "bundle/manifest.yaml:1: resources[0] apply#comon:vhost.yaml: comon:vhost.yaml: "
        "the bundle names no library 'comon' (known: bundle), and there is no such file"
    )


def test_a_failure_in_a_template_names_it_from_the_bundle(build: Build, tmp_path: Path) -> None:
    files = {
        "manifest.yaml": "resources: [{apply: {name: roles/main.yaml}}]",
        "roles/main.yaml": FILE % "template: bundle:shared/bad.j2",
        "shared/bad.j2": "\n{{ nope }}",
    }
    output = written(build(files), tmp_path)[0]
    assert "bundle:shared/bad.j2:2:4: unknown name 'nope'" in output
