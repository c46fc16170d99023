"""Kernel parameters and mounts with a real systemd, in a machine with its own network and /proc."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

ENSURE = ("mounted", "present", "unmounted", "absent")
ENTRIES = {
    "no": "",
    "same": "tmpfs {} tmpfs size=1m 0 0 # ours\n",
    "options": "tmpfs\t{} tmpfs size=1m,noexec 0 0 # ours\n",
    "device": "ramfs {} ramfs noexec 0 0 # ours\n",
}
MOUNTS = {
    "no": "",
    "same": "mount -t tmpfs -o size=1m tmpfs {}",
    "options": "mount -t tmpfs -o size=2m tmpfs {}",
    "device": "mount -t ramfs ramfs {}",
}


@pytest.fixture
def machine(debian_disk: Path) -> Iterator[Machine]:
    """A machine with its own network, so that tests can set its parameters."""
    from tests.support.machines import powered_on

    with powered_on(debian_disk, "--private-network") as result:
        yield result


def apply(machine: Machine, resources: list[Any], *options: str) -> Completed:
    text = yaml.safe_dump({"resources": resources}, sort_keys=False)
    (machine.root / "root/manifest.yaml").write_text(text)
    command = ("puller", "apply", "/root/manifest.yaml", "--verbose", *options)
    return machine.run(*command, check=False, timeout=120)


def states(done: Completed) -> dict[str, str]:
    """Return the state of each resource by name."""
    return dict(
        re.findall(r"\w+#(\S+)(?: \(.*?\))? (would change|stable|changed|failed)", done.stdout + done.stderr)
    )


def mounts(machine: Machine) -> dict[str, str]:
    """Return type and options by mount point, those of the topmost mount."""
    lines = machine.run("cat", "/proc/self/mountinfo").stdout.splitlines()
    return {line.split()[4]: f"{line.split(' - ')[1].split()[0]} {line.split()[-1]}" for line in lines}


def without(machine: Machine, *programs: str) -> None:
    """Remove programs, to prove that a successful run does not need them."""
    for program in programs:
        machine.run("mv", f"/usr/bin/{program}", f"/usr/bin/{program}.away")


def test_every_state_of_a_mount_becomes_every_other(machine: Machine) -> None:
    points = {
        f"/mnt/{ensure}-{entry}-{mounted}": (ensure, entry, mounted)
        for ensure, entry, mounted in product(ENSURE, ENTRIES, MOUNTS)
    }
    fstab = machine.root / "etc/fstab"
    fstab.write_text(
        "# by hand\n" + "".join(ENTRIES[entry].format(point) for point, (_, entry, _) in points.items())
    )
    machine.run("mkdir", *points)
    commands = [MOUNTS[mounted].format(point) for point, (_, _, mounted) in points.items() if mounted != "no"]
    machine.run("sh", "-ec", "\n".join(commands))
    machine.run("systemctl", "daemon-reload")
    provided = {"device": "tmpfs", "type": "tmpfs", "options": ["size=1m"]}
    resources = [
        {"mount": {"name": point, "ensure": ensure, **(provided if ensure in ENSURE[:2] else {})}}
        for point, (ensure, _, _) in points.items()
    ]
    before, foretold = mounts(machine), apply(machine, resources, "--noop")
    assert mounts(machine) == before
    done = apply(machine, resources)
    assert done.returncode == 0, done.stdout + done.stderr
    result, text = mounts(machine), fstab.read_text()
    assert text.startswith("# by hand\n")
    for point, (ensure, entry, mounted) in points.items():
        line = re.search(rf"^\S+\s{point} .*\n", text, re.MULTILINE)
        is_wanted = line is not None and "tmpfs size=1m 0 0" in line[0]
        assert (
            is_wanted
            if ensure in ENSURE[:2]
            else (line is not None) is (ensure != "absent" and entry != "no")
        ), point
        if ensure == "mounted":
            assert re.fullmatch(r"tmpfs rw,.*size=1024k.*", result[point]), point
        else:
            assert (point in result) is (ensure == "present" and mounted != "no"), point
    of_noop, of_run = states(foretold), states(done)
    assert [state == "would change" for state in of_noop.values()] == [
        state == "changed" for state in of_run.values()
    ]
    units = machine.run(
        "systemctl", "show", "--property=SourcePath,What", r"mnt-mounted\x2dno\x2dno.mount"
    ).stdout
    assert "SourcePath=/etc/fstab" in units
    without(machine, "mount", "umount", "systemctl")
    assert {*states(apply(machine, resources)).values()} == {"stable"}


def test_busy_mount_stays_and_failed_mount_leaves_nothing(machine: Machine) -> None:
    wrong = {"name": "/mnt/wrong", "device": "tmpfs", "type": "tmpfs", "options": ["nonsense=1"]}
    used = {"name": "/mnt/used", "device": "tmpfs", "type": "tmpfs", "options": ["size=1m"]}
    first = apply(machine, [{"mount": wrong}, {"mount": used}])
    assert states(first) == {"/mnt/wrong": "failed", "/mnt/used": "changed"}
    fstab = machine.root / "etc/fstab"
    assert "/mnt/wrong" not in (text := fstab.read_text())
    machine.run("systemd-run", "--working-directory=/mnt/used", "sleep", "1000")
    done = apply(machine, [{"mount": {"name": "/mnt/used", "ensure": "absent"}}])
    assert re.search(r"/mnt/used is in use by sleep \(\d+\)", done.stdout + done.stderr)
    assert fstab.read_text() == text
    assert "/mnt/used" in mounts(machine)


def test_hardened_machine_keeps_settings_after_a_boot(
    debian_disk: Path,
) -> None:
    from tests.support.machines import powered_on

    keys = {
        "net.ipv4.conf.all.accept_redirects": "0",
        "net.ipv4.ip_forward": "1",
        "net.ipv4.ip_local_port_range": "1024 60000",
        "net.ipv4.conf.lo.rp_filter": "2",
    }
    path = "/etc/sysctl.d/99-hardening.conf"
    directory = {"name": "/etc/sysctl.d", "ensure": "directory", "mode": "0755"}  # missing in Debian 13
    resources = [
        {"file": {**directory, "owner": "root", "group": "root"}},
        {"file": {"name": path, "owner": "root", "group": "root", "mode": "0440"}},
        *({"sysctl": {"name": key, "value": value, "path": path}} for key, value in keys.items()),
        {"mount": {"name": "/proc", "device": "proc", "type": "proc", "options": ["defaults", "hidepid=2"]}},
        {"mount": {"name": "/mnt/a", "device": "tmpfs", "type": "tmpfs", "options": ["size=1m", "noexec"]}},
        {"mount": {"name": "/mnt/a/b", "device": "/opt", "type": "none", "options": ["bind", "ro"]}},
    ]
    with powered_on(debian_disk, "--private-network") as machine:
        done = apply(machine, resources)
        assert done.returncode == 0, done.stdout + done.stderr
        changed = {name for name, state in states(done).items() if state == "changed"}
        assert {*states(done)} - changed <= {"/etc/sysctl.d"}
        assert "hidepid=invisible" in mounts(machine)["/proc"]
        without(machine, "mount", "umount", "systemctl")
        assert {*states(apply(machine, resources)).values()} == {"stable"}
        machine.run(
            "sh", "-c", "for each in mount umount systemctl; do mv /usr/bin/$each.away /usr/bin/$each; done"
        )
        assert (machine.root / path.lstrip("/")).stat().st_mode & 0o7777 == 0o440
    with powered_on(debian_disk, "--private-network") as machine:
        assert {*states(apply(machine, resources)).values()} == {"stable"}


def test_container_restrictions_are_reported(machine: Machine) -> None:
    running = machine.run("cat", "/proc/sys/kernel/kptr_restrict").stdout.strip()
    other = "1" if running != "1" else "2"
    [done, same] = (
        apply(machine, [{"sysctl": {"name": "kernel.kptr_restrict", "value": value}}])
        for value in (other, running)
    )
    assert (
        "/proc/sys/kernel/kptr_restrict cannot be changed here: /proc/sys is read-only, as in a container"
        in (done.stdout + done.stderr)
    )
    assert states(same) == {"kernel.kptr_restrict": "changed"}
    assert (machine.root / "etc/sysctl.d/90-puller.conf").read_text() == f"kernel.kptr_restrict = {running}\n"
