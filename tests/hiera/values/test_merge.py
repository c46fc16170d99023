"""The laws of merging, and the differences between its three kinds."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.values import merge_deep, merge_first, merge_sources

Merge = Callable[[Mapping[Any, Any], Mapping[Any, Any]], dict[Any, Any]]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from("xyz"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
MERGES = pytest.mark.parametrize("merge", [merge_first, merge_deep, merge_sources])

BASE = {"a": 1, "l": [1, 2], "m": {"x": 1, "y": {"z": [1]}}, "n": 1}


@pytest.mark.parametrize(
    ("merge", "merged"),
    [
        (merge_first, {"a": 1, "l": [2], "m": {"y": {"z": [2]}}, "n": None, "o": []}),
        (merge_deep, {"a": 1, "l": [1, 2, 2], "m": {"x": 1, "y": {"z": [1, 2]}}, "n": None, "o": []}),
        (merge_sources, {"a": 1, "l": [2], "m": {"x": 1, "y": {"z": [2]}}, "n": None, "o": []}),
    ],
)
def test_a_kind_of_merge_differs_in_lists_and_mappings(merge: Merge, merged: dict[str, Any]) -> None:
    assert merge(BASE, {"l": [2], "m": {"y": {"z": [2]}}, "n": None, "o": []}) == merged


@MERGES
@given(a=MAPPINGS)
def test_nothing_merged_with_anything_is_that(merge: Merge, a: dict[str, Any]) -> None:
    assert merge({}, a) == merge(a, {}) == a


@MERGES
@given(a=MAPPINGS, b=MAPPINGS)
def test_inputs_are_not_changed(merge: Merge, a: dict[str, Any], b: dict[str, Any]) -> None:
    before = copy.deepcopy((a, b))
    merge(a, b)
    assert (a, b) == before


@MERGES
@given(a=MAPPINGS, b=MAPPINGS)
def test_no_key_is_lost_and_the_later_value_wins(merge: Merge, a: dict[str, Any], b: dict[str, Any]) -> None:
    merged = merge(a, b)
    assert set(merged) == set(a) | set(b)
    for key, value in b.items():
        if not isinstance(value, (dict, list)):
            assert merged[key] is value


@given(a=MAPPINGS)
def test_a_source_merged_with_itself_is_itself(a: dict[str, Any]) -> None:
    assert merge_sources(a, a) == merge_first(a, a) == a


@given(a=MAPPINGS, b=MAPPINGS, c=MAPPINGS)
def test_first_is_associative(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    assert merge_first(merge_first(a, b), c) == merge_first(a, merge_first(b, c))


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.lists(st.integers())), min_size=3, max_size=3))
def test_deep_is_associative_where_kinds_agree(mappings: list[dict[str, Any]]) -> None:
    a, b, c = mappings
    assert merge_deep(merge_deep(a, b), c) == merge_deep(a, merge_deep(b, c))
