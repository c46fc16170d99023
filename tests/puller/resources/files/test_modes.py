"""Modes of files and directories, and attributes of existing files: special bits, changes, ``create: false``."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.errors import ResourceError
from puller.resources.base import PropertyError, Resource
from puller.resources.files.file import File
from puller.resources.files.file_properties import FileProperties
from puller.resources.files.tinycm import agree_on_file
from puller.values.file_mode import FileMode

Make = Callable[..., Resource[Any, Any]]
Converge = Callable[[Resource[Any, Any]], list[str]]
SOMEBODY = 65534
as_root = pytest.mark.root


def mode_of(path: Path) -> str:
    return f"{stat.S_IMODE(path.lstat().st_mode):04o}"


def make_directory(path: Path) -> None:
    path.mkdir()


def make_file(path: Path) -> None:
    path.write_text("#!/bin/sh\n")


@pytest.mark.parametrize(
    ("ensure", "before", "mode", "after"),
    [
        ("directory", None, "0755", "0755"),
        ("directory", None, "2775", "2775"),
        ("directory", None, "1777", "1777"),
        ("directory", None, "u+rwX,go-w", "0755"),
        ("directory", None, "g+s", "2755"),
        ("directory", None, "o=", "0750"),
        ("directory", 0o2770, "0755", "2755"),
        ("directory", 0o1777, "0700", "1700"),
        ("directory", 0o2770, "00755", "0755"),
        ("directory", 0o2770, "1777", "1777"),
        ("directory", 0o6777, "a-s", "0777"),
        ("directory", 0o777, "og-rwx", "0700"),
        ("directory", 0o2640, "u+rwX,go-w", "2740"),
        ("directory", 0o3777, "x55", "3755"),
        ("directory", 0o600, "2644", "2755"),
        ("present", None, "4755", "4755"),
        ("present", None, "u+x,go-rwx", "0700"),
        ("present", 0o4755, "0755", "0755"),
        ("present", 0o4755, "a-s", "0755"),
        ("present", 0o4755, "go-w", "4755"),
        ("present", 0o4775, "x55", "0755"),
        ("present", 0o640, "a+X", "0640"),
        ("present", 0o740, "a+X", "0751"),
        ("present", 0o644, "2755", "2755"),
    ],
)
def test_mode_converges_in_a_run(
    ensure: str, before: int | None, mode: str, after: str, make: Make, converge: Converge, tmp_path: Path,
    ours: dict[str, str],
) -> None:  # fmt: skip
    path = tmp_path / "path"
    if before is not None:
        make_directory(path) if ensure == "directory" else make_file(path)
        path.chmod(before)
    desired = {"name": str(path), **ours, "ensure": ensure, "mode": mode}
    if ensure == "present" and FileMode.parse(mode).gives_set_id:
        desired["content"] = "#!/bin/sh\n"
    converge(make(File, desired))
    assert mode_of(path) == after
    assert converge(make(File, desired)) == []


@as_root
@pytest.mark.parametrize("mode", ["4755", "2755", "u+s", "g+s,u+s"])
def test_set_id_bits_survive_a_change_of_owner(
    mode: str, make: Make, converge: Converge, tmp_path: Path
) -> None:
    path = tmp_path / "tool"
    make_file(path)
    path.chmod(0o755)
    desired = {"name": str(path), "owner": str(SOMEBODY), "group": str(SOMEBODY), "mode": mode}
    converge(make(File, {**desired, "content": "#!/bin/sh\n"}))
    assert path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    assert path.lstat().st_uid == SOMEBODY


@pytest.mark.attack("trees.set-id")
@as_root
@pytest.mark.parametrize("more", [{}, {"content": "ours\n"}])
def test_program_of_a_user_never_becomes_set_id_root(
    more: dict[str, str], make: Make, converge: Converge, tmp_path: Path, ours: dict[str, str]
) -> None:
    path = tmp_path / "tool"
    make_file(path)
    os.chown(path, SOMEBODY, SOMEBODY)
    path.chmod(0o6755)
    converge(make(File, {"name": str(path), **ours, "mode": "go-w", **more}))
    assert (path.lstat().st_uid, mode_of(path)) == (os.geteuid(), "0755")


def test_new_content_does_not_inherit_set_id_bits(
    make: Make, converge: Converge, tmp_path: Path, ours: dict[str, str]
) -> None:
    path = tmp_path / "tool"
    make_file(path)
    path.chmod(0o4755)
    desired = {"name": str(path), **ours, "mode": "go-w"}
    assert converge(make(File, desired)) == []
    converge(make(File, {**desired, "content": "another\n"}))
    assert mode_of(path) == "0755"


def test_remote_set_id_program_requires_a_checksum(make: Make, ours: dict[str, str]) -> None:
    remote = {"name": "/x", **ours, "source": "https://example.com/tool"}
    for mode in ("4755", "2755", "u+s", "a=rxs"):
        with pytest.raises(PropertyError, match="a set-id file from a URL requires a checksum"):
            make(File, {**remote, "mode": mode})
        make(File, {**remote, "mode": mode, "checksum": "0" * 64})
        make(File, {**remote, "mode": mode, "source": "files/tool"})
    make(File, {**remote, "mode": "1755"})


# Attributes of existing files


def nothing(path: Path) -> None:
    del path


def link(path: Path) -> None:
    (path.parent / "target").write_text("precious")
    path.symlink_to("target")


def other_name(path: Path) -> None:
    (path.parent / "target").write_text("precious")
    (path.parent / "target").chmod(0o777)
    path.hardlink_to(path.parent / "target")


@pytest.mark.parametrize("ensure", ["present", "exists", "directory"])
@pytest.mark.parametrize("actual", [nothing, make_file, make_directory, os.mkfifo, link, other_name])
def test_attributes_without_content_create_nothing(
    ensure: str, actual: Callable[[Path], None], make: Make, converge: Converge, tmp_path: Path
) -> None:
    path = tmp_path / "path"
    actual(path)
    if actual not in (nothing, link):
        path.chmod(0o4777)
    desired = {"name": str(path), "ensure": ensure, "create": False, "mode": "a-s,og-rwx"}
    noop = make(File, desired, noop=True)
    result = noop.look()
    predicted = noop.differences(result)
    if actual is nothing:
        assert converge(make(File, desired)) == []
        assert os.listdir(tmp_path) == []
        return
    if actual in (link, other_name) or (ensure == "directory" and actual is not make_directory):
        with pytest.raises(ResourceError) as failure:
            converge(make(File, desired))
        with pytest.raises(ResourceError) as foretold:
            noop.noop_message(predicted, result)
        assert str(failure.value) == str(foretold.value)
        assert (tmp_path / "target").exists() is (actual in (link, other_name))
        return
    kind = stat.S_IFMT(path.lstat().st_mode)
    assert noop.noop_message(predicted, result) == "Would have updated attributes"
    assert converge(make(File, desired)) == ["mode 4777 → 0700"]
    assert stat.S_IFMT(path.lstat().st_mode) == kind
    assert converge(make(File, desired)) == []


@as_root
def test_owner_and_group_alone_leave_the_mode(make: Make, converge: Converge, tmp_path: Path) -> None:
    path = tmp_path / "path"
    path.mkdir()
    path.chmod(0o2751)
    converge(make(File, {"name": str(path), "create": False, "owner": str(SOMEBODY)}))
    converge(make(File, {"name": str(path), "create": False, "group": str(SOMEBODY)}))
    status = path.lstat()
    assert (status.st_uid, status.st_gid, mode_of(path)) == (SOMEBODY, SOMEBODY, "2751")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "create is false, so owner, group or mode is required"),
        ({"mode": "a-s", "content": "x"}, "content has no effect with create: false"),
        ({"mode": "a-s", "source": "x"}, "source has no effect with create: false"),
        ({"mode": "a-s", "force": True}, "force has no effect with create: false"),
        ({"mode": "a-s", "ensure": "absent"}, "create has no effect with ensure: absent"),
        ({"mode": "a=g"}, "is 'a=g', expected octal digits"),
    ],
)
def test_contradictory_properties_are_refused_at_load(
    given: dict[str, Any], sentence: str, make: Make
) -> None:
    with pytest.raises((PropertyError, ValueError)) as error:
        make(File, {"name": "/x", "create": False, **given})
    assert sentence in str(error.value)


def test_creator_and_attribute_setter_agree() -> None:
    makes = FileProperties(name="/x", ensure="directory", owner="root", group="root", mode=FileMode(0o700))
    sets = FileProperties(name="/x", ensure="directory", create=False, mode=FileMode(0o700))
    assert agree_on_file(makes, sets) == agree_on_file(sets, makes) == makes


@pytest.mark.parametrize(
    ("given", "is_whole"),
    [
        ({"content": "x", "mode": "0644"}, True),
        ({"content": "x", "mode": "x44"}, False),
        ({"content": "x", "mode": "go-w"}, False),
        ({"content": "x", "mode": "0644", "ensure": "exists"}, False),
        ({"ensure": "directory", "mode": "0755"}, False),
        ({"ensure": "directory", "mode": "00755"}, True),
        ({"ensure": "directory", "mode": "2775"}, True),
        ({"ensure": "directory", "mode": "2775", "create": False}, False),
        ({"mode": "0644"}, False),
    ],
)
def test_only_complete_declarations_restore_a_file(
    given: dict[str, Any], *, is_whole: bool, make: Make, ours: dict[str, str]
) -> None:
    resource = make(File, {"name": "/x", **ours, **given})
    assert File.is_whole(resource.properties) is is_whole
