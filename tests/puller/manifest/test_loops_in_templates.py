"""Includes, imports and calls in templates of loops: visible names, and files, also in libraries."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from puller.reporting.report import Event

Apply = Callable[..., dict[str, Event]]

SHARED = {
    "manifest.yaml": "libraries: {common: ../common}\nresources: []\n",
    "own": "of web",
    "inner.j2": "wrong",
    "last.j2": "wrong",
    "../common/library.yaml": "",
    "../common/own": "of common",
    "../common/outer.j2": "{% include 'inner.j2' %}",
    "../common/inner.j2": "{{ vhost.name }} {{ port }} {{ read_file('own') }} {{ data.domain }}",
    "../common/calls.j2": "{{ template('next.j2', port=port + 1) }}",
    "../common/next.j2": "{% include 'inner.j2' %} {{ template('last.j2') }}",
    "../common/last.j2": "{{ vhost.name }} {{ port | default('-') }} {{ file('own') }}",
    "../common/macros.j2": (
        "{% macro said() %}{{ vhost is defined }} {{ vhost.name | default('-') }} {{ port is defined }}{% endmacro %}"
    ),
    "../common/uses.j2": "{% import 'macros.j2' as m %}{{ m.said() }} {{ template('macros_of_it.j2') }}",
    "../common/macros_of_it.j2": "{% from 'macros.j2' import said %}{{ said() }}",
    "../common/x.jet": "[[ vhost.name ]] [[ port ]] [[ readFile(`own`) ]] [[ lookup(`vhost.name`) ]] [[ data.domain ]]",
    "../common/x.tmpl": "{{ .vhost.name }} {{ .port }} {{ file `own` }} {{ lookup `vhost.name` }} {{ .data.domain }}",
    "../common/to_jet.j2": "{{ template('x.jet', port=port) }}",
    "../common/to_go.j2": "{% set port = port %}{{ template('x.tmpl') }}",
}
MANIFEST = """
libraries: {common: ../common}
data: {domain: example.org, vhosts: [{name: shop}, {name: blog}]}
resources:
  - file:
      - defaults: {IDS}
      - for: vhost in data.vhosts
        "DIR/{{ vhost.name }}": {%s}
