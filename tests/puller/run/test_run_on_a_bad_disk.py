"""``puller run`` with a full or read-only disk for its state or for managed files.

Resources that can be enforced are enforced, and problems are reported. Once the disk is repaired, the host is in sync.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Host, Outcome, Publisher

pytestmark = pytest.mark.root


class Disk:
    """A small file system."""

    def __init__(self, point: Path) -> None:
        self.point = point

    def holds(self, directory: Path) -> Path:
        """Move a directory to this file system, and return its new path."""
        shutil.copytree(directory, self.point / directory.name, symlinks=True)
        return self.point / directory.name

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", self.point], check=True)

    def use_up_inodes(self) -> None:
        """Create files until no inodes are left."""
        for number in range(os.statvfs(self.point).f_ffree):
            (self.point / f"filler{number}").touch()
        assert os.statvfs(self.point).f_ffree == 0

    def free_inodes(self) -> None:
        for path in self.point.glob("filler*"):
            path.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Yield a file system with 4 MiB and 300 inodes."""
    point = tmp_path / "disk"
    point.mkdir()
    options = "size=4m,nr_inodes=300,mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "puller-test", str(point)], check=True)
    yield Disk(point)
    subprocess.run(["umount", str(point)], check=True)


@pytest.fixture
def on_disk(settled: Host, disk: Disk) -> Host:
    """Return a settled host with its state on the small file system."""
    settled.state = disk.holds(settled.state)
    settled.configure(state_directory=str(settled.state))
    assert settled.run().status == 0
    return settled


def drift(host: Host) -> None:
    """Delete a file without subscribers and a file with a subscriber."""
    (host.machine / "app.conf").unlink()
    (host.machine / "motd").unlink()


def assert_most_is_enforced(host: Host, outcome: Outcome, why: str) -> None:
    """Check that only resources with subscribers fail, because Puller could not record the pending refresh."""
    assert outcome.status == 78, outcome.output
    assert (host.machine / "app.conf").exists()
    assert not (host.machine / "motd").exists()
    assert re.search(rf"/motd failed .*{host.state}/owed\.json: {why}", outcome.output), outcome.output
    assert re.search(rf"cannot write the report: {host.state}/runs/\S+\.json\S*: {why}", outcome.output)
    assert host.enforced == "1.0.0"


@pytest.mark.attack("disk.read-only", "disk.readable")
def test_state_that_is_read_only_stops_updates_and_little_else(
    on_disk: Host, disk: Disk, publisher: Publisher
) -> None:
    publisher.publish("1.1.0")
    drift(on_disk)
    disk.remount("ro")
    assert_most_is_enforced(on_disk, on_disk.run(), "read-only file system")
    disk.remount("rw")
    assert on_disk.run().status == 0
    on_disk.assert_enforces("1.1.0")


@pytest.mark.attack("disk.inodes")
@pytest.mark.parametrize("fault", ["read-only", "full"])
def test_status_shows_a_run_whose_report_is_lost(
    on_disk: Host, disk: Disk, fault: str, tmp_path: Path
) -> None:
    metrics = tmp_path / "puller.prom"
    on_disk.configure(reports={"textfile": str(metrics)})
    assert on_disk.run().status == 0
    assert on_disk.puller("status", "--check").status == 0
    if fault == "full":
        disk.use_up_inodes()
    else:
        disk.remount("ro")
    assert on_disk.run().status == 78
    verdict = on_disk.puller("status", "--check")
    assert verdict.status == 2, verdict.output
    assert "the last run ended with exit status 78" in verdict.output
    shown = on_disk.status()["last_run"]
    assert shown["exit_status"] == 78
    assert "cannot write the report" in "".join(problem["text"] for problem in shown["problems"])
    assert "puller_last_run_exit_status 78" in metrics.read_text()
    if fault == "full":
        disk.free_inodes()
    else:
        disk.remount("rw")
    assert on_disk.run().status == 0
    assert on_disk.puller("status", "--check").status == 0


@pytest.mark.attack("disk.inodes")
def test_status_shows_a_run_without_a_state_directory(on_disk: Host, disk: Disk) -> None:
    shutil.rmtree(on_disk.state / "runs")
    disk.use_up_inodes()
    assert on_disk.run().status == 78
    verdict = on_disk.puller("status", "--check")
    assert verdict.status == 2, verdict.output
    assert "runs: cannot be made: no space left" in verdict.output


@pytest.mark.attack("disk.inodes", "disk.readable")
def test_state_without_an_inode_stops_updates_and_little_else(
    on_disk: Host, disk: Disk, publisher: Publisher
) -> None:
    publisher.publish("1.1.0")
    drift(on_disk)
    disk.use_up_inodes()
    assert_most_is_enforced(on_disk, on_disk.run(), "no space left on the file system")
    disk.free_inodes()
    assert on_disk.run().status == 0
    on_disk.assert_enforces("1.1.0")


@pytest.mark.attack("disk.read-only")
def test_read_only_path_fails_its_changes(settled: Host, disk: Disk) -> None:
    settled.machine = disk.holds(settled.machine)
    story = settled.configuration.parent / "facts.d" / "story.json"
    story.write_text(story.read_text().replace(str(settled.state.parent / "machine"), str(settled.machine)))
    assert settled.run().status == 0
    drift(settled)
    disk.remount("ro")
    outcome = settled.run()
    assert outcome.status == 4
    assert settled.states() == {
        "file#.": "stable",
        "file#motd": "failed",
        "file#app.conf": "failed",
        "exec#reload": "skipped",
    }
    assert outcome.output.count("read-only file system") == 2
    disk.remount("rw")
    assert settled.run().status == 0
    settled.assert_enforces("1.0.0")


@pytest.mark.attack("disk.inodes")
def test_a_place_without_an_inode_keeps_the_files_that_it_has(
    settled: Host, disk: Disk, publisher: Publisher
) -> None:
    settled.machine = disk.holds(settled.machine)
    story = settled.configuration.parent / "facts.d" / "story.json"
    story.write_text(story.read_text().replace(str(settled.state.parent / "machine"), str(settled.machine)))
    assert settled.run().status == 0
    publisher.publish("1.1.0")
    disk.use_up_inodes()
    outcome = settled.run()
    assert outcome.status in (4, 6)
    assert "no space left on the file system" in outcome.output
    assert (settled.machine / "motd").read_text() == "Hello from 1.0.0\n"
    disk.free_inodes()
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")
