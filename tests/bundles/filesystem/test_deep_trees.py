"""Trees that are deeper than Python's stack and the limit of open files."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from bundles.filesystem.trees import remove_directory, remove_tree, walk_directories

DEPTH = 1500


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """Yield a deep chain of directories with a file in the last directory and links to the outside."""
    root, outside = tmp_path / "deep", tmp_path / "outside"
    for path in (root, outside):
        path.mkdir()
    (outside / "kept").write_text("kept")
    descriptor = os.open(root, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.symlink(outside, "link", dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)
    yield root
    if root.exists():  # pytest cannot remove it
        remove_tree(root)


def test_deep_tree_is_removed_and_links_are_not_followed(deep: Path, tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 20, limit[1]))
    try:
        remove_tree(deep)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert os.listdir(tmp_path) == ["outside"]
    assert os.listdir(tmp_path / "outside") == ["kept"]


def test_directory_below_an_open_directory_is_removed(tmp_path: Path) -> None:
    for path in ("a/b/c", "a/d"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "file").write_text("x")
    (tmp_path / "a/b").chmod(0o500)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        remove_directory("a", within=descriptor, forced=True)
    finally:
        os.close(descriptor)
    assert os.listdir(tmp_path) == []


def test_deep_tree_is_walked_as_os_walk_does(deep: Path) -> None:
    results = [*walk_directories(str(deep))]
    assert len(results) == DEPTH + 1
    assert {*results[0][1]} == {"d", "link"}
    assert results[-1][2] == ["file"]


def test_caller_may_leave_out_directories(tmp_path: Path) -> None:
    for name in ("a/x", "b/x", ".hidden/x"):
        (tmp_path / name).mkdir(parents=True)
    seen = []
    for place, names, _ in walk_directories(str(tmp_path)):
        names[:] = sorted(name for name in names if not name.startswith("."))
        seen.append(os.path.relpath(place, tmp_path))
    assert seen == [".", "a", "a/x", "b", "b/x"]
