"""The mount resource: every state of fstab and kernel with every declaration, on simulated mounts.

``tests/system/test_mounts.py`` does the same with real mounts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError
from puller.reporting.report import Event, State
from puller.resources.kernel import fstab, mount_changes, mount_plan, mount_table
from puller.resources.kernel.mount import Mount
from puller.resources.kernel.mount_table import MountTable
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.protocol import System
from tests.simulators import mounts as simulator

if TYPE_CHECKING:
    from tests.simulators.mounts import MountingSystem


BESIDE = "# by hand\nproc /proc proc defaults 0 0\n"


class Machine:
    """A simulated machine. ``DIR`` in manifests is the directory of its mount points."""

    def __init__(self, load: Callable[..., Any], directory: Path) -> None:
        self._load, self.directory = load, directory
        self.points, self.proc = directory / "mnt", directory / "proc"
        for path in (self.points, self.proc, directory / "state"):
            path.mkdir()
        self.fstab, self.mountinfo = directory / "fstab", directory / "mountinfo"
        self.fstab.write_text(BESIDE)
        self.mountinfo.write_text(simulator.FIRST)
        self.system = self.fresh()

    def fresh(self) -> MountingSystem:
        mounting_system: MountingSystem = simulator.MountingSystem(self.directory)
        return mounting_system

    @property
    def ran(self) -> list[str]:
        return self.system.ran

    def mounted(self, name: str = "a") -> list[str]:
        """Return type and options of the mounts at a point, the topmost last."""
        table = MountTable(self.mountinfo.read_text())
        return [
            f"{mount.type} {','.join(sorted(mount.all_options))}"
            for mount in table.at(f"{self.points}/{name}")
        ]

    def add(
        self, name: str, *, options: str = "defaults", kind: str = "tmpfs", device: str = "tmpfs"
    ) -> None:
        (self.points / name).mkdir(parents=True, exist_ok=True)
        number = 50 + self.mountinfo.read_text().count("\n")
        self.fresh().add(number, device, f"{self.points}/{name}", kind, tuple(options.split(",")))

    def apply(self, *entries: str, noop: bool = False, **options: Any) -> dict[str, Event]:
        system: System = NoopSystem() if noop else self.system
        self.system.ran.clear()
        text = "resources:\n" + "".join(f"  - {entry}\n" for entry in entries)
        pending = PendingRefreshes(self.directory / "owed.json", "web", noop=True)
        settings = Settings(
            diffs=True, noop=noop, state_directory=options.get("state", self.directory / "state")
        )
        manifest = self._load(text.replace("DIR", str(self.points)))
        engine = Engine(manifest, system, lambda url: b"", pending, settings)
        return {event.name.removeprefix(f"{self.points}/"): event for event in engine.apply()}


@pytest.fixture
def machine(load: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(load, tmp_path)
    (tmp_path / "systemd").mkdir()
    monkeypatch.setattr(fstab, "FSTAB", str(machine.fstab))
    monkeypatch.setattr(mount_table, "MOUNTINFO", str(machine.mountinfo))
    monkeypatch.setattr(mount_changes, "SYSTEMD", str(tmp_path / "systemd"))
    monkeypatch.setattr(mount_changes, "PROC", str(machine.proc))
    return machine


def mount(name: str = "a", ensure: str = "mounted", options: str = "size=1m", **more: str) -> str:
    provided = (
        {"device": "tmpfs", "type": "tmpfs", "options": f"[{options}]"}
        if ensure not in ("absent", "unmounted")
        else {}
    )
    properties = {"name": f"'DIR/{name}'", "ensure": ensure, **provided, **more}
    return f"mount: {{{', '.join(f'{key}: {value}' for key, value in properties.items())}}}"


ENTRIES = {
    "no": "",
    "same": "tmpfs {} tmpfs size=1m 0 0  # ours\n",
    "options": "tmpfs\t{}\ttmpfs\tsize=1m,noexec\t0 0  # ours\n",
    "device": "/dev/x {} ext4 size=1m 0 0  # ours\n",
}
MOUNTS: dict[str, dict[str, str]] = {
    "no": {},
    "same": {"options": "size=1m"},
    "options": {"options": "size=2m"},
    "device": {"kind": "ext4", "device": "/dev/x"},
}


def steps(ensure: str, entry: str, mounted: str) -> tuple[list[str], list[str]]:
    """Return the expected commands and the dry run's phrases (``types.md`` section 6)."""
    away = (["umount a"], ["unmounted"]) if mounted != "no" else ([], [])
    line = (["fstab", "daemon-reload"], ["written to fstab"]) if entry != "same" else ([], [])
    if ensure == "unmounted":
        return away
    if ensure == "absent":
        gone = (["fstab", "daemon-reload"], ["removed from fstab"]) if entry != "no" else ([], [])
        return away[0] + gone[0], away[1] + gone[1]
    if ensure == "present":
        return line
    if mounted == "no":
        then = (["mount a"], ["mounted"])
    elif mounted == "device":
        then = (["umount a", "mount a"], ["unmounted", "mounted"])
    elif mounted == "options" or entry == "options":
        # Only ``noexec`` is removed. It is a flag of the mount point, while ``size`` belongs to the file system.
        how = "remount a" if mounted == "options" else "remount bind a"
        return [how, *line[0]], ["remounted", *line[1]]
    else:
        then = ([], [])
    return line[0] + then[0], line[1] + then[1]


