"""Resources follow manifest order, and come after the resources that they reference."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.manifest.graph.catalog import CycleError, ordered
from puller.resources.exec import Exec


@pytest.mark.parametrize(
    ("edges", "order"),
    [
        ({}, [0, 1, 2, 3]),
        ({0: [2]}, [2, 0, 1, 3]),
        ({0: [3], 3: [1]}, [1, 3, 0, 2]),
        ({2: [0]}, [0, 1, 2, 3]),
        ({0: [3, 2]}, [3, 2, 0, 1]),
    ],
)
def test_prerequisite_directly_precedes_its_first_user(edges: dict[int, list[int]], order: list[int]) -> None:
    assert ordered(4, lambda index: edges.get(index, [])) == order


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [({1: [1]}, (1, 1)), ({0: [1], 1: [0]}, (0, 1, 0)), ({0: [1], 1: [2], 2: [3], 3: [1]}, (1, 2, 3, 1))],
)
def test_cycle_is_listed_from_a_member_back_to_itself(
    edges: dict[int, list[int]], cycle: tuple[int, ...]
) -> None:
    with pytest.raises(CycleError) as error:
        ordered(4, lambda index: edges.get(index, []))
    assert error.value.indexes == cycle


def test_a_chain_may_be_as_long_as_a_manifest() -> None:
    assert ordered(50_000, lambda index: [index + 1] if index < 49_999 else []) == list(range(49_999, -1, -1))


@given(st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4)))
def test_every_resource_comes_once_and_after_its_prerequisites(edges: dict[int, list[int]]) -> None:
    try:
        order = ordered(10, lambda index: edges.get(index, []))
    except CycleError as error:
        assert all(
            following in edges[index]
            for index, following in zip(error.indexes, error.indexes[1:], strict=False)
        )
        return
    assert sorted(order) == list(range(10))
    assert all(order.index(needed) < order.index(index) for index, needs in edges.items() for needed in needs)


def test_covered_paths_need_no_type_with_follows(
    load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Exec, "covers", classmethod(lambda cls, properties: ["/srv"]))
    file = "{content: x, owner: root, group: root, mode: '0644'}"
    manifest = load(f"resources: [{{file: [{{/srv/a: {file}}}]}}, {{exec: [mount-it]}}]")
    order = [str(manifest.declarations[index].reference) for index in manifest.order]
    assert order == ["exec#mount-it", "file#/srv/a"]
