"""Rules of mounts: the mount at a path, the options in force, and whether the declared device is mounted."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from puller.errors import ResourceError
from puller.resources.kernel import mount_table
from puller.resources.kernel.fstab import Fields
from puller.resources.kernel.mount_table import (
    Mounted,
    MountTable,
    find_device,
    is_desired_mount,
    is_device_missing,
    not_in_force,
)
from tests.support.rows import each_row

TABLE = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:40 / /mnt rw - tmpfs tmpfs rw,size=1024k
41 40 0:41 / /mnt/a rw shared:1 master:2 - tmpfs tmpfs rw
42 27 254:0 /srv/data /bound ro,nosuid - ext4 /dev/vda rw,discard
43 27 254:0 /srv/gone//deleted /bound2 rw - ext4 /dev/vda rw
50 27 0:50 / /two\\040words rw - tmpfs a\\040name rw
51 50 0:51 / /two\\040words rw,noexec - tmpfs second rw
60 27 0:60 / /hidden/below rw - tmpfs below rw
61 27 0:61 / /hidden rw - tmpfs cover rw
"""


def test_octal_escapes_in_mount_tables_are_decoded() -> None:
    table = MountTable(TABLE)
    assert [mount.source for mount in table.at("/two words")] == ["a name", "second"]
    assert table.at("/nothing") == []
    propagation = frozenset({"shared", "slave"})
    assert table.at("/mnt/a") == [
        Mounted(41, 40, "0:41", "/", "/mnt/a", ("rw",), "tmpfs", "tmpfs", ("rw",), propagation)
    ]
    assert table.below("/mnt") == ["/mnt/a"]


def test_overmounted_file_systems_are_ignored() -> None:
    table = MountTable(TABLE)
    assert table.at("/hidden/below") == []
    assert [mount.source for mount in table.at("/hidden")] == ["cover"]
    holding = table.holding("/hidden/below/x")
    assert holding is not None
    assert holding.source == "cover"


def mounted(kind: str, options: str, of_all: str = "rw") -> Mounted:
    return Mounted(1, 0, "8:1", "/", "/p", (*options.split(","),), kind, "/dev/sdx", (*of_all.split(","),))