@pytest.mark.representatives(20)
@pytest.mark.parametrize("mounted", MOUNTS)
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("ensure", ["mounted", "present", "unmounted", "absent"])
def test_every_state_becomes_every_other_and_stays(
    machine: Machine, ensure: str, entry: str, mounted: str
) -> None:
    (machine.points / "a").mkdir()
    line = ENTRIES[entry].format(machine.points / "a")
    machine.fstab.write_text(f"{line}{BESIDE}")
    if mounted != "no":
        machine.add("a", **MOUNTS[mounted])
    foretold = machine.apply(mount(ensure=ensure), noop=True)["a"]
    assert machine.ran == []
    done = machine.apply(mount(ensure=ensure))["a"]
    ran, words = steps(ensure, entry, mounted)
    assert machine.ran == ran
    assert foretold.noop_message == (f"Would have {', '.join(words)}" if words else "")
    assert foretold.differences == done.differences
    assert foretold.diff == done.diff
    assert bool(done.diff) is ("fstab" in ran)
    assert done.state == ("changed" if words else "stable")
    assert BESIDE in machine.fstab.read_text()
    if ensure in ("mounted", "present") and entry != "no":
        assert "  # ours\n" in machine.fstab.read_text()
    if ensure == "mounted":
        assert machine.mounted() == ["tmpfs rw,size=1m"]
    if ensure in ("unmounted", "absent"):
        assert machine.mounted() == []
    if ensure == "unmounted":
        assert machine.fstab.read_text() == f"{line}{BESIDE}"
    if ensure == "absent":
        assert machine.fstab.read_text() == BESIDE
        assert (machine.points / "a").is_dir()
    assert machine.apply(mount(ensure=ensure))["a"].state == "stable"
    assert machine.ran == []


def test_mounts_of_a_run_share_a_write_and_a_reload(machine: Machine) -> None:
    entries = [mount("a/b"), "exec: [{'true': {}}]", mount("c"), mount("a")]
    foretold = machine.apply(*entries, noop=True)
    assert {event.state for event in foretold.values()} == {State.WOULD_CHANGE}
    done = machine.apply(*entries)
    assert [item for item in machine.ran if item != "true"][:3] == ["fstab", "daemon-reload", "directory"]
    assert [item for item in machine.ran if item.startswith("mount")] == ["mount a", "mount b", "mount c"]
    assert machine.ran.count("fstab") == machine.ran.count("daemon-reload") == 1
    assert [bool(event.diff) for event in done.values()] == [True, False, False, False]
    assert machine.mounted("a/b") == ["tmpfs rw,size=1m"]
    machine.apply(*entries)
    assert machine.ran == ["true"]


