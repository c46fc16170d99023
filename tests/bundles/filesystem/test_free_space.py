"""Disk space is checked before it is used."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bundles.errors import StoreError
from bundles.filesystem.trees import LARGEST_RESERVE, check_free_space

BLOCK = 4096


def disk(free: int, size: int = 10**12, inodes: int = 1000, files: int = 10_000) -> os.statvfs_result:
    numbers = {"f_frsize": BLOCK, "f_blocks": size // BLOCK, "f_bavail": free // BLOCK}
    return cast(os.statvfs_result, SimpleNamespace(**numbers, f_files=files, f_favail=inodes))


@pytest.mark.parametrize(
    ("free", "size", "files", "fits"),
    [
        (LARGEST_RESERVE + 100 * BLOCK, 99 * BLOCK, 1, True),
        (LARGEST_RESERVE + 100 * BLOCK, 100 * BLOCK, 1, False),  # its last block counts, too
        (LARGEST_RESERVE + 100 * BLOCK, 0, 100, True),
        (LARGEST_RESERVE + 100 * BLOCK, 0, 101, False),
        (LARGEST_RESERVE - BLOCK, 0, 0, False),
        (0, 2**62, 1, False),
    ],
)
def test_fitting_file_leaves_the_reserve_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, size: int, files: int, fits: bool
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: disk(free))
    if fits:
        check_free_space(tmp_path / "new", tmp_path, size=size, files=files)
    else:
        with pytest.raises(
            StoreError, match=r"new: requires .* and a reserve of 16\.8 MB, but .* are free on /"
        ):
            check_free_space(tmp_path / "new", tmp_path, size=size, files=files)


def test_of_a_small_disk_a_twentieth_stays_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: disk(free=500_000, size=10_000_000))
    with pytest.raises(
        StoreError, match=r"requires 4\.1 kB and a reserve of 499\.\d kB, but 499\.\d kB are free"
    ):
        check_free_space(tmp_path / "new", tmp_path, size=0, files=1)


def test_inodes_are_counted_where_there_is_a_number_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: disk(free=10**9, inodes=5))
    check_free_space(tmp_path / "new", tmp_path, size=0, files=5)
    with pytest.raises(StoreError, match="requires 6 inodes, but 5 are free on /"):
        check_free_space(tmp_path / "new", tmp_path, size=0, files=6)
    monkeypatch.setattr(os, "statvfs", lambda _: disk(free=10**9, inodes=0, files=0))  # as on Btrfs
    check_free_space(tmp_path / "new", tmp_path, size=0, files=6)


def test_the_disk_is_named_as_people_know_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: disk(free=0))
    with pytest.raises(StoreError) as refused:
        check_free_space(tmp_path / "new", tmp_path / "link", size=10**13, files=1)
    assert "requires 10.0 TB and a reserve of " in str(refused.value)
    mount = str(refused.value).rpartition(" on ")[2]
    assert os.path.ismount(mount)
    assert str(tmp_path.resolve()).startswith(mount)
