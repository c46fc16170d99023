"""The explanation: in Puppet's layout, as data for programs, and always without secrets."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from foundation.masking import VALUE_MASK
from hiera.errors import HieraError, KeyNotFound
from hiera.tree.explain import Step, recorder
from hiera.tree.lookup import Tree
from hiera.tree.ruby_values import printable

MakeTree = Callable[..., Tree]


def explained(tree: Tree, key: str, **question: Any) -> Step:
    step = recorder()
    try:
        tree.lookup(key, step=step, **question)
    except KeyNotFound:
        pass
    return step


def test_explanation_lists_each_layer_level_and_path(make_tree: MakeTree) -> None:
    tree = make_tree({"data/common.yaml": "a: 'role %{facts.name}'\nlookup_options: {b: {merge: unique}}"})
    assert (
        str(explained(tree, "a"))
        == """\
Searching for "lookup_options"
  Environment Data Provider (hiera configuration version 5)
    Using configuration "/env/hiera.yaml"
    Merge strategy hash
      Hierarchy entry "node"
        Path "/env/data/nodes/web01.yaml"
          Original path: "nodes/%{facts.name}.yaml"
          Path not found
      Hierarchy entry "common"
        Path "/env/data/common.yaml"
          Original path: "common.yaml"
          Found key: "lookup_options" value: {
            "b" => {
              "merge" => "unique"
            }
          }
      Merged result: {
        "b" => {
          "merge" => "unique"
        }
      }
Searching for "a"
  Environment Data Provider (hiera configuration version 5)
    Using configuration "/env/hiera.yaml"
    Hierarchy entry "node"
      Path "/env/data/nodes/web01.yaml"
        Original path: "nodes/%{facts.name}.yaml"
        Path not found
    Hierarchy entry "common"
      Path "/env/data/common.yaml"
        Original path: "common.yaml"
        Interpolation on "role %{facts.name}"
          Global Scope
            Found key: "facts" value: "…"
          Sub key: "name"
            Found key: "name" value: "web01"
        Found key: "a" value: "role web01\""""
    )


def test_merging_options_and_conversion_are_told(make_tree: MakeTree) -> None:
    files = {
        "data/nodes/web01.yaml": "a: [1]",
        "data/common.yaml": "lookup_options:\n"
        "  a: {merge: {strategy: deep, knockout_prefix: x}, convert_to: [Array, true]}\n"
        "a: [2]",
    }
    text = str(explained(make_tree(files), "a"))
    assert 'Using merge options from "lookup_options" hash\nSearching for "a"' in text
    assert '    Merge strategy deep\n      Options: {\n        "knockout_prefix" => "x"\n      }\n' in text
    assert "      Merged result: [\n        2,\n        1\n      ]\n" in text
    assert text.endswith("Applying convert_to lookup_option with arguments [Array, true]")


def test_explanation_gives_the_reason_of_a_miss(make_tree: MakeTree) -> None:
    tree = make_tree({"data/common.yaml": "a: {b: 1}", "modules/m/x": ""})
    assert '  Sub key: "c"\n    No such key: "c"' in str(explained(tree, "a.c"))
    assert '  Module "zz" not found' in str(explained(tree, "zz::a"))
    assert '  Module data provider for module "m" not found' in str(explained(tree, "m::a"))
    assert 'Invalid key "lookup_options"' in str(explained(tree, "lookup_options"))


def test_an_error_is_the_last_line(make_tree: MakeTree) -> None:
    step = recorder()
    with pytest.raises(HieraError):
        make_tree({"data/common.yaml": "a: \"%{lookup('b.c')}\"\nb: text"}).lookup("a", step=step)
    assert str(step).splitlines()[-1].startswith("b.c: Data Provider type mismatch: Got String")


def test_the_same_is_given_as_data(make_tree: MakeTree) -> None:
    step = explained(make_tree({"data/common.yaml": "a: 1"}), "a")
    data = json.loads(json.dumps(printable(step.as_data())))
    search = data["branches"][1]
    assert (search["type"], search["name"]) == ("data", "a")
    level = search["branches"][0]["branches"][1]
    assert (level["type"], level["name"]) == ("level", "common")
    assert level["branches"][0] == {
        "type": "path",
        "name": "/env/data/common.yaml",
        "original": "common.yaml",
        "event": "found",
        "key": "a",
        "value": 1,
    }
    assert step.holders() == [("common", "/env/data/common.yaml")]


def test_sensitive_key_is_masked_in_the_whole_explanation(make_tree: MakeTree) -> None:
    text = """
        lookup_options: {p: {convert_to: Sensitive}}
        p: "hunter2 %{lookup('q')}"
        q: hunter3
        via: "%{alias('p')}"
    """
    tree = make_tree({"data/common.yaml": text})
    for key in ("p", "via"):
        step = explained(tree, key)
        everything = str(step) + json.dumps(printable(step.as_data()))
        assert "hunter" not in everything
        assert VALUE_MASK in everything