def test_inner_mounts_are_unmounted_first(machine: Machine) -> None:
    for name in ("a", "a/b"):
        machine.add(name)
    entries = [mount("a", "absent"), mount("a/b", "unmounted")]
    assert machine.apply(*entries, noop=True)["a"].noop_message == "Would have unmounted"
    machine.apply(*entries)
    assert machine.ran == ["umount b", "umount a"]


def test_unrelated_order_of_mounts_does_not_matter(machine: Machine, make: Callable[..., Any]) -> None:
    """As when both are removed as leftovers."""
    members = []
    for name in ("a", "a/b"):
        machine.add(name)
        members.append(make(Mount, {"name": f"{machine.points}/{name}", "ensure": "absent"}))
        members[-1].context = msgspec.structs.replace(members[0].context, system=machine.system)
    assert not Mount.change_together([(member, member.look()) for member in members])
    assert machine.ran == ["umount b", "umount a"]


def test_inner_mount_keeps_the_outer_mounted(machine: Machine) -> None:
    for name in ("a", "a/b"):
        machine.add(name)
    for noop in (True, False):
        [error] = machine.apply(mount("a", "absent"), noop=noop)["a"].errors
        assert error == f"{machine.points}/a is in use: {machine.points}/a/b is mounted below it"
    assert machine.ran == []


@pytest.mark.parametrize("wrong", ["a", "b", "c"])
def test_failed_mount_restores_its_entry_and_blocks_no_other(machine: Machine, wrong: str) -> None:
    old = f"tmpfs {machine.points}/a tmpfs noauto 0 0 # old\n"
    machine.fstab.write_text(old)
    options = dict.fromkeys("abc", "size=1m") | {wrong: "wrong"}
    events = machine.apply(*(mount(name, options=options[name]) for name in "abc"))
    assert {name for name, event in events.items() if event.state == "failed"} == {wrong}
    [error] = events[wrong].errors
    reason = "wrong fs type, bad option, bad superblock."
    assert error == f"mount: exit code 32; it said: mount: {machine.points}/{wrong}: {reason}"
    text = machine.fstab.read_text()
    assert "wrong" not in text
    assert (old in text) is (wrong == "a")
    assert machine.ran.count("fstab") == machine.ran.count("daemon-reload") == 2
    assert machine.mounted(wrong) == []


def test_failed_new_device_keeps_the_old_mount(machine: Machine) -> None:
    old = f"tmpfs {machine.points}/a tmpfs size=5m 0 0\n"
    machine.fstab.write_text(old)
    machine.add("a", options="size=5m")
    (machine.directory / "broken").write_text("")
    event = machine.apply(mount("a", device=f"{machine.directory}/broken", type="ext4"))["a"]
    assert event.state == "failed"
    assert machine.fstab.read_text() == old
    assert machine.mounted() == ["tmpfs rw,size=5m"]


@pytest.mark.parametrize("has_entry", [True, False])
def test_nofail_hides_no_failed_mount(machine: Machine, has_entry: bool) -> None:
    """With ``nofail``, mount(8) exits without an error and mounts nothing."""
    old = f"tmpfs {machine.points}/a tmpfs size=5m 0 0\n" if has_entry else ""
    machine.fstab.write_text(old)
    machine.add("a", options="size=5m")
    (machine.directory / "missing").write_text("")
    other = {"device": f"{machine.directory}/missing", "type": "ext4", "options": "nofail"}
    for name in ("a", "b"):
        event = machine.apply(mount(name, **other))[name]
        assert event.errors == [
            "mount has ended without an error and has mounted nothing, since the option nofail hides the reason"
        ]
        assert machine.fstab.read_text() == old
    assert machine.mounted("a") == ["tmpfs rw,size=5m"]


