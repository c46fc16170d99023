"""A purge of a deep tree takes time in proportion to its size."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.resources.files.file_or_tree import FileOrTree
from puller.resources.scaffolds.scaffold import Scaffold
from tests.puller.resources.conftest import GROUP, OWNER
from tests.puller.system.test_descent import make_deep


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Record and return the arguments of each call of ``os.open``."""
    paths: list[object] = []
    original = os.open

    def counted(path: Any, *arguments: Any, **options: Any) -> int:
        paths.append(path)
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", counted)
    return paths


def purging(make: Callable[..., Any], kind: str, top: Path, *, noop: bool = False) -> Any:
    """Return a resource that purges a directory."""
    if kind == "file":
        owners = {"owner": OWNER, "group": GROUP, "mode": "0755"}
        return make(FileOrTree, {"name": str(top), "ensure": "directory", "purge": True, **owners}, noop=noop)
    source = top.parent / "templates"
    source.mkdir(exist_ok=True)
    (source / "x").write_text("x")
    return make(Scaffold, {"name": str(top), "source": "templates", "engine": "go", "purge": True}, noop=noop)


@pytest.mark.parametrize("kind", ["file", "scaffold"])
def test_a_purge_opens_directories_in_proportion(
    tmp_path: Path, make: Callable[..., Any], opened: list[object], kind: str
) -> None:
    counts = []
    for depth in (100, 200, 400):
        top = tmp_path / str(depth)
        make_deep(top, depth)
        resource = purging(make, kind, top)
        actual = resource.look()
        before = len(opened)
        resource.change(resource.differences(actual), actual)
        counts.append(len(opened) - before)
        assert set(os.listdir(top)) <= {"x"}
    assert counts[2] - counts[1] < 2.2 * (counts[1] - counts[0])


@pytest.mark.parametrize("kind", ["file", "scaffold"])
@pytest.mark.parametrize("depth", [1500, 2200])
@pytest.mark.representatives(1)
def test_a_tree_deeper_than_the_stack_is_purged(
    tmp_path: Path, make: Callable[..., Any], kind: str, depth: int
) -> None:
    """The tree is also deeper than the paths of 4,095 bytes that Linux accepts."""
    top = tmp_path / "top"
    make_deep(top, depth)
    dry = purging(make, kind, top, noop=True)
    actual = dry.look()
    assert dry.noop_message(dry.differences(actual), actual).startswith("Would have changed")
    resource = purging(make, kind, top)
    actual = resource.look()
    resource.change(resource.differences(actual), actual)
    assert not resource.differences(resource.look())