@each_row(
    ("wanted", "found", "missing"),
    [
        ("defaults", mounted("ext4", "ro,noexec"), []),
        ("rw,exec", mounted("ext4", "ro,noexec"), ["rw", "exec"]),
        ("ro", mounted("ext4", "rw"), ["ro"]),
        ("ro", mounted("ext4", "rw", "ro"), []),
        ("nosuid,nodev,noexec", mounted("tmpfs", "rw,nosuid"), ["nodev", "noexec"]),
        ("noexec,exec", mounted("tmpfs", "rw"), []),
        ("exec,noexec", mounted("tmpfs", "rw"), ["noexec"]),
        ("noatime", mounted("ext4", "rw,relatime"), ["noatime"]),
        ("relatime,noatime", mounted("ext4", "rw,noatime"), []),
        ("noauto,nofail,_netdev,x-systemd.automount,comment=x,user", mounted("ext4", "rw"), []),
        ("discard,usrquota,errors=remount-ro", mounted("ext4", "rw"), []),
        ("commit=30", mounted("ext4", "rw", "rw,commit=5"), ["commit=30"]),
        ("size=1m", mounted("tmpfs", "rw", "rw,size=1024k"), []),
        ("size=1048576", mounted("tmpfs", "rw", "rw,size=1024k"), []),
        ("size=1000", mounted("tmpfs", "rw", "rw,size=4k"), []),
        ("size=2m", mounted("tmpfs", "rw", "rw,size=1024k"), ["size=2m"]),
        ("size=2m", mounted("tmpfs", "rw"), ["size=2m"]),
        ("size=50%", mounted("tmpfs", "rw"), []),
        ("mode=1777", mounted("tmpfs", "rw"), []),
        ("mode=0755", mounted("tmpfs", "rw", "rw,mode=755"), []),
        ("mode=700", mounted("tmpfs", "rw"), ["mode=700"]),
        ("uid=0,gid=root", mounted("tmpfs", "rw"), []),
        ("uid=5", mounted("vfat", "rw", "rw,uid=6"), ["uid=5"]),
        ("hidepid=2", mounted("proc", "rw", "rw,hidepid=invisible"), []),
        ("hidepid=invisible", mounted("proc", "rw", "rw,hidepid=2"), []),
        ("hidepid=2", mounted("proc", "rw"), ["hidepid=2"]),
        ("hidepid=0,gid=0", mounted("proc", "rw"), []),
        ("hidepid=2,gid=4", mounted("proc", "rw", "rw,hidepid=invisible"), ["gid=4"]),
        ("bind,ro,noatime", mounted("ext4", "ro,relatime"), ["noatime"]),
        ("bind,nosymfollow,size=1m", mounted("ext4", "rw"), ["nosymfollow"]),
        ("bind,rw", mounted("ext4", "rw", "ro"), ["rw"]),
        ("bind", mounted("ext4", "rw", "ro"), []),
        ("bind,shared", mounted("ext4", "rw"), ["shared"]),
        ("bind,rprivate,slave", mounted("ext4", "rw"), []),
        ("bind,ro", mounted("ext4", "rw", "ro"), ["ro"]),
        ("rsize=1048576,vers=4,ro", mounted("nfs4", "ro", "rw,vers=4.2,rsize=262144"), []),
        ('context="a:b:c,d"', mounted("xfs", "rw", "rw,context=a:b:c"), ["context=a:b:c,d"]),
    ],
)
def test_options_that_are_not_in_force(wanted: str, found: Mounted, missing: list[str]) -> None:
    options = (wanted,) if wanted.startswith("context") else (*wanted.split(","),)
    assert not_in_force(options, found) == missing


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a directory of device names that link to ordinary files."""
    for name in ("by-uuid/11-aa", "by-label/my\\x20disk", "by-partuuid/p1"):
        (tmp_path / "disk" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name.replace("/", "_")).write_text("")
        (tmp_path / "disk" / name).symlink_to(tmp_path / name.replace("/", "_"))
    monkeypatch.setattr(mount_table, "DISK", str(tmp_path / "disk"))
    return tmp_path


@pytest.mark.parametrize(
    ("device", "found"),
    [
        ("UUID=11-aa", "by-uuid_11-aa"),
        ('UUID="11-AA"', "by-uuid_11-aa"),
        ("LABEL=my disk", "by-label_my\\x20disk"),
        ("PARTUUID=p1", "by-partuuid_p1"),
        ("UUID=22", None),
        ("ID=x", None),
    ],
)
def test_a_tag_is_found_among_the_names_of_the_disks(disk: Path, device: str, found: str | None) -> None:
    assert find_device(device) == (found and str(disk / found))
    assert is_device_missing(device, "ext4") is (found is None)


def test_text_without_a_tag_is_the_device(disk: Path) -> None:
    for device in ("tmpfs", "host:/export", "//server/share", "/dev/sda", "a=b"):
        assert find_device(device) == device
    assert not is_device_missing("tmpfs", "tmpfs")
    assert not is_device_missing("//server/share", "cifs")
    assert is_device_missing(str(disk / "nothing"), "ext4")


def test_unresolvable_disk_names_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount_table, "DISK", "/nothing")
    assert not is_device_missing("UUID=1", "ext4")


def source(kind: str, name: str, device: str = "8:1", root: str = "/") -> Mounted:
    return Mounted(1, 0, device, root, "/p", ("rw",), kind, name, ("rw",))


@each_row(
    ("device", "kind", "found", "same"),
    [
        ("tmpfs", "tmpfs", source("tmpfs", "anything"), True),
        ("proc", "tmpfs", source("proc", "proc"), False),
        ("/dev/sda1", "ext4", source("ext4", "/dev/sda1"), True),
        ("/dev/sda1", "auto", source("xfs", "/dev/sda1"), True),
        ("/dev/sda1", "auto", source("tmpfs", "tmpfs"), False),
        ("/dev/sda1", "xfs", source("ext4", "/dev/sda1"), False),
        ("/dev/sda1", "ext4", source("ext4", "/dev/sdb1"), False),
        ("host:/export/", "nfs", source("nfs4", "host:/export"), True),
        ("host:/other", "nfs", source("nfs4", "host:/export"), False),
        ("//s/share", "cifs", source("cifs", "//s/share/"), True),
        ("share", "9p", source("9p", "share"), True),
        ("share", "9p", source("9p", "other"), False),
        ("user@host:", "fuse.sshfs", source("fuse.sshfs", "user@host:"), True),
    ],
)
def test_mounted_state_matches_the_declaration(device: str, kind: str, found: Mounted, same: bool) -> None:
    assert is_desired_mount(Fields(device, "/p", kind), found, MountTable("")) is same


def test_a_device_has_many_names(disk: Path) -> None:
    named = Fields("UUID=11-aa", "/p", "ext4")
    assert is_desired_mount(named, source("ext4", str(disk / "by-uuid_11-aa")), MountTable(""))
    assert not is_desired_mount(named, source("ext4", "/dev/sda1"), MountTable(""))


def test_undecidable_state_is_a_failure(disk: Path) -> None:
    with pytest.raises(
        ResourceError, match=r"unknown device UUID=22 in .*, so the mounted file system is unknown"
    ):
        is_desired_mount(Fields("UUID=22", "/p", "ext4"), source("ext4", "/dev/sda1"), MountTable(""))


def test_a_file_is_known_by_the_loop_device_that_it_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mount_table, "SYS_BLOCK", str(tmp_path))
    image = tmp_path / "image"
    image.write_text("")
    (tmp_path / "loop0/loop").mkdir(parents=True)
    (tmp_path / "loop0/loop/backing_file").write_text(f"{image}\n")
    assert is_desired_mount(
        Fields(str(image), "/p", "ext4"), source("ext4", "/dev/loop0", "7:0"), MountTable("")
    )
    assert not is_desired_mount(
        Fields(str(image), "/p", "ext4"), source("ext4", "/dev/loop1", "7:1"), MountTable("")
    )


@pytest.mark.parametrize(
    ("device", "number", "root", "same"),
    [
        ("/srv/data", "254:0", "/srv/data", True),
        ("/srv/data", "254:0", "/srv/data//deleted", False),  # The name belongs to another directory now.
        ("/srv/data", "254:0", "/srv/other", False),
        ("/srv/data", "8:1", "/srv/data", False),
        ("/", "254:0", "/", True),
        ("/mnt", "0:40", "/", True),
        ("/mnt/x/y", "0:40", "/x/y", True),
        ("/bound/x", "254:0", "/srv/data/x", True),
    ],
)
def test_bind_mount_is_identified_by_its_source_directory(
    device: str, number: str, root: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    unchanged: Callable[[str], str] = lambda path: path  # noqa: E731
    monkeypatch.setattr(os.path, "realpath", unchanged)
    desired = Fields(device, "/p", "none", ("bind",))
    assert is_desired_mount(desired, source("ext4", "/dev/vda", number, root), MountTable(TABLE)) is same