def test_a_failed_remount_leaves_the_old_entry(machine: Machine) -> None:
    old = f"tmpfs {machine.points}/a tmpfs size=1m 0 0\n"
    machine.fstab.write_text(old)
    machine.add("a", options="size=1m")
    event = machine.apply(mount("a", options="size=2m,wrong,nofail"))["a"]
    assert event.state == "failed"
    assert machine.ran == ["remount a"]
    assert machine.fstab.read_text() == old


@pytest.mark.parametrize("step", range(4))
def test_a_killed_change_of_options_is_finished(machine: Machine, step: int) -> None:
    """The kernel shows ``rw`` without declared options, so the new entry alone would seem in sync."""
    (machine.directory / "data").mkdir()
    declared = {"device": f"{machine.directory}/data", "type": "none"}
    machine.apply(mount("a", options="bind,ro", **declared))
    machine.system.dies_after = step
    try:
        machine.apply(mount("a", options="bind", **declared))
    except KeyboardInterrupt:
        machine.system = machine.fresh()
    machine.apply(mount("a", options="bind", **declared))
    assert machine.mounted() == ["ext4 discard,rw"]


def test_a_server_that_does_not_answer_is_a_failure_of_its_own(machine: Machine) -> None:
    machine.system.stuck.add(f"{machine.points}/a")
    events = machine.apply(mount("a"), mount("b"))
    assert events["a"].errors == ["mount: killed after 60.0 s, its time limit"]
    assert events["b"].state == "changed"
    assert "mnt/a" not in machine.fstab.read_text()


# Mounts in use


def hold(machine: Machine, number: int, how: str, path: str) -> None:
    process = machine.proc / str(number)
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_text("sleep\n")
    (process / how).symlink_to(path)


@pytest.mark.parametrize("how", ["cwd", "root", "exe", "fd/3"])
@pytest.mark.parametrize("ensure", ["absent", "unmounted", "mounted"])
def test_busy_mount_and_its_entry_stay(machine: Machine, how: str, ensure: str) -> None:
    line = f"tmpfs {machine.points}/a tmpfs defaults 0 0\n"
    machine.fstab.write_text(line)
    machine.add("a")
    hold(machine, 77, how, f"{machine.points}/a/file (deleted)")
    hold(machine, 78, how, f"{machine.points}/ab")
    (machine.directory / "image").write_text("")
    entry = mount(
        "a",
        ensure,
        **({"device": f"{machine.directory}/image", "type": "ext4"} if ensure == "mounted" else {}),
    )
    for noop in (True, False):
        assert machine.apply(entry, noop=noop)["a"].errors == [f"{machine.points}/a is in use by sleep (77)"]
        assert machine.ran == []
    assert machine.fstab.read_text() == line


def test_mount_kept_by_the_kernel_is_a_failure(machine: Machine) -> None:
    line = f"tmpfs {machine.points}/a tmpfs defaults 0 0\n"
    machine.fstab.write_text(line)
    machine.add("a")
    machine.system.busy.add(f"{machine.points}/a")
    [error] = machine.apply(mount("a", "absent"))["a"].errors
    assert error == f"umount: exit code 32; it said: umount: {machine.points}/a: target is busy."
    assert machine.fstab.read_text() == line


@pytest.mark.parametrize(("layers", "left"), [(2, 0), (8, 0), (9, 1)])
def test_mounts_over_each_other_are_all_unmounted_up_to_eight(
    machine: Machine, layers: int, left: int
) -> None:
    for _ in range(layers):
        machine.add("a")
    event = machine.apply(mount("a", "unmounted"))["a"]
    assert len(machine.ran) == layers - left
    assert event.state == ("failed" if left else "changed")
    assert len(machine.mounted()) == left


