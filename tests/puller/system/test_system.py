"""The system interface of resources, and its predictions in a dry run."""

import os
import stat
from pathlib import Path

import pytest

from bundles.filesystem.atomic import read_limited, replace_file, write_file
from puller.errors import ChangedMeanwhile, MutationInNoop
from puller.system.commands import Command
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.protocol import Attributes

OURS = Attributes(os.geteuid(), os.getegid(), 0o640)


def test_only_not_found_means_absent(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert LocalSystem().lstat(str(tmp_path / "none")) is None
    assert LocalSystem().lstat(str(tmp_path / "file" / "below")) is None
    with pytest.raises(OSError, match="File name too long"):
        LocalSystem().lstat(str(tmp_path / ("x" * 300)))


def test_permission_denied_is_not_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "lstat", denied)
    monkeypatch.setattr(os, "stat", denied)
    for look in (LocalSystem().lstat, LocalSystem().exists, LocalSystem().is_directory):
        with pytest.raises(PermissionError):
            look("/closed/file")


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_special_file_is_not_read(tmp_path: Path, kind: str) -> None:
    (tmp_path / "target").write_text("secret")
    if kind == "link":
        (tmp_path / "x").symlink_to("target")
    else:
        os.mkfifo(tmp_path / "x")
    with pytest.raises((OSError, ChangedMeanwhile)):
        LocalSystem().read(str(tmp_path / "x"))


@pytest.mark.attack("disk.full")
def test_full_disk_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_text("old")

    def full(descriptor: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "x", b"new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "old")]


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:3]))
    write_file(tmp_path / "x", b"0123456789")
    assert (tmp_path / "x").read_bytes() == b"0123456789"


@pytest.mark.attack("modes.managed")
def test_a_new_file_is_never_wider_than_its_final_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    write = os.write

    def watch(descriptor: int, data: bytes) -> int:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", watch)
    write_file(tmp_path / "x", b"secret", mode=0o600)
    assert seen == [0o600]


def test_chunks_are_written_in_order(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    replace_file(descriptor, "x", iter([b"a", b"b", b"c"]), mode=0o640)
    os.close(descriptor)
    assert (tmp_path / "x").read_bytes() == b"abc"


def test_reading_is_limited_and_never_waits_for_a_fifo(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_limited(tmp_path / "x", 5) == b"12345"
    with pytest.raises(ValueError, match="has more than 4 bytes"):
        read_limited(tmp_path / "x", 4)
    os.mkfifo(tmp_path / "fifo")
    assert read_limited(tmp_path / "fifo", 5) == b""


def test_users_are_looked_up_again_after_a_command() -> None:
    system = LocalSystem()
    assert system.user_id("root") == 0
    system._users["root"] = 12345
    assert system.user_id("root") == 12345
    system.execute(Command(["true"]))
    assert (system.user_id("root"), system.executed) == (0, 1)
    assert system.user_id("no-such-user") is None


def test_noop_expectations_hold_for_later_resources(tmp_path: Path) -> None:
    (tmp_path / "gone" / "below").mkdir(parents=True)
    system = NoopSystem()
    system.expect(str(tmp_path / "made"), "directory")
    system.expect(str(tmp_path / "file"), "file")
    system.expect(str(tmp_path / "gone"), "absent")
    seen = {
        name: (system.exists(str(tmp_path / name)), system.is_directory(str(tmp_path / name)))
        for name in ("made", "file", "gone", "gone/below", "none")
    }
    assert seen == {
        "made": (True, True),
        "file": (True, False),
        "gone": (False, False),
        "gone/below": (False, False),
        "none": (False, False),
    }
    assert system.is_directory(str(tmp_path))


def test_every_change_is_refused_in_noop(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    Path(path).touch()
    status = os.lstat(path)
    system = NoopSystem()
    for change in (
        lambda: system.replace_file(path, [b"a"], OURS, status),
        lambda: system.make_directory(path, OURS),
        lambda: system.set_attributes(path, OURS, status),
        lambda: system.remove(path, status),
        lambda: system.remove_tree(path, status),
        lambda: system.execute(Command(["true"])),
    ):
        with pytest.raises(MutationInNoop):
            change()
    assert os.lstat(path) == status


@pytest.mark.parametrize("size", [0, 1, 32 * 1024 - 1, 32 * 1024, 100_000])
def test_a_file_holds_its_content_and_no_other(tmp_path: Path, size: int) -> None:
    path, content = tmp_path / "x", bytes(number % 251 for number in range(size))
    path.write_bytes(content)
    assert LocalSystem().holds(str(path), content)
    for other in (content + b"x", content[:-1] + b"\0\0", content[:-1]):
        assert LocalSystem().holds(str(path), other) == (other == content)


def test_replacement_of_a_file_has_its_own_content(tmp_path: Path) -> None:
    """Between check and read, Puller neither blocks, follows a link, nor reads endless content."""
    (tmp_path / "file").write_bytes(b"content")
    os.mkfifo(fifo := tmp_path / "fifo")
    assert not LocalSystem().holds(str(fifo), b"content")
    (link := tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"):
        LocalSystem().holds(str(link), b"content")
    with pytest.raises(IsADirectoryError):
        LocalSystem().holds(str(tmp_path), b"content")
    assert not LocalSystem().holds("/dev/zero", b"content")
    assert not LocalSystem().holds("/dev/zero", bytes(100_000))
