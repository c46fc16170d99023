"""Output directories of another user: links of this user never redirect writes or removals."""

import os
from pathlib import Path

import pytest

from bundles.filesystem.safe_paths import (
    OutputTree,
    UnsafeLinkError,
    can_others_replace,
    open_output_directory,
    write_output,
)

pytestmark = pytest.mark.root
MALLORY = 65534


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a directory that belongs to Mallory."""
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, MALLORY, MALLORY)
    return home


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Return a directory of root with one file."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (victim / "file").write_text("precious")
    return victim


def link(home: Path, name: str, target: Path) -> None:
    (home / name).symlink_to(target)
    os.chown(home / name, MALLORY, MALLORY, follow_symlinks=False)


def assert_untouched(victim: Path) -> None:
    assert {path.name: path.read_text() for path in victim.iterdir()} == {"file": "precious"}
    assert victim.stat().st_mode & 0o777 == 0o700


def test_directory_link_of_another_user_is_refused(home: Path, victim: Path) -> None:
    link(home, "sub", victim)
    tree = OutputTree(home)
    for change in (
        lambda: tree.write("sub/file", [b"new"]),
        lambda: tree.write("sub/deeper/file", [b"new"]),
        lambda: tree.remove("sub/file"),
        lambda: tree.read("sub/file", 100),
        lambda: write_output(home / "sub/file", b"new"),
        lambda: write_output(home / "sub/deeper/file", b"new", make_directories=True),
    ):
        with pytest.raises(UnsafeLinkError, match="of user 65534"):
            change()
    assert_untouched(victim)


def test_file_link_is_replaced_in_a_tree(home: Path, victim: Path) -> None:
    link(home, "page.html", victim / "file")
    OutputTree(home).write("page.html", [b"new"])
    assert not (home / "page.html").is_symlink()
    assert_untouched(victim)


def test_file_link_is_removed_and_not_its_target(home: Path, victim: Path) -> None:
    link(home, "page.html", victim / "file")
    OutputTree(home).remove("page.html")
    assert not os.path.lexists(home / "page.html")
    assert_untouched(victim)


def test_single_output_replaces_regular_files_only(home: Path, victim: Path) -> None:
    link(home, "out", victim / "file")
    os.mkfifo(home / "fifo")
    for name in ("out", "fifo"):
        with pytest.raises(OSError, match="expected a regular file"):
            write_output(home / name, b"new")
    write_output(home / "new", b"1")
    write_output(home / "new", b"2")
    assert (home / "new").read_bytes() == b"2"
    assert_untouched(victim)


def test_made_directories_have_their_mode(home: Path) -> None:
    before = os.umask(0o077)
    try:
        OutputTree(home / "a/b").write("c/file", [b""])
    finally:
        os.umask(before)
    modes = [(home / path).stat().st_mode & 0o777 for path in ("a", "a/b", "a/b/c", "a/b/c/file")]
    assert modes == [0o755, 0o755, 0o755, 0o644]


def test_existing_directories_keep_their_mode(home: Path) -> None:
    (home / "private").mkdir(mode=0o700)
    with open_output_directory(home / "private", make=True):
        pass
    assert (home / "private").stat().st_mode & 0o777 == 0o700


def test_links_of_root_are_followed(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "disk").symlink_to(victim)
    OutputTree(tmp_path).write("disk/new", [b"new"])
    assert (victim / "new").read_bytes() == b"new"


def test_paths_outside_of_the_tree_are_refused(home: Path, victim: Path) -> None:
    with pytest.raises(OSError, match="outside the directory"):
        OutputTree(home).write("../victim/file", [b"new"])
    assert_untouched(victim)


def test_who_can_exchange_a_path(home: Path, victim: Path) -> None:
    (home / "sub").mkdir()
    assert can_others_replace(str(home / "sub"))
    assert not can_others_replace(str(victim / "file"))
