"""Atomic writes: leftovers of a killed writer, who may remove them, and errors."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bundles.filesystem.atomic import (
    in_progress,
    naming,
    open_directory,
    read_limited,
    remove_leftovers,
    replace_file,
    temporary_name,
    write_file,
)

KILLED = """\
import os, sys
from bundles.filesystem import atomic as files
os.rename = lambda *_, **__: os.kill(os.getpid(), 9)
files.write_file(sys.argv[1], b"new")
"""


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_next_writer_removes_files_of_a_killed_writer(tmp_path: Path) -> None:
    path = tmp_path / "motd"
    path.write_bytes(b"old")
    for _ in range(2):
        subprocess.run([sys.executable, "-c", KILLED, path], check=False)
        assert len(names(tmp_path)) == 2  # the second writer has removed the leftovers of the first
        assert path.read_bytes() == b"old"
    write_file(path, b"new")
    assert names(tmp_path) == ["motd"]


def test_file_of_a_running_writer_stays(tmp_path: Path) -> None:
    path = tmp_path / temporary_name("motd")
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    with in_progress(descriptor), open_directory(tmp_path) as directory:
        remove_leftovers(directory)
        assert path.exists()
    with open_directory(tmp_path) as directory:
        remove_leftovers(directory)
    assert not path.exists()


def test_only_possible_leftovers_are_removed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"of somebody else")
    link, full, empty, fifo = (tmp_path / temporary_name(name) for name in ("link", "full", "empty", "fifo"))
    link.symlink_to(victim)
    (full / "in it").mkdir(parents=True)
    empty.mkdir()
    os.mkfifo(fifo)
    others = [
        ".profile",
        ".motd.new",
        ".motd.0123456789ab.new~",
        "motd.0123456789ab.new",
        ".motd.0123456789AB.new",
    ]
    for other in others:
        (tmp_path / other).touch()
    with open_directory(tmp_path) as directory:
        remove_leftovers(directory)
    assert names(tmp_path) == sorted([*others, "victim", link.name, full.name])
    assert victim.read_bytes() == b"of somebody else"


def test_a_lock_ends_with_the_write(tmp_path: Path) -> None:
    write_file(tmp_path / "motd", b"new")
    with (tmp_path / "motd").open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "motd"
    path.mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write_file(path, b"new")
    assert (caught.value.filename, caught.value.filename2) == (str(path), None)
    assert names(tmp_path) == ["motd"]


@pytest.mark.parametrize(
    ("by", "named"), [(None, "/a"), ("b", "/a"), (7, "/a"), ("/proc/self/fd/7", "/a"), ("/b", "/b")]
)
def test_an_error_that_names_another_file_is_left_as_it_is(by: object, named: str) -> None:
    with pytest.raises(OSError, match="Input/output error") as caught, naming("/a"):
        raise OSError(5, "Input/output error", by)
    assert caught.value.filename == named


def test_a_directory_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        read_limited(tmp_path, 10)
    assert caught.value.filename == str(tmp_path)


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_synced_unless_it_need_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    write_file(tmp_path / "motd", b"new", durable=durable)
    assert len(synced) == (2 if durable else 0)
    assert (tmp_path / "motd").read_bytes() == b"new"


def test_file_is_read_completely_when_its_size_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (0, 1, 8191, 8192, 100_000):
        path.write_bytes(data := os.urandom(size))
        assert read_limited(path, 100_000) == data
        assert read_limited(path, size) == data
        with pytest.raises(ValueError, match="has more than"):
            read_limited(path, size - 1)
    assert os.stat("/proc/self/status").st_size == 0
    assert b"VmPeak" in read_limited("/proc/self/status", 100_000)
    with pytest.raises(ValueError, match="has more than"):
        read_limited("/proc/self/status", 100)


def test_new_file_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with open_directory(tmp_path) as directory:
        with pytest.raises(FileExistsError):
            replace_file(directory, "a", [b"new"], mode=0o600, is_new=True)
        replace_file(directory, "b", [b"new"], mode=0o600, is_new=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "b": "new"}
    assert (tmp_path / "b").stat().st_mode & 0o7777 == 0o600
