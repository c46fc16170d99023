"""Loops and rendered lists on the command line: the item that declares a resource, and the output of templates."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from puller.cli import main


class Done(NamedTuple):
    status: int
    out: str
    err: str


Puller = Callable[..., Done]

MANIFEST = """\
data:
  vhosts: {shop: {port: 81}, blog: {port: 80}}
resources:
  - exec:
      - for: name, vhost in data.vhosts
        "check {{ name }}": {timeout: "{{ vhost.port }}s", environment: ["ROLE={{ facts.role }}"]}
      - for: disk in facts.disks
        "mkfs {{ disk }}": {}
"""


@pytest.fixture
def puller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Puller:
    """Return a function that runs ``puller`` in a directory whose ``web`` has the manifest above."""
    monkeypatch.chdir(tmp_path)
    Path("web").mkdir()
    Path("web/manifest.yaml").write_text(MANIFEST)

    def run(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--no-system-facts"])
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return run


def test_render_says_which_item_a_resource_comes_from(puller: Puller) -> None:
    done = puller("render", "web", "--fact", "role=db")
    shop, blog, disks = yaml.safe_load(done.out)["resources"]
    assert shop["exec"][0]["check shop"]["timeout"] == "81.0"
    assert shop["exec"][0]["item"] == "web/manifest.yaml:6: for name, vhost in data.vhosts: name is 'shop'"
    assert blog["exec"][0]["item"].endswith("name is 'blog'")
    assert disks["exec"][0] == {
        "mkfs {{ disk }}": {
            "error": "for disk in facts.disks: {{ facts.disks }}: unknown key 'disks' in facts"
        },
        "item": "web/manifest.yaml:8: for disk in facts.disks",
    }


def test_explain_names_the_loop_item_and_its_inputs(puller: Puller) -> None:
    (result,) = json.loads(
        puller("explain", "exec#check shop", "web", "--fact", "role=db", "--format", "json").out
    )
    assert result["item"] == "for name, vhost in data.vhosts: name is 'shop'"
    assert {use["name"]: use["value"] for use in result["uses"]} == {
        "data.vhosts": {"shop": {"port": 81}, "blog": {"port": 80}},
        "facts.role": "db",
    }
    lines = puller("explain", "exec#check blog", "web", "--fact", "role=db").out.splitlines()
    assert lines[1:3] == [
        "  declared at web/manifest.yaml:6",
        "  for name, vhost in data.vhosts: name is 'blog'",
    ]


def test_explain_finds_an_unevaluated_loop_by_its_source(puller: Puller) -> None:
    lines = puller("explain", "exec#mkfs {{ disk }}", "web").out.splitlines()
    assert lines[2:4] == [
        "  for disk in facts.disks",
        "  cannot be applied on this host: for disk in facts.disks: {{ facts.disks }}: unknown key 'disks' in facts",
    ]


def test_lint_lists_a_loop_that_these_facts_do_not_have(puller: Puller) -> None:
    done = puller("lint", "web", "-v", "--fact", "role=db")
    assert done.status == 0
    assert done.out.splitlines() == [
        "web/manifest.yaml:8:9: unchecked: exec#mkfs {{ disk }}: for disk in facts.disks: {{ facts.disks }}: "
        "unknown key 'disks' in facts [depends-on-facts]",
        "Explanations: puller help CODE",
        "web: 3 resources, 0 errors, 0 warnings, 1 expression not checked",
    ]


def test_lint_names_the_item_of_a_loop(puller: Puller) -> None:
    lines = puller("lint", "web", "-v").out.splitlines()
    assert lines[0] == (
        "web/manifest.yaml:6:60: unchecked: exec#check shop: environment: [0]: {{ facts.role }}: "
        "unknown key 'role' in facts (for name, vhost in data.vhosts: name is 'shop') [depends-on-facts]"
    )


LIST = "{% for name in data.names %}\n- exec: {name: echo {{ name }}}\n{% endfor %}\n"


def test_source_shows_the_text_that_a_template_has_made(puller: Puller) -> None:
    Path("web/manifest.yaml").write_text(
        "data: {names: [a, b]}\nresources_template: list.j2\nresources: [{exec: {name: 'true'}}]\n"
    )
    Path("web/list.j2").write_text(LIST)
    assert puller("render", "web", "--source").out == (
        "# web/list.j2 (rendered)\n    1  - exec: {name: echo a}\n    2  - exec: {name: echo b}\n"
    )
    assert json.loads(puller("render", "web", "--source", "--format", "json").out) == {
        "web/list.j2 (rendered)": "- exec: {name: echo a}\n- exec: {name: echo b}\n"
    }
    resources = yaml.safe_load(puller("render", "web").out)["resources"]
    assert [list(entry["exec"][0]) for entry in resources] == [["true"], ["echo a"], ["echo b"]]


@pytest.mark.parametrize("name", ["a: b", "a}, ownr: {"])
def test_source_shows_the_text_that_an_error_points_into(puller: Puller, name: str) -> None:
    Path("web/manifest.yaml").write_text(
        f"data: {{names: [c, '{name}']}}\nresources: []\nresources_template: list.j2\n"
    )
    Path("web/list.j2").write_text(LIST)
    done = puller("render", "web", "--source")
    assert done.status == 13
    assert "web/list.j2 (rendered):2" in done.err
    assert f"    2  - exec: {{name: echo {name}}}\n" in done.out


def test_source_of_a_template_with_secrets_at_hand_is_not_shown(puller: Puller) -> None:
    Path("web/manifest.yaml").write_text("resources: []\nresources_template: list.j2\n")
    Path("web/hiera.yaml").write_text("{version: 5, hierarchy: [{name: common, path: common.yaml}]}\n")
    Path("web/data").mkdir()
    Path("web/data/common.yaml").write_text(
        "lookup_options: {a: {convert_to: Sensitive}}\na: hunter2-canary\n"
    )
    Path("web/list.j2").write_text("- exec: {name: 'true', environment: ['A={{ data.a }}']}\n")
    done = puller("render", "web", "--source")
    assert (done.status, done.out) == (0, "# web/list.j2 (rendered)\n    1  (sensitive)\n")


def test_source_without_a_template_says_so(puller: Puller) -> None:
    done = puller("render", "web", "--source")
    assert (done.out, done.err) == ("", "puller: web/manifest.yaml: has no resources_template\n")


def test_alias_of_an_unevaluated_loop_is_a_valid_requirement(
    puller: Puller,
) -> None:
    Path("one").mkdir()
    Path("one/manifest.yaml").write_text(
        "resources:\n  - exec:\n      - for: disk in facts.no_such_fact\n"
        '        "mkfs {{ disk }}": {alias: format}\n      - mount: {require: [exec#format]}\n'
    )
    done = puller("lint", "one")
    assert (done.status, "0 errors, 0 warnings, 1 expression not checked" in done.out) == (0, True), done.out
    assert puller("render", "one").status == 0
