"""Manifests in the notation of CCM: ``${ … }`` is an expression in a document with a ``ccm`` section."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hiera.document.document import Document
from puller.errors import ManifestError
from puller.manifest.manifest import Manifest
from puller.reporting.report import Event, Health, State

Load = Callable[..., Manifest]

MANIFEST = """\
data: {package: httpd, path: "/etc/${ Data.package }", shell: "${HOME}/bin"}
ccm:
  resources:
    - package:
        - "${ Data.package }": {ensure: present}
    - file:
        - "${ Data.path }/listen.conf":
            content: "Listen ${ 8000 + 80 } ${HOME} ${1} ${a:-b} {{ Data.package }}"
            owner: root
            group: root
            mode: "0644"
            require: ["package#${ Data.package }"]
    - exec:
        - /bin/true:
            control: {if: "${ Data.package == 'apache2' && !false }"}
hierarchy:
  order: ["os:${ lookup('facts.os') }"]
overrides:
  os:debian: {package: apache2}
"""


def names(manifest: Manifest) -> list[str]:
    return [declaration.reference for declaration in manifest.declarations]


def test_expressions_of_ccm_are_evaluated(load_all: Load) -> None:
    manifest = load_all({"manifest.yaml": MANIFEST}, os="debian")
    assert names(manifest) == ["package#apache2", "file#/etc/apache2/listen.conf", "exec#/bin/true"]
    properties: Any = manifest.declarations[1].properties
    assert properties.content == "Listen 8080 ${HOME} ${1} ${a:-b} apache2"
    assert manifest.scope.data["shell"] == "${HOME}/bin"


def test_other_documents_keep_the_text_except_in_the_order(load_all: Load) -> None:
    text = """
        data: {a: "${ Data.x }", b: 1}
        hierarchy: {order: ["os:${ lookup('facts.os') }"]}
        overrides: {os:debian: {b: 2}}
        resources: [{exec: [{"true": {}}]}]
    """
    manifest = load_all({"manifest.yaml": text}, os="debian")
    assert manifest.scope.data == {"a": "${ Data.x }", "b": 2}


def test_order_of_a_single_document_has_expressions_of_ccm() -> None:
    text = """{"hierarchy": {"order": ["fqdn:${ lookup('facts.fqdn') }"]}, "data": {"test": "value"},
               "overrides": {"fqdn:my.fqdn.com": {"test": "override"}}}"""
    document = Document.parse(text, "data.json")
    assert document.resolve({"fqdn": "my.fqdn.com"}).data == {"test": "override"}
    assert document.resolve({"fqdn": "other.fqdn.com"}).data == {"test": "value"}


def test_resources_of_a_jet_file_are_converted(load_all: Load) -> None:
    files = {
        "manifest.yaml": "data: {names: [a, b], suffix: x}\nccm: {resources_jet_file: resources.jet}\n",
        "resources.jet": "[[ range Data.names ]]\n- package:\n    - '[[ . ]]-${ Data.suffix }'\n[[ end ]]",
    }
    assert names(load_all(files)) == ["package#a-x", "package#b-x"]


CONDITIONS = {
    "Data.a ?? 'x'": "A",
    "Data.missing ?? 'x'": "x",
    "Data.null ?? Data.missing ?? 'x'": "x",
    "(Data.null ?? Data.a) + 'x'": "Ax",
    "Data.a == 'A' ? 'yes' : 'no'": "yes",
    "Data.list ? Data.null ?? 'y' : 'n'": "y",
    "!Data.list ? 'a' : Data.a == 'B' ? 'b' : 'c'": "c",
    "Data.list ? Data.null ? 'a' : 'b' : 'c'": "b",
    "Data.a ?? 'x' ? 'yes' : 'no'": "yes",
    "Data.a ?: 'x'": "A",
    "Data?.missing?.deeper ?? 'x'": "x",
    "lookup('data.missing') ?? 'x'": "x",
    "lookup('data.missing', Data.null ?? 'y')": "y",
    "['? : ??', Data.null ?? 'b'][1]": "b",
    "'a ? b : c'": "a ? b : c",
}


@pytest.mark.parametrize("expression", CONDITIONS)
def test_conditions_of_ccm_have_its_results(load_all: Load, expression: str) -> None:
    data = "data: {a: A, 'null': null, list: [1]}"
    text = f"{data}\nccm:\n  resources:\n    - exec:\n        - |-\n          ${{ {expression} }}\n"
    assert names(load_all({"manifest.yaml": text})) == [f"exec#{CONDITIONS[expression]}"]


WITHOUT_EQUIVALENT = ["Data.a ? 1", "Data.a ??", "? :", "filter(l, # > 1)"]


@pytest.mark.parametrize("expression", WITHOUT_EQUIVALENT)
def test_expressions_without_equivalent_are_errors(load_all: Load, expression: str) -> None:
    text = f"data: {{a: 1}}\nccm:\n  resources:\n    - package: ['${{ {expression} }}']\n"
    with pytest.raises(ManifestError, match="is not valid"):
        load_all({"manifest.yaml": text})


CHILD = """\
resources:
  - file: [{DIR/a: {content: x, IDS, health_checks: [{command: test -e DIR/b}]}}]
  - apply: [grandchild.yaml]
"""
GRANDCHILD = "resources: [{file: [{DIR/c: {content: x, IDS}}]}]\n"


@pytest.mark.parametrize("setting", ["health_check_only: true", "health_check_only: '{{ 1 == 1 }}'"])
def test_health_check_only_runs_checks_without_changes(
    apply_all: Callable[..., dict[str, Event]], tmp_path: Path, setting: str
) -> None:
    manifest = f"resources: [{{apply: [{{child.yaml: {{provider: ccmmanifest, {setting}}}}}]}}]\n"
    files = {"manifest.yaml": manifest, "child.yaml": CHILD, "grandchild.yaml": GRANDCHILD}
    events = apply_all(files)
    assert events[f"{tmp_path}/a"].state is State.FAILED
    assert [check.status for check in events[f"{tmp_path}/a"].health_checks] == [Health.WARNING]
    assert events[f"{tmp_path}/c"].state is State.WOULD_CHANGE
    assert events["child.yaml"].state is State.FAILED
    (tmp_path / "b").touch()
    events = apply_all(files)
    assert [event.state for event in events.values()].count(State.FAILED) == 0
    assert not (tmp_path / "a").exists()
    assert not apply_all(files, noop=True)[f"{tmp_path}/a"].health_checks
