"""Changes of unit files on a real file system are detected by the times of inodes."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from puller.resources.services.unit_files import UnitFiles
from puller.system.local import LocalSystem

DIRECTORIES: list[str] = []
"""The directories of units in the current test."""


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Create the directories of units ``etc`` and ``lib``, and ``merged`` as a link to ``lib``."""
    for name in ("etc", "lib"):
        (tmp_path / f"{name}/a.service.d").mkdir(parents=True)
        (tmp_path / f"{name}/a.service").write_text("[Service]\n")
        (tmp_path / f"{name}/a.service.d/x.conf").write_text("[Service]\n")
    (tmp_path / "merged").symlink_to("lib")
    DIRECTORIES[:] = (str(tmp_path / name) for name in ("etc", "none", "lib", "merged"))
    return tmp_path


def files(path: Path | None = None) -> UnitFiles:
    def note(line: str) -> None:
        raise AssertionError(line)

    return UnitFiles(LocalSystem(), DIRECTORIES, path, note, noop=False)


def unasked() -> float:
    raise AssertionError("what is known needs no question")


def replace_by_an_old_one(directory: Path) -> None:
    (directory / "new").write_text("[Service]\n# old\n")
    os.utime(directory / "new", (0, 0))
    os.rename(directory / "new", directory / "a.service")


def write_in_place_and_set_back(directory: Path) -> None:
    path = directory / "a.service.d/x.conf"
    before = path.stat()
    path.write_text("[Unit]   \n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a new unit": lambda directory: (directory / "b.service").touch(),
    "a first drop-in": lambda directory: (directory / "b.service.d").mkdir(),
    "another drop-in": lambda directory: (directory / "a.service.d/y.conf").touch(),
    "a link": lambda directory: (directory / "b.service").symlink_to("a.service"),
    "a link to nowhere": lambda directory: (directory / "b.service").symlink_to("/dev/null/nowhere"),
    "one with old times": replace_by_an_old_one,
    "written in place, with the time of before": write_in_place_and_set_back,
    "a drop-in less": lambda directory: (directory / "a.service.d/x.conf").unlink(),
    "no drop-ins": lambda directory: shutil.rmtree(directory / "a.service.d"),
    "another name": lambda directory: (directory / "a.service").rename(directory / "c.service"),
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("where", ["etc", "lib"])
def test_every_change_is_seen_and_read_once(units: Path, where: str, how: str) -> None:
    first = files(units / "units.json")
    known = first.look()
    assert first.is_read(known, time.time)
    first.remember(known)
    assert files(units / "units.json").is_read(known, unasked)
    read = max(changed for _, changed in known.values()) / 1e9 - 1e-6
    CHANGES[how](units / where)
    second = files(units / "units.json")
    result = second.look()
    assert not second.is_read(result, lambda: read)
    assert not second.is_read(result, lambda: None), "a systemd that does not tell"
    second.remember(result)
    assert files(units / "units.json").is_read(result, unasked)


def test_a_directory_that_went_as_a_whole_is_missed(units: Path) -> None:
    known = files()
    known.remember(known.look())
    shutil.rmtree(units / "etc")
    assert not known.is_read(known.look(), time.time)


def test_unstored_answers_are_queried_again(units: Path) -> None:
    (units / "state").touch()
    known = files(units / "state/units.json")
    result = known.look()
    known.remember(result)
    assert known.is_read(result, unasked)
    assert files(units / "state/units.json").is_read(result, time.time)
