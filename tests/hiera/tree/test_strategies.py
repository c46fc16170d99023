"""Strategies and deep merging: laws, and special cases that existing data rely on."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.errors import HieraError, LookupFailure
from hiera.tree import strategies
from hiera.tree.explain import ABSENT, SILENT
from hiera.tree.strategies import Options, strategy
from tests.support.rows import each_row

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b", "--a", "--", ""])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)
hashes = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@given(values, values)
def test_merging_changes_neither_value(high: Any, low: Any) -> None:
    before = copy.deepcopy((high, low))
    strategies.deep_merge(high, low, Options(knockout_prefix="--"))
    assert (high, low) == before


@given(hashes)
def test_nothing_over_a_mapping_is_the_mapping(value: dict[str, Any]) -> None:
    assert strategies.deep_merge({}, value, Options()) == value
    assert strategies.deep_merge(None, value, Options()) == value
    assert strategy("hash").merge({}, value) == value


@given(values, values, st.sampled_from(["deep", "unique", "hash", "reverse_deep"]))
def test_any_two_values_merge_or_are_refused_by_an_error_of_ours(high: Any, low: Any, name: str) -> None:
    try:
        strategy(name).merge(high, low)
    except HieraError as error:
        assert "has wrong type" in str(error)


@given(st.lists(scalars, max_size=5), st.lists(scalars, max_size=5))
def test_a_unique_merge_holds_every_value_once(high: list[Any], low: list[Any]) -> None:
    merged = strategy("unique").merge(high, low)
    assert strategy("unique").merge(merged, merged) == merged
    assert all(value in merged for value in high + low)


@each_row(
    ("high", "low", "merged"),
    [
        ([1, 2], [2, 3], [2, 3, 1]),
        ({"a": None}, {"a": 1}, {"a": 1}),
        ({"a": 1}, {"a": False}, {"a": 1}),
        ({"a": False}, {"a": 1}, {"a": False}),
        ({}, "text", "text"),
        ({"a": 1}, "text", {"a": 1}),
        ([], {"a": 1}, []),
        ({"new": [1, 1]}, {}, {"new": [1]}),
    ],
)
def test_deep_merging(high: Any, low: Any, merged: Any) -> None:
    assert strategies.deep_merge(high, low, Options()) == merged


@pytest.mark.parametrize(
    ("high", "low", "merged"),
    [
        (["--a", "c"], ["a", "b"], ["b", "c"]),
        (["--", "new"], ["old"], ["new"]),
        ("--gone", "value", ""),
        ({"--a": 1}, {"a": 2}, {"a": 2, "--a": 1}),
        (["--a", "b"], "text", ["b"]),
        (
            {"new": {"list": ["--a", "b"]}},
            {},
            {"new": {"list": []}},
        ),  # the list is emptied during iteration
    ],
)
def test_knocking_out(high: Any, low: Any, merged: Any) -> None:
    assert strategies.deep_merge(high, low, Options(knockout_prefix="--")) == merged


@pytest.mark.parametrize(
    ("options", "high", "low", "merged"),
    [
        (Options(sort_merged_arrays=True), [3, 1], [2], [1, 2, 3]),
        (Options(merge_hash_arrays=True), [{"a": 1}], [{"b": 2}, {"c": 3}], [{"b": 2, "a": 1}, {"c": 3}]),
        (Options(overwrite_arrays=True), [1], [2], [1]),
        (Options(preserve_unmergeables=True), {"a": "new", "b": 1}, {"a": [1]}, {"a": [1], "b": 1}),
        (Options(extend_existing_arrays=True), "new", ["old"], ["old", "new"]),
        (Options(unpack_arrays=","), ["a,b"], ["c,d"], ["c", "d", "a", "b"]),
    ],
)
def test_options_of_deep_merging(options: Options, high: Any, low: Any, merged: Any) -> None:
    assert strategies.deep_merge(high, low, options) == merged


def test_a_single_place_is_neither_merged_nor_checked() -> None:
    def only(place: str, step: object) -> Any:
        return {"a": "text"}

    assert strategy("unique").gather(["one"], only, SILENT) == {"a": "text"}
    assert strategy("hash").gather([], only, SILENT) is ABSENT


@pytest.mark.parametrize(
    ("merge", "message"),
    [
        ("nope", "Unknown merge strategy: 'nope'"),
        (True, "Unknown merge strategy: 'true'"),
        (
            {"knockout_prefix": "--"},
            "must contain the name of a strategy in string form for the key 'strategy'",
        ),
        ({"strategy": "deep", "bogus": 1}, "The merge options has wrong type, unrecognized key 'bogus'"),
        ({"strategy": "unique", "knockout_prefix": "--"}, "unrecognized key 'knockout_prefix'"),
        (
            {"strategy": "deep", "sort_merged_arrays": "yes"},
            "entry 'sort_merged_arrays' expects a value of type Undef or Boolean, got String",
        ),
    ],
)
def test_a_strategy_that_does_not_exist_is_refused(merge: Any, message: str) -> None:
    with pytest.raises(LookupFailure) as caught:
        strategy(merge)
    assert message in str(caught.value)


def test_an_empty_prefix_is_refused() -> None:
    with pytest.raises(LookupFailure, match="knockout_prefix cannot be an empty string"):
        strategies.options({"knockout_prefix": ""})