def test_of_mounts_over_each_other_the_topmost_counts(machine: Machine) -> None:
    machine.add("a", options="size=9m")
    machine.add("a", options="size=1m")
    machine.apply(mount("a"))
    assert machine.ran == ["fstab", "daemon-reload"]


@pytest.mark.parametrize("point", ["/", "/proc", "/sys", "/dev", "/run"])
@pytest.mark.parametrize("ensure", ["absent", "unmounted"])
def test_system_mounts_are_never_unmounted(machine: Machine, point: str, ensure: str) -> None:
    with pytest.raises(ManifestError, match=f"ensure is {ensure}; {point} is never unmounted"):
        machine.apply(f"mount: {{name: {point}, ensure: {ensure}}}")


def test_nor_by_another_name_or_for_another_device(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.add("a")
    retained = (*mount_plan.NEVER_UNMOUNTED, f"{machine.points}/a")
    monkeypatch.setattr(mount_changes, "NEVER_UNMOUNTED", retained)
    (machine.directory / "link").symlink_to(machine.points)
    (machine.directory / "image").write_text("")
    link = mount("a", "unmounted").replace("DIR", f"{machine.directory}/link")
    other = mount("a", device=f"{machine.directory}/image", type="ext4")
    for entry in (link, other):
        [event] = machine.apply(entry).values()
        assert event.errors == [f"{machine.points}/a is never unmounted: the system needs it"]


def test_mount_of_the_state_directory_is_never_unmounted(machine: Machine) -> None:
    machine.add("a")
    [error] = machine.apply(mount("a", "absent"), state=machine.points / "a/puller")["a"].errors
    assert (
        error
        == f"{machine.points}/a is never unmounted: {machine.points}/a/puller is in it, where Puller keeps its state"
    )


def test_system_mounts_are_remounted(machine: Machine) -> None:
    machine.mountinfo.write_text(f"{simulator.FIRST}30 27 0:30 / /proc rw - proc proc rw\n")
    entry = "mount: {name: /proc, device: proc, type: proc, options: [defaults, hidepid=2]}"
    [event] = machine.apply(entry).values()
    assert [*map(str, event.differences)] == [
        "options rw → defaults,hidepid=2",
        f"{machine.fstab} entry proc /proc proc defaults 0 0 → proc /proc proc defaults,hidepid=2 0 0",
    ]
    assert machine.ran == ["remount proc", "fstab", "daemon-reload"]
    machine.apply(entry)
    assert machine.ran == []


# Mount points


def test_a_missing_mount_point_is_made(machine: Machine) -> None:
    machine.apply(mount("a/b"))
    assert (machine.points / "a/b").stat().st_mode & 0o7777 == 0o755


def test_hidden_files_below_a_mount_are_a_warning(machine: Machine) -> None:
    (machine.points / "a").mkdir()
    (machine.points / "a/file").write_text("")
    output = f"the content of the directory {machine.points}/a is hidden while a file system is mounted there"
    assert machine.apply(mount("a"), mount("b"), noop=True)["a"].notes == [output]
    events = machine.apply(mount("b"), mount("a"))
    assert events["a"].notes == [output]
    assert events["b"].notes == []


@pytest.mark.attack("mount.link")
def test_a_link_in_the_place_of_the_point_is_refused(machine: Machine) -> None:
    (machine.points / "a").symlink_to("/etc")
    for noop in (True, False):
        assert machine.apply(mount("a"), noop=noop)["a"].errors == [
            f"{machine.points}/a is a symbolic link; name its target"
        ]
    assert machine.ran == []


@pytest.mark.attack("mount.exchange")
@pytest.mark.parametrize("is_theirs", [False, True])
def test_mount_point_swapped_for_a_link_mounts_nowhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, is_theirs: bool
) -> None:
    """A user who reads fstab can foresee the mount."""
    theirs, elsewhere = machine.points / "user", machine.directory / "elsewhere"
    (theirs / "a").mkdir(parents=True)
    elsewhere.mkdir()

    def exchanged(system: System) -> str:
        if not (theirs / "a").is_symlink():
            (theirs / "a").rmdir()
            (theirs / "a").symlink_to(elsewhere)
            if is_theirs and os.geteuid() == 0:
                os.chown(theirs / "a", 65534, 65534, follow_symlinks=False)
                os.chown(theirs, 65534, 65534)
        return ""

    monkeypatch.setattr(mount_changes, "tell_systemd", exchanged)
    [error] = machine.apply(mount("user/a"))["user/a"].errors
    assert "leads to" in error
    assert not [item for item in machine.ran if item.startswith("mount")]
    assert machine.fstab.read_text() == BESIDE


