"""The names of facts that lint accepts are those of hosts and of the page of facts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from puller.authoring.lint import value_shapes
from puller.authoring.lint.value_shapes import Shape
from puller.facts.fact_tree import is_legacy_name
from puller.facts.given_facts import facts_of, known_systems
from tests.support.rows import each_row

PAGE = (Path(__file__).parents[4] / "docs/fact-list.md").read_text().partition("facts: generated")[2]
LISTED = [found for found in re.findall(r"^\| `([^`]+)` \|.*\|", PAGE, re.MULTILINE) if "*" not in found]
NOT_OURS = ("aio_agent_version", "facterversion", "lsbrelease")
"""Facts of Facter that Puller does not have, according to the page."""


def paths_of(facts: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(facts, dict) and facts:
        for name, value in facts.items():
            yield from paths_of(value, (*path, str(name)))
    else:
        yield path


def is_known(path: tuple[str, ...]) -> bool:
    shape: Shape | None = value_shapes.built_in()
    for step in path:
        shape = None if shape is None else shape.child(step)
    return shape is not None or is_legacy_name(path[0])


@each_row("system", known_systems())
def test_all_facts_of_known_systems_are_known(system: str) -> None:
    assert [path for path in paths_of(facts_of(system)) if not is_known(path)] == []


def test_all_facts_that_the_page_lists_are_known() -> None:
    assert len(LISTED) > 150
    assert [name for name in LISTED if not is_known(tuple(name.split("."))) and name not in NOT_OURS] == []


@pytest.mark.parametrize(
    "name", ["os.famly", "memory.system.totl", "networking.interfaces.eth0.ipp", "dmi.bios.x"]
)
def test_a_name_that_no_group_has_is_not_known(name: str) -> None:
    assert not is_known(tuple(name.split(".")))
