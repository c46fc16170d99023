"""Puller and the real Facter agree about their common facts, on the machine that runs the tests."""

import json
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.facts.fact_tree import gather

COMPARISON = yaml.load(
    (Path(__file__).parents[2] / "cases" / "facts" / "facter.yaml").read_text(), yaml.CSafeLoader
)

pytestmark = [
    pytest.mark.facter,
    pytest.mark.skipif(not shutil.which("facter"), reason="needs Facter (Debian's package facter)"),
]


def facter(*options: str) -> dict[str, Any]:
    """Return Facter's facts. Facter exits with 1 and warns about each source that this user may not read."""
    command = ["facter", "--json", *options]
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
    facts: dict[str, Any] = json.loads(output)
    return facts


def leaves(tree: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return values by dotted path. Lists and empty mappings count as values."""
    result: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{above}.{name}" if above else name
        result |= leaves(value, path) if isinstance(value, dict) and value else {path: value}
    return result


def is_listed(path: str, *lists: str) -> bool:
    return any(fnmatchcase(path, pattern) for name in lists for pattern in COMPARISON[name])


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    return leaves(facter())


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    return leaves(gather(custom_directories=()).as_dict())


def test_facts_that_both_have_agree(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    compared = [path for path in theirs if path in ours and not is_listed(path, "moves", "differs")]

    assert len(compared) > 60
    assert {path: ours[path] for path in compared} == {path: theirs[path] for path in compared}


def test_facts_that_move_are_of_the_same_kind(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    moving = [path for path in theirs if path in ours and is_listed(path, "moves")]

    assert moving
    assert {path: type(ours[path]) for path in moving} == {path: type(theirs[path]) for path in moving}


def test_missing_facter_facts_are_listed(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert [path for path in theirs if path not in ours and not is_listed(path, "theirs")] == []


def test_legacy_names_agree() -> None:
    modern = facter()
    legacy = {name: value for name, value in facter("--show-legacy").items() if name not in modern}
    facts = gather(custom_directories=())

    moving = ("memoryfree*", "swapfree*", "uptime*", "hardwareisa")
    compared = [
        name for name in legacy if name in facts and not any(fnmatchcase(name, each) for each in moving)
    ]
    assert len(compared) > 30
    assert {name: facts[name] for name in compared} == {name: legacy[name] for name in compared}
