"""Operations on whole directories: listings, notes on files, and steps confined to one directory."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from puller.errors import MutationInNoop
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.protocol import Attributes

OURS = Attributes(os.geteuid(), os.getegid(), 0o750)


def test_children_are_listed_with_kinds_without_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("directory")
    result = dict(LocalSystem().children(str(tmp_path)))
    assert result == {name: os.lstat(tmp_path / name) for name in ("file", "directory", "link")}
    with pytest.raises(NotADirectoryError):
        LocalSystem().children(str(tmp_path / "link"))
    with pytest.raises(FileNotFoundError):
        LocalSystem().children(str(tmp_path / "none"))


def test_a_note_stays_with_its_file_and_goes_with_it(tmp_path: Path) -> None:
    system, path = LocalSystem(), str(tmp_path / "x")
    Path(path).touch()
    assert system.note(path, "key") is None
    system.set_note(path, "key", "one")
    system.set_note(path, "key", "two")
    assert (system.note(path, "key"), system.note(path, "other")) == ("two", None)
    os.unlink(path)
    Path(path).touch()
    assert system.note(path, "key") is None
    with pytest.raises(FileNotFoundError):
        system.note(f"{path}.none", "key")


@pytest.mark.parametrize("within", ["", "root", "root/a"])
def test_steps_below_a_directory_work_at_any_depth(tmp_path: Path, within: str) -> None:
    system, root = LocalSystem(), tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    below = str(tmp_path / within) if within else ""
    system.make_directory(f"{root}/a/b/c", OURS, within=below)
    assert (root / "a/b/c").stat().st_mode & 0o777 == 0o750
    system.replace_file(f"{root}/a/b/c/x", [b"x"], OURS, None, within=below)
    status = system.lstat(f"{root}/a/b/c/x")
    assert status is not None
    system.set_note(f"{root}/a/b/c/x", "key", "note", within=below)
    status = system.lstat(f"{root}/a/b/c/x")
    assert status is not None
    system.remove(f"{root}/a/b/c/x", status, within=below)
    assert os.listdir(root / "a/b/c") == []


def test_the_directory_itself_may_be_reached_through_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    LocalSystem().make_directory(f"{tmp_path}/link/d", OURS, within=f"{tmp_path}/link")
    assert (tmp_path / "real" / "d").is_dir()


def test_a_directory_appears_as_it_should_be_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(descriptor: int, uid: int, gid: int) -> None:
        assert not (tmp_path / "d").exists(), "it is made elsewhere until it is ready"
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fchown", refused)
        with pytest.raises(PermissionError):
            LocalSystem().make_directory(f"{tmp_path}/d", OURS)
    assert os.listdir(tmp_path) == []
    LocalSystem().make_directory(f"{tmp_path}/d", OURS)
    assert os.listdir(tmp_path) == ["d"]
    (tmp_path / "d" / "x").touch()
    with pytest.raises(OSError, match="Directory not empty"):
        LocalSystem().make_directory(f"{tmp_path}/d", OURS)
    assert os.listdir(tmp_path) == ["d"]


def test_changing_call_is_refused_in_noop(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    Path(path).touch()
    status, system = os.lstat(path), NoopSystem()
    changes: list[Callable[[], None]] = [
        lambda: system.set_note(path, "key", "text"),
        lambda: system.replace_file(path, [b""], OURS, status, within=str(tmp_path)),
        lambda: system.make_directory(f"{path}.d", OURS, within=str(tmp_path)),
        lambda: system.remove(path, status, within=str(tmp_path)),
    ]
    for change in changes:
        with pytest.raises(MutationInNoop):
            change()
    assert os.lstat(path) == status
