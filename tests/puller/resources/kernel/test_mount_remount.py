"""A change of options changes one mount, and no other mount of the same file system."""

import pytest

from puller.errors import ResourceError
from puller.resources.kernel.fstab import Fields
from puller.resources.kernel.mount_plan import Remount, plan_remount
from puller.resources.kernel.mount_table import MountTable, not_in_force
from tests.support.rows import each_row

TMPFS = "31 27 0:31 / /data {} - tmpfs tmpfs {}\n"
BOUND = "32 27 0:31 /www /www {} - tmpfs tmpfs {}\n"
TWICE = "33 27 0:31 / /twice {} - tmpfs tmpfs {}\n"


def plan(table: str, point: str, options: str, before: str | None = None) -> Remount:
    mount_table = MountTable(f"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n{table}")
    [mounted] = mount_table.at(point)
    desired = Fields("x", point, "tmpfs", (*options.split(","),))
    entry = None if before is None else Fields("x", point, "tmpfs", (*before.split(","),))
    return plan_remount(desired, entry, not_in_force(desired.options, mounted), mounted, mount_table)


BIND = "remount,bind,{},relatime -- none {}"
CASES = {
    "bind becomes ro": ("rw,relatime", "rw", "/www", "bind,ro", "bind", ["bind,ro"]),
    "bind without an entry": ("rw,relatime", "rw", "/www", "bind,ro", None, ["bind,ro"]),
    "bind becomes rw again": ("ro,relatime", "rw", "/www", "bind", "bind,ro", ["bind,rw"]),
    "bind stays ro that nobody declared": ("ro,relatime", "rw", "/www", "bind,nosuid", "bind", ["bind,ro,nosuid"]),
    "bind loses nosuid": ("rw,nosuid,relatime", "rw", "/www", "bind", "bind,nosuid", ["bind,rw,suid"]),
    "rbind becomes ro": ("rw,relatime", "rw", "/www", "rbind,ro", "rbind", ["bind,ro"]),
    "tmpfs becomes ro beside a bind": ("rw,relatime", "rw", "/data", "ro", "defaults", ["bind,ro"]),
    "tmpfs becomes nosuid": ("rw,relatime", "rw", "/data", "nosuid", "defaults", ["bind,rw,nosuid"]),
    "tmpfs grows": ("rw,relatime", "rw,size=1024k", "/data", "size=2m", "size=1m", ["tmpfs,rw,size=2m"]),
    "tmpfs grows and becomes ro": (
        "rw,relatime", "rw,size=1024k", "/data", "size=2m,ro", "size=1m", ["tmpfs,rw,size=2m", "bind,ro"],
    ),
    "tmpfs grows and stays ro": (
        "ro,relatime", "ro,size=1024k", "/data", "size=2m,ro", "size=1m,ro", ["tmpfs,ro,size=2m"],
    ),
}  # fmt: skip


def short(remount: Remount) -> list[str]:
    """Return the options of the commands without flags that have the default value."""
    results = []
    for arguments in remount.commands:
        kind = arguments[1] if arguments[0] == "-t" else "bind"
        words = arguments[arguments.index("-o") + 1].split(",")
        defaults = {"remount", "bind", "suid", "dev", "exec", "diratime", "relatime"}
        results.append(",".join([kind, *(word for word in words if word not in defaults)]))
    return results


@each_row("case", CASES)
def test_options_change_at_a_single_mount_point(case: str) -> None:
    own, of_all, point, options, before, commands = CASES[case]
    table = TMPFS.format(own, of_all) + BOUND.format(own, of_all)
    remount = plan(table, point, options, before)
    assert [command.removesuffix(",suid") for command in short(remount)] == [
        command.removesuffix(",suid") for command in commands
    ]
    assert all(arguments[-1] == point for arguments in remount.commands)


def test_a_lone_file_system_becomes_ro_as_a_whole() -> None:
    remount = plan(TMPFS.format("rw,relatime", "rw"), "/data", "ro")
    assert short(remount) == ["tmpfs,ro"]
    assert remount.becomes_read_only == {31}


def test_note_limits_ro_to_a_single_mount_point() -> None:
    table = TMPFS.format("rw", "rw") + BOUND.format("rw", "rw")
    assert plan(table, "/data", "ro").note == (
        "its file system is also mounted at /www, so only /data is read-only until the next boot"
    )
    assert not plan(table, "/www", "bind,ro").note


@pytest.mark.parametrize("other", ["rw", "ro"])
def test_rw_of_a_whole_file_system_reaches_no_other(other: str) -> None:
    table = TMPFS.format("ro,relatime", "ro") + BOUND.format(f"{other},relatime", "ro")
    if other == "ro":
        assert short(plan(table, "/data", "rw")) == ["tmpfs,rw"]
        return
    with pytest.raises(ResourceError, match="would become writable at /www, too"):
        plan(table, "/data", "rw")


def test_a_bind_of_a_read_only_file_system_is_refused() -> None:
    table = TMPFS.format("ro", "ro") + BOUND.format("rw", "ro")
    with pytest.raises(ResourceError, match="/www cannot become writable: its file system is read-only"):
        plan(table, "/www", "bind,rw")


def test_options_of_a_file_system_mounted_twice_are_refused() -> None:
    table = "".join(item.format("rw,relatime", "rw,size=1024k") for item in (TMPFS, TWICE))
    with pytest.raises(ResourceError, match="options of /twice would change at /data, too"):
        plan(table, "/twice", "size=2m")
    assert short(plan(table, "/twice", "size=1m,nosuid", "size=1m")) == ["bind,rw,nosuid"]


def test_every_flag_is_given_in_full() -> None:
    """Without explicit flags, newer versions of mount keep them and older versions clear them."""
    table = BOUND.format("rw,nodiratime,noatime,nosymfollow", "rw")
    [arguments] = plan(table, "/www", "bind,ro,noexec,strictatime", "bind,nodiratime,nosymfollow").commands
    words = "remount,bind,ro,suid,dev,noexec,diratime,symfollow,strictatime"
    assert arguments == ("-o", words, "--", "none", "/www")


def test_propagation_changes_at_a_single_mount_point() -> None:
    table = "32 27 0:31 /www /www rw shared:5 - tmpfs tmpfs rw\n"
    commands = plan(table, "/www", "bind,private", "bind").commands
    assert commands[-1] == ("--make-private", "--", "/www")
    assert len(plan(table, "/www", "bind,rshared", "bind").commands) == 1
