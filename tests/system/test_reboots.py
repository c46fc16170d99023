"""Reboots of a booted Debian: a run restarts it, and the run after the boot continues the trial."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bundles.publisher.lifecycle import make_site
from bundles.publisher.publication import publish_bundle
from tests.support.machines import powered_on, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.machines import Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

MANIFEST = """\
trial: {duration: 1s}
resources:
  - file:
      - /etc/systemd/system/greeter.service: {source: greeter.service, owner: root, group: root, mode: "0644"}
  - service:
      - greeter:
          ensure: running
          enable: true
          subscribe: [file#/etc/systemd/system/greeter.service]
          health_checks:
            - {name: up, service: {unit: greeter}, tries: 3}
  - reboot:
      - updates: {when: required, min_uptime: 0s, delay: 0s, WINDOWS}
"""
UNIT = """\
[Unit]
Description=VERSION
[Service]
ExecStart=/bin/sh -c 'COMMAND; exec sleep infinity'
[Install]
WantedBy=multi-user.target
"""
SOON = """\
[Timer]
OnActiveSec=
OnActiveSec=1s
RandomizedDelaySec=0
AccuracySec=100ms
"""


class Story:
    """A publisher, and the disk of a host that starts a run after each boot."""

    def __init__(self, directory: Path, disk: Path) -> None:
        self.directory, self.disk = directory, disk
        self.site = make_site(directory / "site", None)
        settings = {"site": "/srv/site", "bundles": [{"name": "web"}], "trust_anchor": "/srv/root.json"}
        for name, text in {
            "etc/puller/config.yaml": json.dumps(settings),
            "etc/systemd/system/puller-boot.timer.d/soon.conf": SOON,
            "etc/systemd/system/puller.timer.d/late.conf": "[Timer]\nOnCalendar=\nOnCalendar=yearly\n",
        }.items():
            path = disk / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def publish(self, version: str, *, windows: str = "", command: str = "true") -> None:
        source = self.directory / version
        source.mkdir()
        text = MANIFEST.replace(", WINDOWS", f", {windows}" if windows else "")
        (source / "manifest.yaml").write_text(text)
        (source / "greeter.service").write_text(UNIT.replace("VERSION", version).replace("COMMAND", command))
        publish_bundle(self.site, source, lambda key: b"", name="web", version=version)
        shutil.copytree(self.site.public, self.disk / "srv/site", dirs_exist_ok=True)
        shutil.copy(self.site.anchor, self.disk / "srv/root.json")


def bundle(machine: Machine) -> dict[str, Any]:
    done = machine.run("puller", "status", "--format", "json", check=False)
    result: dict[str, Any] = json.loads(done.stdout)["bundles"][0]
    return result


def boot_of(machine: Machine) -> str:
    return machine.run("cat", "/proc/sys/kernel/random/boot_id").stdout.strip()


def restart(machine: Machine) -> None:
    """Start a run as the timer does, and wait for the end of the machine. The caller boots it again."""
    machine.run("systemctl", "start", "--no-block", "puller.service")
    wait_until(lambda: not Path(f"/proc/{machine.init}").exists(), "the machine restarts", 120)


def wait_for_run(machine: Machine) -> None:
    def has_ended() -> bool:
        shown = machine.show("puller.service", "ActiveState", "ExecMainExitTimestampMonotonic")
        return shown["ActiveState"] in ("inactive", "failed") and (
            shown["ExecMainExitTimestampMonotonic"] not in ("", "0")
        )

    wait_until(has_ended, "the run after the boot has ended", 120, machine.say)


@pytest.fixture(params=["bookworm", "trixie"], ids=["Debian 12", "Debian 13"])
def disk(debian_with: Any, request: pytest.FixtureRequest) -> Iterator[Path]:
    with debian_with(codename=request.param) as root:
        yield root


@pytest.mark.sample(1)
def test_trial_continues_after_the_reboot(disk: Path, tmp_path: Path) -> None:
    story = Story(tmp_path, disk)
    later = datetime.now(UTC) + timedelta(hours=6)
    closed = f"windows: [{{from: '{later:%H:00}', to: '{later + timedelta(hours=2):%H:00}'}}]"
    story.publish("1.0.0", windows=closed)

    with powered_on(disk) as machine:
        machine.run("puller", "install-units")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "enable", "puller.timer")
        machine.run("puller", "run")
        wait_until(
            lambda: machine.run("puller", "run").returncode == 0 and bundle(machine)["good"] == "1.0.0",
            "the first version is good",
            60,
        )
        assert "reboot" not in machine.run("puller", "check").stdout

        # The reason is due, outside of the window: it is pending everywhere, and nothing restarts.
        machine.run("touch", "/run/reboot-required")
        first = boot_of(machine)
        machine.run("puller", "run")
        pending = "reboot#updates: a reboot is due"
        for command in ("status", "check"):
            assert pending in machine.run("puller", command).stdout

        # A good version without windows.
        story.publish("2.0.0")
        restart(machine)

    with powered_on(disk) as machine:
        assert boot_of(machine) != first
        wait_for_run(machine)
        assert bundle(machine)["good"] == "2.0.0", machine.say()
        assert machine.run("puller", "check").returncode == 0
        assert "reboot" not in machine.run("puller", "status").stdout

        # A version whose service cannot start after the boot.
        second = boot_of(machine)
        machine.run("touch", "/run/before", "/run/reboot-required")
        story.publish("3.0.0", command="test -e /run/before || exit 1")
        restart(machine)

    with powered_on(disk) as machine:
        third = boot_of(machine)
        assert third != second
        wait_for_run(machine)
        state = bundle(machine)
        assert (state["enforced"], state["good"]) == ("2.0.0", "2.0.0"), machine.say()
        assert "3.0.0" in machine.run("puller", "quarantine", "list").stdout
        assert machine.run("systemctl", "is-active", "greeter").stdout.strip() == "active"
        done = machine.run("puller", "check")
        assert "reboot" not in done.stdout
        assert machine.run("puller", "run", check=False).returncode == 20  # 3.0.0 is quarantined
        assert boot_of(machine) == third


SPECIFICATION = """\
Name: glibc
Version: 2.34
Release: 1
Summary: For a test
License: none
BuildArch: noarch
AutoReqProv: no
%description
For a test
%files
"""


def test_updated_core_package_of_dnf_restarts_once(debian_with: Any, tmp_path: Path) -> None:
    """The real plugin of dnf compares the time of an installation with the time of the boot."""
    with debian_with("dnf", "dnf-plugins-core", "rpm") as disk:
        # Puller queries dnf only on systems without dpkg.
        (disk / "var/lib/dpkg/status").rename(disk / "var/lib/dpkg/status-of-debian")
        (disk / "root/glibc.spec").write_text(SPECIFICATION)
        (disk / "etc/rpm").mkdir(exist_ok=True)
        (disk / "etc/rpm/macros").write_text("%_topdir /root/rpmbuild\n%_dbpath /var/lib/rpm\n")
        story = Story(tmp_path, disk)
        story.publish("1.0.0")
        with powered_on(disk) as machine:
            machine.run("puller", "install-units")
            machine.run("systemctl", "daemon-reload")
            machine.run("systemctl", "enable", "puller.timer")
            assert machine.run("dnf", "needs-restarting", "-r").returncode == 0
            assert "reboot" not in machine.run("puller", "run").stdout
            first = boot_of(machine)
            machine.run("rpmbuild", "-bb", "--quiet", "/root/glibc.spec")
            machine.run(
                "rpm", "--install", "--force-debian", "/root/rpmbuild/RPMS/noarch/glibc-2.34-1.noarch.rpm"
            )
            assert machine.run("dnf", "needs-restarting", "-r", check=False).returncode == 1
            assert "updated packages (glibc)" in machine.run("puller", "run", "--no-reboot").stdout
            assert "updated packages (glibc)" in machine.run("puller", "check").stdout
            restart(machine)
        with powered_on(disk) as machine:
            second = boot_of(machine)
            assert second != first
            wait_for_run(machine)
            assert machine.run("puller", "run").returncode == 0
            assert "reboot" not in machine.run("puller", "check").stdout
            assert boot_of(machine) == second