"""


def written(apply_all: Apply, tmp_path: Path, properties: str, files: Mapping[str, str]) -> list[str]:
    events = apply_all({**SHARED, **files, "manifest.yaml": MANIFEST % properties})
    assert [error for event in events.values() for error in event.errors] == []
    return [(tmp_path / name).read_text() for name in ("shop", "blog")]


CALLS = [
    ("outer.j2', port=80", "NAME 80 of common example.org"),
    ("calls.j2', port=80", "NAME 81 of common example.org NAME 81 of common"),
    ("uses.j2', port=80", "True NAME True True NAME True"),
    ("uses.j2'", "True NAME False True NAME False"),
    ("x.jet', port=80", "NAME 80 of common NAME example.org"),
    ("x.tmpl', port=80", "NAME 80 of common NAME example.org"),
    ("to_jet.j2', port=80", "NAME 80 of common NAME example.org"),
    ("to_go.j2', port=80", "NAME 80 of common NAME example.org"),
]


@pytest.mark.parametrize(("call", "text"), CALLS)
def test_library_template_sees_the_loop_its_data_and_files(
    apply_all: Apply, tmp_path: Path, call: str, text: str
) -> None:
    expected = [text.replace("NAME", name) for name in ("shop", "blog")]
    properties = f'content: "{{{{ template(\'common:{call}) }}}}"'
    assert written(apply_all, tmp_path, properties, {}) == expected
    by_template = {"main.j2": f"{{{{ template('common:{call}) }}}}"}
    (tmp_path / "shop").unlink()
    assert written(apply_all, tmp_path, "template: main.j2", by_template) == expected


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% set port = 1 %}{% include 'common:outer.j2' %}", "NAME 1 of common example.org"),
        ("{% for port in [1] %}{% include 'common:calls.j2' %}{% endfor %}", None),
        ("{% from 'common:macros.j2' import said %}{{ said() }}", "True NAME False"),
        ("{% from 'common:macros.j2' import said without context %}{{ said() }}", "True NAME False"),
        ("{% for vhost in [{'name': 'x'}] %}{{ template('common:last.j2') }}{% endfor %}", "x - of common"),
        ("{% macro m(port) %}{{ template('common:last.j2') }}{% endmacro %}{{ m(7) }}", "NAME 7 of common"),
        ("{{ template('common:last.j2') }} {{ template('bundle:mine.j2') }}", "NAME - of common NAME of web"),
    ],
)
def test_imported_template_sees_manifest_and_template_loops(
    apply_all: Apply, tmp_path: Path, template: str, text: str | None
) -> None:
    text = text or "NAME 2 of common example.org NAME 2 of common"
    files = {"main.j2": template, "mine.j2": "{{ vhost.name }} {{ read_file('own') }}"}
    expected = [text.replace("NAME", name) for name in ("shop", "blog")]
    assert written(apply_all, tmp_path, "template: main.j2", files) == expected


@pytest.mark.parametrize("name", ["main.j2", "main.jet", "main.tmpl"])
def test_data_of_a_file_is_seen_beside_its_loop(apply_all: Apply, tmp_path: Path, name: str) -> None:
    texts = {
        "main.j2": "{{ vhost.name }} {{ data.port }} {{ data.domain is defined }} {{ template('common:data.j2') }}",
        "main.jet": "[[ vhost.name ]] [[ data.port ]] [[ isset(data.domain) ? `True` : `False` ]] [[ data.port ]]",
        "main.tmpl": "{{ .vhost.name }} {{ .data.port }} {{ hasKey .data `domain` | print | title }} {{ .data.port }}",
    }
    files = {**texts, "../common/data.j2": "{{ data.port }}"}
    properties = f'template: {name}, data: {{port: "{{{{ vhost.name | length }}}}"}}'
    assert written(apply_all, tmp_path, properties, files) == ["shop 4 False 4", "blog 4 False 4"]


def test_a_scaffold_of_a_library_hands_the_loop_to_its_partials(apply_all: Apply, tmp_path: Path) -> None:
    manifest = """
libraries: {common: ../common}
data: {vhosts: [{name: shop}]}
resources:
  - scaffold:
      - for: vhost in data.vhosts
        "DIR/{{ vhost.name }}": {source: "common:tree", engine: jinja, data: {port: 80}}
"""
    files = {
        "../common/tree/a": "{{ render('_partials/p', {'x': 1}) }} {{ template('last.j2', port=2) }}",
        "../common/tree/_partials/p": "{{ vhost.name }} {{ x }} {{ data.port }} {{ read_file('own') }}",
    }
    events = apply_all({**SHARED, **files, "manifest.yaml": manifest})
    assert [error for event in events.values() for error in event.errors] == []
    assert (tmp_path / "shop/a").read_text() == "shop 1 80 of common shop 2 of common"


def test_late_template_sees_the_loop_and_its_library(apply_all: Apply, tmp_path: Path) -> None:
    manifest = """
libraries: {common: ../common}
data: {domain: example.org, vhosts: [{name: shop}]}
resources:
  - file:
      - defaults: {IDS}
      - DIR/web/late.j2: {source: late.txt}
      - for: vhost in data.vhosts
        "DIR/{{ vhost.name }}": {content: "{{ template('late.j2', port=1) }}"}
"""
    files = {"late.txt": "{{ vhost.name }} {{ port }} {{ template('common:calls.j2') }}"}
    events = apply_all({**SHARED, **files, "manifest.yaml": manifest})
    assert [error for event in events.values() for error in event.errors] == []
    assert (tmp_path / "shop").read_text() == "shop 1 shop 2 of common example.org shop 2 of common"
