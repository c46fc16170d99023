"""Every later version continues with the state that runs of root have written in released versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.puller.formats.record_root_formats import ROOT_CASES, UNMASKED, changed, publish, unpack
from tests.support.machines import powered_on

if TYPE_CHECKING:
    from tests.support.machines import Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

RECORDS = sorted(ROOT_CASES.glob("*.tar.xz"))
STATE = ("alternatives.json", "commands.json", "managed.json", "masks.json", "reboots.json", "sysctls.json")


def seen(machine: Machine) -> dict[str, str]:
    """Return the state of each object as other programs see it."""
    looks = {
        "sysctl": "grep -c '^net.ipv4.ip_forward' /etc/sysctl.d/95-recorded.conf",
        "service": "systemctl is-enabled never-wanted",
        "alternative": "update-alternatives --query pick | grep ^Value",
        "group": "getent group recorded",
    }
    return {name: machine.run("sh", "-c", look, check=False).stdout.strip() for name, look in looks.items()}


@pytest.mark.parametrize("record", RECORDS, ids=[path.name.removesuffix(".tar.xz") for path in RECORDS])
def test_host_of_an_earlier_version_stays_and_is_cleaned(record: Path, debian_disk: Path) -> None:
    unpack(record, debian_disk)
    state = debian_disk / "var/lib/puller"
    assert {name for name in STATE if (state / name).exists()} == {*STATE}
    with powered_on(debian_disk, "--private-network") as machine:
        # The namespace of the network is new.
        machine.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        before = seen(machine)
        assert before == {
            "sysctl": "1",
            "service": "masked",
            "alternative": "Value: /opt/tool/pick",
            "group": "recorded:x:4711:",
        }
        for _ in range(2):
            assert changed(machine) == []
            assert seen(machine) == before
        assert not list(state.glob("*unreadable*"))
        report = json.loads((state / "last-run.json").read_text())
        assert report.get("problems", []) == []

        # The records still lead to the removal of everything that the earlier version made.
        publish(machine, "2.0.0", UNMASKED)
        assert "service#never-wanted" in changed(machine)
        after = seen(machine)
        assert after.pop("service") in ("", "not-found")
        assert after == {"sysctl": "0", "alternative": "", "group": ""}
        assert changed(machine) == []
