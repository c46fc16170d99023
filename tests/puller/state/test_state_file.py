"""Every kind of damage to a small state document has the same result: moved aside, reported, and ignored."""

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from puller.state import LARGEST, StateFile

Document = dict[str, int]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "things.json"


def document(path: Path) -> StateFile[Document]:
    return StateFile(path, dict[str, int], "things are forgotten")


def test_saved_state_is_loaded(path: Path) -> None:
    document(path).save({"a": 1})
    assert document(path).load(pytest.fail) == {"a": 1}
    assert path.stat().st_mode & 0o777 == 0o600
    document(path).remove()
    document(path).remove()
    assert document(path).load(pytest.fail) is None


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "emptied": (lambda path: path.write_bytes(b""), "Input data was truncated"),
    "truncated": (lambda path: path.write_bytes(b'{"a": 1'), "Input data was truncated"),
    "garbage": (lambda path: path.write_bytes(b"\0\xff"), "JSON is malformed"),
    "of another shape": (lambda path: path.write_bytes(b'{"a": "x"}'), "Expected `int`"),
    "not UTF-8": (lambda path: path.write_bytes(b'{"\xff": 1}'), "(?i)utf-8"),
    "too deep": (lambda path: path.write_bytes(b"[" * 100_000), "(?i)expected|recursion|malformed"),
    "too large": (lambda path: path.write_bytes(b" " * (LARGEST + 1)), "more than"),
    "a link": (lambda path: path.symlink_to("/etc/passwd"), "symbolic link"),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), "symbolic link"),
    "a directory": (lambda path: path.mkdir(), "not a regular file"),
    "a FIFO": (os.mkfifo, "not a regular file"),
    "a socket": (make_socket, "is a socket"),
}


CASES = {
    "emptied": "state.emptied",
    "truncated": "state.truncated",
    "garbage": "state.garbage",
    "a link": "state.link",
    "a dangling link": "state.link",
    "a directory": "state.directory",
}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(*row, id=name, marks=[pytest.mark.attack(CASES[name])] if name in CASES else [])
        for name, row in DAMAGE.items()
    ],
)
def test_foreign_document_is_set_aside_and_reported(
    path: Path, damage: Callable[[Path], object], message: str
) -> None:
    path.parent.mkdir()
    damage(path)
    before = os.lstat(path)
    notes: list[str] = []
    assert document(path).load(notes.append, noop=True) is None
    assert "left as it is, and things are forgotten" in notes[0]
    assert os.lstat(path).st_ino == before.st_ino

    assert document(path).load(notes.append) is None
    assert notes[1].startswith(f"{path}: ")
    assert f"set aside as {path}.unreadable, and things are forgotten" in notes[1]
    assert re.search(message, notes[1])
    assert os.lstat(path.with_name("things.json.unreadable")).st_ino == before.st_ino
    document(path).save({"a": 1})
    assert document(path).load(pytest.fail) == {"a": 1}


@pytest.mark.root
@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda path: os.chown(path, 65534, 65534),
            "belongs to user 65534",
            id="another owner",
            marks=pytest.mark.attack("state.owner"),
        ),
        pytest.param(lambda path: path.chmod(0o622), "its mode is 0622", id="writable by others"),
    ],
)
def test_state_writable_by_others_is_not_trusted(
    path: Path, change: Callable[[Path], object], message: str
) -> None:
    document(path).save({"a": 1})
    change(path)
    notes: list[str] = []
    assert document(path).load(notes.append) is None
    assert message in notes[0]


def test_unreadable_disk_is_not_an_absent_document(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        document(tmp_path / "state" / "things.json").load(pytest.fail)


def test_directory_at_the_state_path_is_set_aside(path: Path) -> None:
    (path / "in it").mkdir(parents=True)
    document(path).save({"a": 1})
    assert document(path).load(pytest.fail) == {"a": 1}
    assert (path.with_name("things.json.unreadable") / "in it").is_dir()


def test_few_damaged_copies_are_kept(path: Path) -> None:
    path.parent.mkdir()
    for times in range(7):
        path.write_text(f"damaged {times}")
        assert document(path).load(lambda _: None) is None
    retained = {aside.read_text() for aside in path.parent.iterdir()}
    assert retained == {"damaged 4", "damaged 5", "damaged 6"}
