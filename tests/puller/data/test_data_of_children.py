"""A child manifest uses the same Hiera tree and the same external data as its parent."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hiera.expressions.expressions import evaluate
from hiera.values import Secret
from puller.data.sources import DataSource, Origin
from puller.errors import ManifestError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host, Publisher

TREE = {
    "hiera.yaml": "version: 5\nhierarchy: [{name: role, path: role.yaml}, {name: common, path: common.yaml}]\n",
    "data/role.yaml": "classes: [web, base]\nlimits: {open: 100}\nport: 8001\n",
    "data/common.yaml": "classes: [base, ntp]\nlimits: {stack: 1}\nlookup_options: {limits: {merge: deep}}\n",
}
RESOURCE = "resources: [{exec: {name: CHILD, command: 'true'}}]\n"

Load = Callable[..., Manifest]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return ``load({name: text}, outside…)``, which loads ``manifest.yaml`` with external data."""

    def build(files: Mapping[str, str], *outside: Mapping[str, Any]) -> Manifest:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(textwrap.dedent(text))
        sources = tuple(DataSource(Origin.HOST, "data.yaml", data) for data in outside)
        return load_manifest(tmp_path / "manifest.yaml", "web/manifest.yaml", Inputs({}, {}, sources))

    return build


def given(data: str) -> dict[str, str]:
    """Return a parent, a child with ``data``, and a grandchild."""
    return {
        "manifest.yaml": f"""
            data: {{port: 1, list: [parent], own: parent, limits: {{cpu: 9}}}}
            resources: [{{apply: {{name: child.yaml, {data}}}}}]
        """,
        "child.yaml": """
            data: {port: 2, list: [child], limits: {io: 7}}
            resources: [{apply: {name: deep/grandchild.yaml}}]
        """,
        "deep/grandchild.yaml": "data: {list: [grandchild]}\n" + RESOURCE,
    }


def seen(manifest: Manifest, expression: str) -> list[Any]:
    """Return the values of an expression in the parent, the child and the grandchild."""
    grandchild, child, _ = manifest.declarations
    return [
        evaluate(expression, scope) for scope in (manifest.scope, child.home.scope, grandchild.home.scope)
    ]


@pytest.mark.parametrize("handed", ["", "data: {port: 3}", "data: {}"])
def test_external_data_override_data_from_a_parent(load: Load, handed: str) -> None:
    manifest = load(given(handed), {"port": 4, "list": ["host"]}, {"limits": {"open": 5}})
    assert seen(manifest, "data.port") == [4, 4, 4]
    assert seen(manifest, "data.list") == [["host"]] * 3
    assert seen(manifest, "data.limits.open") == [5, 5, 5]


@pytest.mark.parametrize("handed", ["", "data: {}", "data: {other: 1}"])
@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("hiera('classes')", ["web", "base"]),
        ("hiera('classes', merge='unique')", ["web", "base", "ntp"]),
        ("hiera('limits.stack')", 1),
        ("data.limits.open", 100),
        ("data.classes", ["web", "base"]),
        ("data.port", 8001),
    ],
)
def test_a_child_asks_the_same_tree(load: Load, handed: str, expression: str, wanted: Any) -> None:
    assert seen(load({**given(handed), **TREE}), expression) == [wanted] * 3


def test_given_data_are_between_the_tree_and_external_data(load: Load) -> None:
    files = {**given("data: {port: 3, classes: [handed], limits: {open: 6, disk: 8}}"), **TREE}
    manifest = load(files, {"limits": {"disk": 0}})
    assert seen(manifest, "data.port") == [8001, 3, 3]
    assert seen(manifest, "hiera('classes', merge='unique')")[1:] == [["handed", "web", "base", "ntp"]] * 2
    assert seen(manifest, "data.classes")[1:] == [["web", "base", "handed"]] * 2
    assert seen(manifest, "data.limits")[1] == {"io": 7, "stack": 1, "open": 6, "disk": 0}


def test_child_without_data_inherits_the_documents(load: Load) -> None:
    manifest = load({**given(""), **TREE})
    assert seen(manifest, "data.own") == ["parent"] * 3
    assert seen(manifest, "data.list") == [["parent"], ["child", "parent"], ["grandchild", "child", "parent"]]
    assert seen(manifest, "data.limits.cpu") == [9, 9, 9]
    with pytest.raises(Exception, match="unknown key 'own'"):
        seen(load({**given("data: {}"), **TREE}), "data.own")


def test_sensitive_data_of_a_parent_are_sensitive_in_children(load: Load) -> None:
    files = {**given("data: {}"), **TREE, "data/role.yaml": "token: hunter2\n"}
    files["manifest.yaml"] = (
        "data:\n  # @sensitive\n  token: null\nresources: [{apply: {name: child.yaml, data: {}}}]\n"
    )
    assert seen(load(files), "data.token") == [Secret("hunter2")] * 3
    assert seen(load(files), "hiera('token', merge='first')") == [Secret("hunter2")] * 3


def test_rules_of_a_child_hold_for_data_from_outside(load: Load) -> None:
    files = given("data: {port: 3}")
    files["child.yaml"] = "data:\n  # @validate value < 100\n  port: 2\n" + RESOURCE
    with pytest.raises(ManifestError, match=r"web/child.yaml:2: data.port is 4000, which does not satisfy"):
        load(files, {"port": 4000})


@pytest.mark.parametrize("handed", ["", "data: {port: 3}"])
def test_set_reaches_a_child_on_the_command_line(
    load: Load, tmp_path: Path, execute: Execute, handed: str
) -> None:
    files = given(handed)
    files["child.yaml"] = "resources: [{exec: {name: 'echo {{ data.port }}'}}]\n"
    load(files)
    status, output = execute("render", str(tmp_path), "--set", "port=4")
    assert (status, "echo 4" in output) == (0, True), output