def test_a_point_behind_a_link_of_root_is_found_mounted(machine: Machine) -> None:
    machine.add("a")
    (machine.directory / "link").symlink_to(machine.points)
    machine.fstab.write_text(f"tmpfs {machine.directory}/link/a tmpfs size=1m 0 0\n")
    [event] = machine.apply(
        mount("a", options="defaults").replace("DIR", f"{machine.directory}/link")
    ).values()
    assert machine.ran == ["remount a", "fstab", "daemon-reload"]
    assert event.state == "changed"


# Devices


def test_missing_device_fails_in_noop_too(machine: Machine) -> None:
    entry = mount("a", device="/dev/nothing", type="ext4")
    for noop in (True, False):
        assert machine.apply(entry, noop=noop)["a"].errors == ["there is no /dev/nothing"]
    assert machine.ran == []
    assert (
        machine.apply("exec: [vgcreate]", entry, noop=True)["a"].noop_message
        == "Would have written to fstab, mounted"
    )


def test_a_missing_helper_is_named_with_its_package(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mount_changes, "_HELPER_DIRECTORIES", (str(machine.directory),))
    entry = mount("a", device="server:/export", type="nfs")
    output = "mount.nfs is missing; it comes with the package nfs-common (nfs-utils)"
    for noop in (True, False):
        assert machine.apply(entry, noop=noop)["a"].errors == [output]
    assert machine.ran == []
    (machine.directory / "mount.nfs").write_text("")
    assert machine.apply(entry)["a"].state == "changed"


@pytest.mark.parametrize(("program", "ensure"), [("mount", "mounted"), ("umount", "unmounted")])
def test_a_missing_tool_is_named_with_its_package(machine: Machine, program: str, ensure: str) -> None:
    if ensure == "unmounted":
        machine.add("a")
    machine.system.without.add(program)
    event = machine.apply(mount("a", ensure))["a"]
    assert event.errors == [f"{program} is missing; it comes with the package mount (util-linux)"]
    assert machine.fstab.read_text() == BESIDE


def test_systemd_that_reads_nothing_is_a_warning(machine: Machine) -> None:
    machine.system.without.add("systemctl")
    event = machine.apply(mount("a"))["a"]
    assert event.state == "changed"
    assert event.notes == [
        "systemd has not read /etc/fstab: systemctl is missing; it comes with the package systemd"
    ]


def test_where_systemd_does_not_run_it_is_not_told(machine: Machine) -> None:
    (machine.directory / "systemd").rmdir()
    machine.apply(mount("a"))
    assert "daemon-reload" not in machine.ran


def test_a_bound_directory_is_mounted_once(machine: Machine) -> None:
    (machine.directory / "data").mkdir()
    entry = mount("a", device=f"{machine.directory}/data", type="none", options="bind,ro")
    machine.apply(entry)
    assert machine.mounted() == ["ext4 discard,ro,rw"]
    machine.apply(entry)
    assert machine.ran == []


def test_directory_of_a_new_mount_is_bound_in_the_same_run(machine: Machine) -> None:
    entries = [mount("b", device="DIR/a/data", type="none", options="bind"), mount("a")]
    assert machine.apply(*entries, noop=True)["b"].noop_message == "Would have written to fstab, mounted"
    machine.apply(*entries)
    assert [item for item in machine.ran if item.startswith("mount")] == ["mount a", "mount b"]


