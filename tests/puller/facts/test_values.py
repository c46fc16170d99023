"""Invariants of merging and of serialized facts."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from puller.facts import fact_values
from puller.facts.fact_values import ABSENT, FactError, merged
from tests.support.rows import each_row

names = st.text("abc", min_size=1, max_size=2)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False)
)
trees = st.dictionaries(
    names,
    st.recursive(
        scalars, lambda below: st.lists(below, max_size=3) | st.dictionaries(names, below, max_size=3)
    ),
    max_size=3,
)


@given(trees)
def test_merging_with_nothing_changes_nothing(tree: dict[str, Any]) -> None:
    assert merged({}, tree) == merged(tree, {}) == merged(tree, tree) == merged(tree, ABSENT) == tree


@given(trees, trees)
def test_merged_facts_are_complete(low: dict[str, Any], high: dict[str, Any]) -> None:
    result = merged(low, high)

    assert merged(result, high) == result
    assert result.keys() == low.keys() | high.keys()
    assert {name: result[name] for name in low.keys() - high.keys()} == {
        name: low[name] for name in low.keys() - high.keys()
    }


@given(trees, trees)
def test_merging_leaves_its_inputs_alone(low: dict[str, Any], high: dict[str, Any]) -> None:
    before = json.dumps([low, high])
    merged(low, high)
    assert json.dumps([low, high]) == before


@given(trees)
def test_json_and_yaml_give_the_same_facts(tree: dict[str, Any]) -> None:
    assert fact_values.parse(json.dumps(tree).encode(), "json", "x") == tree
    assert fact_values.parse(yaml.safe_dump(tree).encode(), "yaml", "x") == tree


@given(st.binary(max_size=60), st.sampled_from(["json", "yaml", "txt"]))
def test_any_bytes_give_facts_or_an_error_of_ours(text: bytes, form: str) -> None:
    try:
        facts = fact_values.parse(text, form, "x")
    except FactError as error:
        assert str(error).startswith("x")
    else:
        assert isinstance(facts, dict)


def test_number_keys_of_yaml_become_text_as_json_has_them() -> None:
    assert fact_values.parse(b"ports: {80: [{443: tls}]}", "yaml", "x") == {"ports": {"80": [{"443": "tls"}]}}


@each_row(
    ("text", "tree"),
    [
        ("role=web", {"role": "web"}),
        ("site.rack=b4", {"site": {"rack": "b4"}}),
        (r"net\.ipv4=1", {"net.ipv4": "1"}),
        ("version=5.10", {"version": "5.10"}),
        ("mode=0644", {"mode": "0644"}),
        ("empty=", {"empty": ""}),
        ("equation=a=b", {"equation": "a=b"}),
    ],
)
def test_an_assignment_is_text_at_a_path(text: str, tree: dict[str, Any]) -> None:
    assert fact_values.assignment(text, "--fact") == tree


def test_an_assignment_that_is_not_text_is_refused() -> None:
    with pytest.raises(FactError, match="is not text"):
        fact_values.assignment("name=caf\udce9", "--fact")


@pytest.mark.parametrize("text", ["role", "=web", "a..b=1", ".a=1", "a.=1", ""])
def test_an_assignment_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(FactError) as caught:
        fact_values.assignment(text, "--fact")
    assert str(caught.value) == f"--fact: is {text!r}, expected NAME=VALUE or NAME.NAME=VALUE"
