"""Concurrent changes of names, links and files by other users, and access to files during a change.

* Only the checked file is changed, wherever links lead meanwhile.
* At no instant does a managed file grant more access than its final mode.
"""

from __future__ import annotations

import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bundles.filesystem.atomic import write_file
from puller.errors import ChangedMeanwhile, ResourceError
from puller.system.local import LocalSystem
from puller.system.local_paths import open_safely
from puller.system.protocol import Attributes

OURS = Attributes(os.geteuid(), os.getegid(), 0o640)
SOMEBODY = 65534


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """Create a directory, and check after the test that it is unchanged."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("precious")
    (outside / "x").chmod(0o604)
    before = picture(outside)
    yield outside
    assert picture(outside) == before


def picture(directory: Path) -> list[tuple[Any, ...]]:
    results = [directory, *sorted(directory.rglob("*"))]
    states = [(path, path.lstat()) for path in results]
    return [
        (
            path,
            s.st_ino,
            s.st_mode,
            s.st_uid,
            s.st_gid,
            s.st_mtime_ns,
            s.st_ctime_ns,
            path.is_file() and path.read_bytes(),
        )
        for path, s in states
    ]


def swap(directory: Path, outside: Path) -> None:
    """Move the directory away, and link its path to ``outside``."""
    directory.rename(directory.with_name("moved"))
    directory.symlink_to(outside)


def replace(system: LocalSystem, path: str, found: os.stat_result) -> None:
    system.replace_file(path, [b"new"], OURS, found)


def set_attributes(system: LocalSystem, path: str, found: os.stat_result) -> None:
    system.set_attributes(path, OURS, found)


CHANGES: dict[str, Callable[[LocalSystem, str, os.stat_result], None]] = {
    "replace": replace,
    "attributes": set_attributes,
    "remove": LocalSystem.remove,
    "remove tree": LocalSystem.remove_tree,
}


def look(system: LocalSystem, path: str) -> os.stat_result:
    status = system.lstat(path)
    assert status is not None
    return status


@pytest.mark.attack("races.parent")
@pytest.mark.parametrize("change", CHANGES)
def test_parent_swapped_after_the_check_leads_nothing_outside(
    change: str, tmp_path: Path, outside: Path
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "x").write_text("old")
    system, path = LocalSystem(), str(tmp_path / "here" / "x")
    result = look(system, path)
    swap(tmp_path / "here", outside)
    with pytest.raises(ChangedMeanwhile):
        CHANGES[change](system, path, result)
    assert (tmp_path / "moved" / "x").read_text() == "old"


@pytest.mark.attack("races.parent")
@pytest.mark.parametrize(
    "make",
    [
        lambda system, path: system.replace_file(path, [b"new"], OURS, None),
        lambda system, path: system.make_directory(path, OURS),
    ],
    ids=["file", "directory"],
)
def test_new_file_is_made_in_the_checked_directory(
    make: Callable[[LocalSystem, str], None], tmp_path: Path, outside: Path
) -> None:
    (tmp_path / "here").mkdir()
    system, path = LocalSystem(), str(tmp_path / "here" / "new")
    assert system.lstat(path) is None
    swap(tmp_path / "here", outside)
    with pytest.raises(ChangedMeanwhile, match="another process replaced its directory"):
        make(system, path)
    assert list((tmp_path / "moved").iterdir()) == []


@pytest.mark.attack("races.parent")
@pytest.mark.parametrize("step", ["open", "fchown", "fchmod", "write", "fsync", "rename"])
def test_parent_swapped_while_writing_leads_nothing_outside(
    step: str, tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is written in the open directory, whatever its path leads to by then."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "x").write_text("old")
    system, path = LocalSystem(), str(tmp_path / "here" / "x")
    status = system.lstat(path)
    real = getattr(os, step)
    opened: list[tuple[Any, ...]] = []

    def swapping(*arguments: Any, **named: Any) -> Any:
        is_new = step != "open" or str(arguments[0]).endswith(".new")
        if is_new and not opened:
            opened.append(arguments)
            swap(tmp_path / "here", outside)
        return real(*arguments, **named)

    monkeypatch.setattr(os, step, swapping)
    system.replace_file(path, [b"new"], OURS, status)
    assert opened
    assert (tmp_path / "moved" / "x").read_text() == "new"


@pytest.mark.attack("races.link")
def test_a_target_that_becomes_a_link_is_not_written_through(tmp_path: Path, outside: Path) -> None:
    system, path = LocalSystem(), str(tmp_path / "x")
    (tmp_path / "x").write_text("old")
    result = look(system, path)
    (tmp_path / "x").unlink()
    (tmp_path / "x").symlink_to(outside / "x")
    for change in CHANGES.values():
        with pytest.raises(ChangedMeanwhile, match="another process replaced it"):
            change(system, path, result)
    assert (tmp_path / "x").is_symlink()


@pytest.mark.attack("races.link")
def test_checked_link_is_replaced_and_its_target_stays(tmp_path: Path, outside: Path) -> None:
    system, path = LocalSystem(), str(tmp_path / "x")
    (tmp_path / "x").symlink_to(outside / "x")
    system.replace_file(path, [b"new"], OURS, system.lstat(path))
    assert (tmp_path / "x").read_text() == "new"
    assert not (tmp_path / "x").is_symlink()


@pytest.mark.attack("races.hard-link")
def test_another_name_of_the_file_keeps_the_old_content_and_mode(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    (tmp_path / "x").chmod(0o600)
    os.link(tmp_path / "x", tmp_path / "other")
    system, path = LocalSystem(), str(tmp_path / "x")
    system.replace_file(path, [b"new"], OURS, system.lstat(path))
    assert (tmp_path / "other").read_text() == "old"
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o600


@pytest.mark.attack("races.writer")
def test_readers_and_writers_see_old_or_new_content(tmp_path: Path) -> None:
    """Another process replaces the file concurrently. Readers see the content of one of both writers."""
    path = tmp_path / "x"
    contents = {bytes([letter]) * 300_000 for letter in b"ab"}
    path.write_bytes(min(contents))
    visited: set[bytes] = set()
    done = threading.Event()

    def write(content: bytes) -> None:
        for _ in range(30):
            write_file(path, content)

    def read() -> None:
        while not done.is_set():
            visited.add(path.read_bytes())

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    reader = threading.Thread(target=read)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert visited <= contents
    assert [name.name for name in tmp_path.iterdir()] == ["x"]


@pytest.mark.attack("races.writer")
def test_file_of_another_writer_after_the_check_is_kept(tmp_path: Path) -> None:
    system, path = LocalSystem(), str(tmp_path / "x")
    (tmp_path / "x").write_text("old")
    status = system.lstat(path)
    with open(path, "a") as stream:
        stream.write(" and more")
    with pytest.raises(ChangedMeanwhile):
        system.replace_file(path, [b"new"], OURS, status)
    assert (tmp_path / "x").read_text() == "old and more"


# -- links of ordinary users ------------------------------------------------------------------------


@pytest.mark.attack("races.parent")
@pytest.mark.root
@pytest.mark.parametrize("change", CHANGES)
def test_user_link_into_a_foreign_directory_is_refused(change: str, tmp_path: Path, outside: Path) -> None:
    """The link exists before the check. Only its owner distinguishes it from a link of the administrator."""
    link = tmp_path / "home"
    link.symlink_to(outside)
    os.chown(link, SOMEBODY, SOMEBODY, follow_symlinks=False)
    system, path = LocalSystem(), str(link / "x")
    with pytest.raises(ResourceError, match="the link 'home' of user 65534 leads to a directory of user 0"):
        CHANGES[change](system, path, look(system, path))


@pytest.mark.root
def test_user_link_to_an_own_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "home").symlink_to("data")
    for path in ("data", "home"):
        os.chown(tmp_path / path, SOMEBODY, SOMEBODY, follow_symlinks=False)
    LocalSystem().replace_file(str(tmp_path / "home" / "x"), [b"new"], OURS, None)
    assert (tmp_path / "data" / "x").read_text() == "new"


@pytest.mark.attack("races.parent")
@pytest.mark.root
@pytest.mark.parametrize("chain", [["a", "b"], ["b", "a"]])
def test_single_user_link_in_a_chain_is_enough(chain: list[str], tmp_path: Path, outside: Path) -> None:
    first, second = (tmp_path / name for name in chain)
    first.symlink_to(second)
    second.symlink_to(outside)
    os.chown(tmp_path / "a", SOMEBODY, SOMEBODY, follow_symlinks=False)
    with pytest.raises(ResourceError, match="the link 'a' of user 65534"):
        LocalSystem().replace_file(str(first / "new"), [b"new"], OURS, None)


@pytest.mark.parametrize(
    "path", ["/", "real", "real/", "./real", "real/../real", "link", "link/../real", "far", "deep/link"]
)
def test_every_other_path_leads_where_the_kernel_says(path: str, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "deep" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "far").symlink_to(tmp_path / "deep" / "below")
    (tmp_path / "deep" / "link").symlink_to("../link")
    with open_safely(str(tmp_path / path) if path == "/" else f"{tmp_path}/{path}") as descriptor:
        assert os.path.samestat(os.fstat(descriptor), os.stat(os.path.join(tmp_path, path)))


def test_link_cycles_and_non_directories_are_errors_by_path(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").touch()
    for name, message in {
        "circle": "symbolic links",
        "file": "Not a directory",
        "none": "No such file",
    }.items():
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match=message) as refused, open_safely(f"{tmp_path}/{name}"):
            pass
        assert refused.value.filename == f"{tmp_path}/{name}"
        assert len(os.listdir("/proc/self/fd")) == before


# -- modes --------------------------------------------------------------------------------------------

CALLS = (
    "open",
    "mkdir",
    "chmod",
    "chown",
    "fchmod",
    "fchown",
    "setxattr",
    "write",
    "fsync",
    "rename",
    "close",
)


def watched(
    directory: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]
) -> list[tuple[str, str, os.stat_result]]:
    """Return each system call during ``change``, with the status of each path in ``directory`` after the call."""
    seen: list[tuple[str, str, os.stat_result]] = []
    real_lstat, real_listdir = os.lstat, os.listdir

    def watch(call: str) -> None:
        real = getattr(os, call)

        def called(*arguments: Any, **named: Any) -> Any:
            result = real(*arguments, **named)
            seen.extend((call, name, real_lstat(directory / name)) for name in real_listdir(directory))
            return result

        monkeypatch.setattr(os, call, called)

    with monkeypatch.context():
        for call in CALLS:
            watch(call)
        change()
    monkeypatch.undo()
    return seen


@pytest.mark.attack("modes.managed", "modes.secret")
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o000, 0o640, 0o644, 0o4711, 0o2750])
@pytest.mark.parametrize("old", [None, 0o644, 0o666])
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_file_is_never_wider_than_its_final_mode(
    mode: int, old: int | None, umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, system = tmp_path / "x", LocalSystem()
    if old is not None:
        path.write_text("old")
        path.chmod(old)
    inode = path.stat().st_ino if old is not None else None
    before = os.umask(umask)
    try:
        attributes = Attributes(os.geteuid(), os.getegid(), mode)
        seen = watched(
            tmp_path,
            monkeypatch,
            lambda: system.replace_file(str(path), [b"secret"], attributes, system.lstat(str(path))),
        )
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    new = [(call, stat.S_IMODE(found.st_mode)) for call, _, found in seen if found.st_ino != inode]
    assert {call for call, _ in new} >= {"open", "fchmod", "write", "rename"}
    assert [(call, oct(wider)) for call, wider in new if wider & ~mode] == []


@pytest.mark.attack("modes.managed")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_acl_of_the_old_file_is_not_transferred(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, system = tmp_path / "x", LocalSystem()
    path.write_text("old")
    entries = [(1, 6, -1), (2, 6, SOMEBODY), (4, 4, -1), (0x10, 6, -1), (0x20, 4, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", acl)
    except OSError:
        pytest.skip("this file system has no access control lists")
    inode = path.stat().st_ino
    attributes = Attributes(os.geteuid(), os.getegid(), mode)
    seen = watched(
        tmp_path,
        monkeypatch,
        lambda: system.replace_file(str(path), [b"secret"], attributes, system.lstat(str(path))),
    )
    new = [(call, stat.S_IMODE(found.st_mode)) for call, _, found in seen if found.st_ino != inode]
    assert [(call, oct(wider)) for call, wider in new if wider & ~mode] == []
    assert stat.S_IMODE(path.stat().st_mode) == mode
    retained = os.getxattr(path, "system.posix_acl_access")
    assert struct.pack("<HHi", 2, 6, SOMEBODY) in retained, (
        "who was named is still named, as far as the mode allows"
    )


@pytest.mark.attack("modes.managed")
@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755, 0o1777])
def test_a_directory_is_never_wider_than_its_final_mode(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        attributes = Attributes(os.geteuid(), os.getegid(), mode)
        seen = watched(
            tmp_path, monkeypatch, lambda: LocalSystem().make_directory(str(tmp_path / "d"), attributes)
        )
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == mode
    assert [oct(found.st_mode) for _, _, found in seen if stat.S_IMODE(found.st_mode) & ~mode] == []


@pytest.mark.attack("modes.managed")
@pytest.mark.root
@pytest.mark.parametrize("mode", [0o4755, 0o600, 0o640])
@pytest.mark.parametrize("old", [0o4755, 0o644, 0o666])
def test_change_of_owner_never_widens_permissions(
    mode: int, old: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, system = tmp_path / "x", LocalSystem()
    path.write_text("content")
    path.chmod(old)
    status = system.lstat(str(path))
    assert status is not None
    attributes = Attributes(SOMEBODY, SOMEBODY, mode)
    visited = watched(tmp_path, monkeypatch, lambda: system.set_attributes(str(path), attributes, status))
    assert stat.S_IMODE(path.stat().st_mode) == mode
    for call, _, state in visited:
        allowed = old if state.st_uid == 0 else mode
        assert not stat.S_IMODE(state.st_mode) & ~allowed, (call, oct(state.st_mode))