def test_explain_tells_where_the_data_of_a_child_comes_from(
    load: Load, tmp_path: Path, execute: Execute
) -> None:
    files = {**given("data: {port: 3}"), **TREE}
    files["deep/grandchild.yaml"] = "resources: [{exec: {name: one, command: 'echo {{ data.port }}'}}]\n"
    load(files)
    manifest = f"{tmp_path}/manifest.yaml"
    status, output = execute("explain", "exec#one", manifest, "--format", "json")
    (use,) = json.loads(output)[0]["uses"]
    assert (status, use["value"]) == (0, 3)
    assert use["from"] == [f"{manifest}:3"]

    status, output = execute("explain", "port", manifest, "--format", "json")
    parent, child, grandchild = json.loads(output)
    assert (parent["value"], child["value"], grandchild["value"]) == (8001, 3, 3)
    assert (child["manifest"], grandchild["manifest"]) == (
        f"{tmp_path}/child.yaml",
        f"{tmp_path}/deep/grandchild.yaml",
    )
    assert [(source["source"], source.get("value")) for source in child["sources"]] == [
        ("parent manifest", 3),
        ("bundle tree", 8001),
        ("manifest", 2),
    ]
    status, output = execute("explain", "port", manifest)
    assert f"port in {manifest}, {tmp_path}/child.yaml: 3\n" in output
    assert (
        len(
            json.loads(
                execute("explain", "limits.cpu", manifest, "--set", "limits.cpu=1", "--format", "json")[1]
            )
        )
        == 1
    )


BROKEN = """
    data: {port: "{{ facts.nope }}", web: {port: "{{ facts.nope }}", user: www}, list: ["{{ facts.nope }}"]}
    resources: [{exec: {name: one, command: "true"}}]
"""


def test_unresolvable_value_is_harmless_when_replaced(load: Load) -> None:
    above = {"port": 1, "web": {"port": 2}, "list": [3]}
    assert load({"manifest.yaml": BROKEN}, above).data.all == {**above, "web": {"port": 2, "user": "www"}}
    assert load({"manifest.yaml": BROKEN}, {**above, "web": None}).data.all["web"] is None
    tree = {**TREE, "data/role.yaml": json.dumps(above)}
    assert dict(load({"manifest.yaml": BROKEN, **tree}).data.all)["port"] == 1


def test_explain_names_unresolved_values(load: Load, tmp_path: Path, execute: Execute) -> None:
    load({"manifest.yaml": BROKEN}, {"port": 1, "web": {"port": 2}, "list": [3]})
    values = ("--set", "port=1", "--set", "web.port=2", "--set", "list=[3]", "--format", "json")
    (result,) = json.loads(execute("explain", "port", str(tmp_path), *values)[1])
    assert result["value"] == 1
    assert "unknown key 'nope' in facts" in result["sources"][-1]["error"]


@pytest.mark.parametrize(
    "above", [{}, {"port": 1, "list": [3]}, {"port": {}, "web": {"port": 2}, "list": [3]}]
)
def test_a_value_that_nothing_replaces_must_be_resolved(load: Load, above: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match=r"web/manifest.yaml:2:\d+: data.*: unknown key 'nope' in facts"):
        load({"manifest.yaml": BROKEN}, above)


def test_parent_replaces_a_value_but_not_a_merged_list(
    load: Load,
) -> None:
    parent = "data: {port: 1, web: {port: 2}}\nresources: [{apply: {name: child.yaml, GIVEN}}]\n"
    good = BROKEN.replace(', list: ["{{ facts.nope }}"]', "")
    for given in ("", "data: {port: 1, web: {port: 2}}"):
        manifest = load({"manifest.yaml": parent.replace("GIVEN", given), "child.yaml": good})
        assert manifest.declarations[0].home.data.all == {"port": 1, "web": {"port": 2, "user": "www"}}
    with pytest.raises(ManifestError, match=r"web/child.yaml:2:\d+: data\.list"):
        load(
            {
                "manifest.yaml": parent.replace("port: 1,", "port: 1, list: [1],").replace("GIVEN", ""),
                "child.yaml": BROKEN,
            }
        )


def test_explain_names_the_input_of_a_method(load: Load, tmp_path: Path, execute: Execute) -> None:
    command = "echo {{ data.get('port', 1) }} {{ data.get('nope', 2) }} {{ data.web.get('user') }}"
    load(
        {
            "manifest.yaml": "data: {port: 80, web: {user: x}}\n"
            f'resources: [{{exec: {{name: one, command: "{command}"}}}}]'
        }
    )
    uses = json.loads(execute("explain", "exec#one", str(tmp_path), "--format", "json")[1])[0]["uses"]
    assert {use["name"]: use.get("value", "missing") for use in uses} == {
        "data.port": 80,
        "data.nope": "missing",
        "data.web.user": "x",
    }


def test_host_data_reach_a_child_of_a_published_bundle(host: Host, publisher: Publisher) -> None:
    files = {
        "child.yaml": b"""\
data: {text: child}
resources:
  - file:
      - "{{ facts.machine }}/motd":
          {content: "{{ data.text }}", owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
"""
    }
    manifest = """\
resources:
  - file:
      - "{{ facts.machine }}": {ensure: directory, mode: "0755", owner: "{{ facts.uid }}", group: "{{ facts.gid }}"}
  - apply: [{child.yaml: {data: {text: parent}}}]
"""
    publisher.publish("1.0.0", manifest, files=files)
    assert host.run().status == 0
    assert (host.machine / "motd").read_text() == "parent"
    (host.configuration.parent / "data.yaml").write_text("data: {text: host}\n")
    assert host.run().status == 0
    assert (host.machine / "motd").read_text() == "host"