def test_nothing_is_mounted_below_a_failed_mount(machine: Machine) -> None:
    """The inner mount would be hidden as soon as the outer mount succeeds."""
    events = machine.apply(mount("a", options="wrong"), mount("a/b"), mount("ab"))
    assert [events[name].state for name in ("a", "a/b", "ab")] == ["failed", "failed", "changed"]
    assert events["a/b"].errors == [f"nothing could be mounted at {machine.points}/a, which is above it"]
    assert machine.mounted("a/b") == []
    assert f"{machine.points}/a/b" not in machine.fstab.read_text()


def test_points_of_autofs_are_left_to_it(machine: Machine) -> None:
    machine.add("a", kind="autofs", device="/etc/auto.misc")
    for ensure in ("mounted", "absent"):
        assert machine.apply(mount("a", ensure))["a"].errors == [
            "it is a point of autofs, from /etc/auto.misc, which is left to it"
        ]
    machine.add("b", kind="autofs", device="systemd-1")
    entry = mount("b", options="x-systemd.automount,size=1m")
    machine.apply(entry)
    assert machine.ran == ["fstab", "daemon-reload"]
    machine.apply(entry)
    assert machine.ran == []


# fstab


def test_two_lines_for_a_mount_point_are_refused(machine: Machine) -> None:
    machine.fstab.write_text(f"{BESIDE}a {machine.points}/a ext4\n# x\nb {machine.points}/a/ xfs\n")
    for ensure in ("mounted", "absent"):
        [error] = machine.apply(mount("a", ensure))["a"].errors
        assert "has several lines for it (3 and 5)" in error


def test_a_missing_fstab_is_made(machine: Machine) -> None:
    machine.fstab.unlink()
    machine.apply(mount("a"))
    assert machine.fstab.read_text() == f"tmpfs {machine.points}/a tmpfs size=1m 0 0\n"
    assert machine.fstab.stat().st_mode & 0o7777 == 0o644


@pytest.mark.parametrize("name", ["two words", "tab\\there", "öä", "#hash", "back\\\\slash"])
def test_a_point_has_any_name(machine: Machine, name: str) -> None:
    entry = mount("a").replace("'DIR/a'", f'"DIR/{name}"')
    machine.apply(entry)
    assert len(machine.mountinfo.read_text().splitlines()) == 2
    machine.apply(entry)
    assert machine.ran == []


@pytest.mark.parametrize("step", range(6))
def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(machine: Machine, step: int) -> None:
    (machine.points / "b").mkdir()
    machine.add("b", options="size=7m")
    machine.add("c")
    entries = [mount("a"), mount("b"), mount("c", "absent")]
    machine.system.dies_after = step
    with pytest.raises(KeyboardInterrupt):
        machine.apply(*entries)
    machine.system = machine.fresh()
    machine.apply(*entries)
    assert machine.mounted("a") == machine.mounted("b") == ["tmpfs rw,size=1m"]
    assert machine.mounted("c") == []
    assert {event.state for event in machine.apply(*entries).values()} == {"stable"}
    assert machine.ran == []


def test_versions_one_two_and_back(machine: Machine) -> None:
    for options in ("size=1m", "size=1m,noexec", "size=1m"):
        machine.apply(mount("a", options=options))
        assert {*machine.ran} & {"mount a", "remount bind a"}
        assert machine.fstab.read_text() == f"{BESIDE}tmpfs {machine.points}/a tmpfs {options} 0 0\n"
        assert ("noexec" in machine.mounted()[0]) is ("noexec" in options)


