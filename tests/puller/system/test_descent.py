"""Removals below one directory share open directories, and never reach other directories."""

import os
from pathlib import Path

import pytest

from puller.errors import ChangedMeanwhile
from puller.system.local import LocalSystem
from puller.system.local_paths import RealPaths
from puller.system.noop import NoopSystem


def make_deep(top: Path, depth: int) -> None:
    """Create nested directories, each with a file."""
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_a_path_of_any_depth_has_a_canonical_form() -> None:
    path = "/missing" + "/d" * 2000
    assert RealPaths().of(f"{path}/../x") == f"{path.removesuffix('/d')}/x"


def test_a_directory_moved_during_a_removal_is_left(tmp_path: Path) -> None:
    system, top = LocalSystem(), tmp_path / "top"
    make_deep(top, 2)
    inner, outer = top / "d/d/f", top / "d/f"
    status = outer.lstat()
    with system.removing(str(top)):
        system.remove(str(inner), inner.lstat(), within=str(top))
        (top / "d/d").rename(tmp_path / "elsewhere")
        with pytest.raises(ChangedMeanwhile, match="another process moved"):
            system.remove(str(outer), status, within=str(top))
    assert outer.exists()


def test_a_link_below_the_top_is_not_followed(tmp_path: Path) -> None:
    system, top, victim = LocalSystem(), tmp_path / "top", tmp_path / "victim"
    top.mkdir()
    victim.mkdir()
    file = victim / "f"
    file.touch()
    (top / "d").symlink_to(victim)
    with system.removing(str(top)), pytest.raises(OSError, match="d"):
        system.remove(str(top / "d/f"), file.lstat(), within=str(top))
    assert file.exists()


def test_removing_outside_of_the_context_works_alone(tmp_path: Path) -> None:
    system, top = LocalSystem(), tmp_path / "top"
    make_deep(top, 3)
    file = top / "d/d/d/f"
    with system.removing(str(top)):
        pass
    system.remove(str(file), file.lstat(), within=str(top))
    assert not file.exists()
    with NoopSystem().removing(str(top)):
        pass
