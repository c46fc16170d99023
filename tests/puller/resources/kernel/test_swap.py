"""The swap resource: every state of the file, the kernel and fstab, kills, full disks, and files of other kinds."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError
from puller.reporting.report import Event
from puller.resources.kernel import swap
from puller.system.noop import NoopSystem
from puller.system.protocol import System
from tests.simulators.swaps import HEADER, SwappingSystem
from tests.support.sweeps import Sweep

SMALL, LARGE = 1 << 20, 2 << 20
PRESENT = "swap: [DIR/file: {size: 1M}]"
PRIORITY = "swap: [DIR/file: {size: 1M, priority: 5}]"
BIGGER = "swap: [DIR/file: {size: 2M}]"
INACTIVE = "swap: [DIR/file: {size: 1M, active: false}]"
ABSENT = "swap: [DIR/file: {ensure: absent}]"


class Machine:
    """A machine with a swap file ``file`` in ``directory``."""

    def __init__(self, load: Callable[..., Any], directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._load = load
        self.system = SwappingSystem(directory)
        self.system.redirect(monkeypatch)
        self.directory = directory / "swap"
        self.directory.mkdir()
        self.file = self.directory / "file"

    def apply(self, entry: str, *, noop: bool = False) -> Event:
        """Apply one resource, and return its event."""
        system: System = NoopSystem() if noop else self.system
        self.system.ran.clear()
        manifest = self._load(f"resources:\n  - {entry}\n".replace("DIR", str(self.directory)))
        pending = PendingRefreshes(self.directory.parent / "owed.json", "web", noop=True)
        settings = Settings(diffs=True, noop=noop, state_directory=self.directory.parent / "state")
        (event,) = Engine(manifest, system, lambda url: b"", pending, settings).apply()
        return event

    def converge(self, entry: str) -> Event:
        """Apply a resource: in a dry run, for real, and again. Return the event of the real run."""
        before = self.picture()
        foretold = self.apply(entry, noop=True)
        assert (self.picture(), self.system.ran) == (before, [])
        done = self.apply(entry)
        assert not done.errors, done.errors
        assert foretold.differences == done.differences
        assert foretold.diff == done.diff
        again = self.apply(entry)
        assert (again.state, self.system.ran) == ("stable", [])
        return done

    @property
    def active(self) -> list[tuple[str, str]]:
        """The names and priorities of active swap."""
        lines = self.system.swaps.read_text().splitlines()[1:]
        return [(Path(line.split()[0]).name, line.split()[-1]) for line in lines]

    @property
    def fstab(self) -> str:
        return self.system.fstab.read_text().replace(str(self.directory), "DIR")

    def picture(self) -> tuple[object, ...]:
        file = self.file.read_bytes() if self.file.is_file() else None
        return file, sorted(os.listdir(self.directory)), self.active, self.fstab


@pytest.fixture
def machine(load: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(load, tmp_path, monkeypatch)


def prepare(machine: Machine, size: int, *, active: str, entry: str) -> None:
    machine.file.unlink(missing_ok=True)
    if size:
        machine.system.make(machine.file, size)
    line = f"{machine.file}\tfile\t\t1020\t\t0\t\t{active}\n" if active else ""
    machine.system.swaps.write_text(f"{HEADER}/dev/dm-1\tpartition\t1\t0\t-2\n{line}")
    machine.system.fstab.write_text(
        "/dev/sda1 none swap sw 0 0\n" + entry.replace("DIR", str(machine.directory))
    )


OTHERS = "/dev/sda1 none swap sw 0 0\n"
ENTRIES = ("", "DIR/file none swap sw\n", "DIR/file swap swap defaults,pri=9 0 0 # mine\n")


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    ("size", "active"), [(0, ""), (SMALL, ""), (SMALL, "-2"), (SMALL, "5"), (LARGE, "5")]
)
@pytest.mark.parametrize("desired", [PRESENT, PRIORITY, INACTIVE, ABSENT])
def test_every_state_becomes_the_declared_one(
    machine: Machine, size: int, active: str, entry: str, desired: str
) -> None:
    prepare(machine, size, active=active, entry=entry)
    machine.converge(desired)
    own = [priority for name, priority in machine.active if name == "file"]
    assert machine.active[0] == ("dm-1", "-2")
    assert machine.fstab.startswith(OTHERS)
    if desired == ABSENT:
        assert (machine.file.exists(), own, machine.fstab) == (False, [], OTHERS)
        return
    assert machine.file.stat().st_size == SMALL
    assert machine.file.stat().st_mode & 0o777 == 0o600
    options = "sw,pri=5" if desired == PRIORITY else "sw"
    assert f"swap {options}" in machine.fstab
    assert machine.fstab.count("DIR/file") == 1
    assert ("# mine" in machine.fstab) is ("# mine" in entry)
    if desired == INACTIVE:
        assert bool(own) is bool(active and size)
    else:
        assert own == (["5"] if desired == PRIORITY or (active == "5" and size) else ["-2"])


def test_size_is_changed_in_both_directions(machine: Machine) -> None:
    for declaration, size in ((PRESENT, SMALL), (BIGGER, LARGE), (PRESENT, SMALL)):
        machine.converge(declaration)
        assert machine.file.stat().st_size == size
        assert machine.active == [("file", "-2")]


def test_file_has_the_header_of_mkswap(machine: Machine, tmp_path: Path) -> None:
    machine.converge(PRESENT)
    assert machine.file.stat().st_blocks * 512 >= SMALL  # without holes, which the kernel refuses
    mkswap = shutil.which("mkswap", path="/usr/sbin:/sbin:/usr/bin")
    if mkswap is None:
        pytest.skip("needs mkswap")
    theirs = tmp_path / "theirs"
    theirs.write_bytes(bytes(SMALL))
    theirs.chmod(0o600)
    subprocess.run([mkswap, theirs], check=True, capture_output=True)
    ours, expected = bytearray(machine.file.read_bytes()), bytearray(theirs.read_bytes())
    for content in (ours, expected):
        content[1036:1052] = bytes(16)  # the UUID
    assert ours == expected


def test_run_that_is_killed_is_finished_by_the_next(machine: Machine, sweep: Sweep) -> None:
    def attempt(step: int) -> bool:
        prepare(machine, SMALL, active="-2", entry="")
        machine.system.dies_after = step
        try:
            machine.apply(BIGGER)
        except KeyboardInterrupt:
            assert machine.file.stat().st_size in (SMALL, LARGE)
            machine.system.dies_after = -1
            assert not machine.apply(BIGGER).errors
            assert machine.file.stat().st_size == LARGE
            assert machine.active[1:] == [("file", "-2")]
            return True
        machine.system.dies_after = -1
        return False

    assert sweep(attempt) >= 1


def test_full_disk_leaves_the_old_file_in_use(machine: Machine) -> None:
    machine.converge(PRIORITY)
    before = machine.picture()
    machine.system.is_disk_full = True
    event = machine.apply(BIGGER)
    assert "no space left on" in str(event.errors)
    assert machine.picture() == before


def test_full_memory_changes_nothing(machine: Machine) -> None:
    machine.converge(PRESENT)
    before = machine.picture()
    machine.system.is_memory_full = True
    for declaration in (BIGGER, ABSENT):
        assert "swapoff failed: Cannot allocate memory" in str(machine.apply(declaration).errors)
        assert machine.picture() == before


@pytest.mark.parametrize("noop", [True, False])
@pytest.mark.parametrize("desired", [PRESENT, ABSENT])
@pytest.mark.parametrize(
    ("obstacle", "message"),
    [
        ("file", "is not a swap file, and stays as it is; choose another path, or remove the file"),
        ("empty file", "is not a swap file"),
        ("link", "is a symbolic link, expected a swap file"),
        ("directory", "is a directory, expected a swap file"),
        ("hard link", "has 2 names (hard links)"),
    ],
)
@pytest.mark.representatives(10)
def test_file_of_another_kind_is_never_touched(
    machine: Machine, obstacle: str, message: str, desired: str, noop: bool
) -> None:
    other = machine.directory / "other"
    machine.system.make(other, SMALL)
    if obstacle == "directory":
        machine.file.mkdir()
    elif obstacle == "link":
        machine.file.symlink_to(other)
    elif obstacle == "hard link":
        machine.file.hardlink_to(other)
    else:
        machine.file.write_bytes(b"" if obstacle == "empty file" else bytes(4086) + b"precious" * 100)
    before = machine.picture()
    # Two names are only relevant for a change.
    entry = desired.replace("1M", "2M")
    (error,) = machine.apply(entry, noop=noop).errors
    assert error.startswith(f"{machine.file} ")
    assert message in error
    assert machine.picture() == before


@pytest.mark.parametrize("noop", [True, False])
@pytest.mark.parametrize("kind", ["btrfs", "tmpfs", "overlay"])
def test_unsuitable_file_system_is_refused(machine: Machine, kind: str, noop: bool) -> None:
    text = machine.system.mountinfo.read_text().replace("ext4", kind)
    machine.system.mountinfo.write_text(text)
    (error,) = machine.apply(PRESENT, noop=noop).errors
    assert error == (
        f"{machine.file} is on {kind}, which is unsuitable for swap files,"
        " expected a file system such as ext4 or xfs"
    )
    assert not machine.file.exists()


def test_tree_on_an_overlay_gets_a_file_without_use(machine: Machine) -> None:
    text = machine.system.mountinfo.read_text()
    machine.system.mountinfo.write_text(text.replace("ext4", "overlay"))
    machine.converge(INACTIVE)
    machine.system.mountinfo.write_text(text.replace("ext4", "btrfs"))
    machine.file.unlink()
    assert "is on btrfs, which is unsuitable" in str(machine.apply(INACTIVE).errors)


@pytest.mark.root
def test_directory_of_another_user_is_refused(machine: Machine) -> None:
    os.chown(machine.directory, 65534, 65534)
    (error,) = machine.apply(PRESENT).errors
    assert "can be led elsewhere by another user" in error
    assert not machine.file.exists()


@pytest.mark.root
def test_owner_who_could_read_the_memory_is_replaced(machine: Machine) -> None:
    machine.converge(PRESENT)
    os.chown(machine.file, 65534, 65534)
    done = machine.converge(PRESENT)
    assert [str(difference) for difference in done.differences] == ["owner 65534 → 0"]
    status = machine.file.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (0, 0, 0o600)


def test_mode_that_others_can_read_is_corrected(machine: Machine) -> None:
    machine.converge(PRESENT)
    machine.file.chmod(0o644)
    done = machine.converge(PRESENT)
    assert [str(difference) for difference in done.differences] == ["mode 0644 → 0600"]


def test_two_lines_in_fstab_are_a_failure(machine: Machine) -> None:
    machine.system.fstab.write_text(f"{machine.file} none swap sw 0 0\n" * 2)
    assert "has several lines for it (1 and 2)" in str(machine.apply(PRESENT).errors)


def test_kernel_that_refuses_the_file_is_a_failure(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "_SIGNATURE", b"SWAPSPACE0")
    assert "swapon: " in str(machine.apply(PRESENT).errors)
    assert machine.active == []


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ("DIR/file", "size is missing"),
        ("DIR/file: {size: 1}", "size"),
        ("DIR/file: {size: 1k}", "size is '1k', expected a size such as '512M' or '2G'"),
        ("DIR/file: {size: 0M}", "size is '0M'"),
        ("DIR/file: {size: -1M}", "size is '-1M'"),
        ('DIR/file: {size: "1M\\n"}', "expected a size"),
        ("DIR/file: {size: 1M, priority: -1}", "priority is -1, expected 0 to 32767"),
        ("DIR/file: {size: 1M, priority: 40000}", "priority is 40000"),
        ("DIR/file: {ensure: latest}", "ensure is 'latest', expected present or absent"),
        ("file: {size: 1M}", "name"),
        ("/: {size: 1M}", "name"),
        ('"DIR/a\\nb": {size: 1M}', "name"),
    ],
)
def test_invalid_values_are_errors_of_the_manifest(machine: Machine, properties: str, message: str) -> None:
    with pytest.raises(ManifestError) as error:
        machine.apply(f"swap: [{properties}]")
    assert message in str(error.value)