# Errors at load


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("name: none, device: /dev/x, type: ext4", "expected an absolute path"),
        ("name: /a/../b, device: /dev/x, type: ext4", "expected an absolute path"),
        ('name: "/a\\nb", device: /dev/x, type: ext4', "without control characters"),
        ("name: /a, type: ext4", "device is missing"),
        ("name: /a, device: /dev/x", "type is missing"),
        ("name: /a, device: -x, type: ext4", "device is '-x'"),
        ('name: /a, device: "x\\n/dev/y / ext4", type: ext4', "which is not a device"),
        ("name: /a, device: /dev/x, type: swap", "expected the type of a file system"),
        ("name: /a, device: /dev/x, type: -x", "expected the type of a file system"),
        ("name: /a, device: /dev/x, type: ../x", "expected the type of a file system"),
        ("name: /a, device: /dev/x, type: none", "requires the option bind or rbind"),
        ("name: /a, device: x, type: none, options: [bind]", "expected the path that is bound"),
        ("name: /a, device: x, type: tmpfs, options: []", "options is empty"),
        ("name: /a, device: x, type: tmpfs, options: ['ro,exec']", "expected one option each"),
        ('name: /a, device: x, type: tmpfs, options: ["a\\nb"]', "expected one option each"),
        ("name: /a, device: x, type: tmpfs, options: [remount]", "which is not an option of fstab"),
        ("name: /a, device: x, type: tmpfs, options: ['#x']", "which is not an option of fstab"),
        ("name: /a, device: x, type: tmpfs, dump: 10", "dump is not valid"),
        ("name: /a, device: x, type: tmpfs, pass: -1", "pass is not valid"),
        ("name: /a, device: x, type: tmpfs, ensure: running", "expected one of mounted, present"),
    ],
)
def test_impossible_properties_are_refused_at_load(machine: Machine, properties: str, said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        machine.apply(f"mount: {{{properties}}}")


def test_declarations_agree_or_do_not(machine: Machine) -> None:
    machine.apply(mount("a"), mount("a"))
    assert machine.ran.count("mount a") == 1
    with pytest.raises(ManifestError, match="the two differ: options"):
        machine.apply(mount("a"), mount("a", options="noexec"))


def test_managed_fstab_excludes_other_entries(machine: Machine) -> None:
    attributes = "owner: root, group: root, mode: '0644'"
    with pytest.raises(ManifestError, match="another resource writes the whole file: file#"):
        machine.apply(f"file: {{name: {machine.fstab}, content: x, {attributes}}}", mount("a"))


@pytest.mark.attack("secrets.sensitive")
def test_sensitive_mount_masks_device_and_options(machine: Machine) -> None:
    entry = mount("a", options="password=hunter2", sensitive="true")
    for event in (*machine.apply(entry, noop=True).values(), *machine.apply(entry).values()):
        output = f"{event.differences} {event.noop_message} {event.diff} {event.notes} {event.errors}"
        assert "hunter2" not in output


def test_a_hundred_mounts_in_order_read_two_files(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [mount(f"m{number}") for number in range(100)]
    machine.apply(*entries)
    reads: list[str] = []
    original = type(machine.system).read

    def read(system: LocalSystem, path: str) -> bytes:
        reads.append(path)
        return original(system, path)

    monkeypatch.setattr(type(machine.system), "read", read)
    events = machine.apply(*entries)
    assert {event.state for event in events.values()} == {"stable"}
    assert machine.ran == []
    assert reads == [str(machine.fstab)]


def test_mount_of_a_trial_is_removed_by_name(machine: Machine, make: Callable[..., Any]) -> None:
    from puller.resources.registry import find_remover

    remover = find_remover("mount")
    assert remover is not None
    resource = make(remover, {"name": f"{machine.points}/a", "ensure": "absent"})
    assert not resource.is_there(resource.look())
    machine.apply(mount("a"))
    resource = make(remover, {"name": f"{machine.points}/a", "ensure": "absent"})
    actual = resource.look()
    assert resource.is_there(actual)
    assert resource.changed_paths(actual) is None
    assert not resource.is_whole(resource.properties)
    assert os.path.isdir(machine.points / "a")
