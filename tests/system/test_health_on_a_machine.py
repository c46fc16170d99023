"""Automatic rollbacks: a new bundle breaks a service, and a machine loses power twice while it applies a bundle.

The machine has no network. Its site is a directory, such as a USB drive.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bundles.publisher.lifecycle import make_site
from bundles.publisher.publication import publish_bundle

if TYPE_CHECKING:
    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

UNIT = """\
[Service]
ExecStart=/usr/bin/sh -c "exec sleep $(cat /etc/greeter)"
"""
MANIFEST = """\
resources:
  - file:
      - defaults: {owner: root, group: root, mode: "0644"}
      - /etc/systemd/system/greeter.service: {source: greeter.service}
      - /etc/greeter: {content: "GREETING"}
  - service:
      - greeter:
          ensure: running
          subscribe: [file#/etc/greeter, file#/etc/systemd/system/greeter.service]
          health_checks:
            - {name: up, command: "sh -c 'sleep 0.5; systemctl is-active greeter'"}
EXTRA"""
WAIT = """\
  - exec:
      - wait: {command: "sh -c 'touch /root/waiting; exec sleep 600'", timeout: 700s}
"""
CONFIGURATION = """\
site: /srv/site
bundles: [{name: greeter}]
trust_anchor: /srv/root.json
"""


class Stick:
    """The machine's site, and the copy of it on the machine's disk."""

    def __init__(self, directory: Path, disk: Path) -> None:
        self.site = make_site(directory / "site", None)
        self.directory, self.disk = directory, disk
        (disk / "etc/puller").mkdir()
        (disk / "etc/puller/config.yaml").write_text(CONFIGURATION)
        shutil.copy(self.site.anchor, disk / "srv/root.json")

    def publish(self, version: str, greeting: str, extra: str = "", *, unit: str = UNIT) -> None:
        source = self.directory / version
        source.mkdir()
        (source / "greeter.service").write_text(unit)
        (source / "manifest.yaml").write_text(MANIFEST.replace("GREETING", greeting).replace("EXTRA", extra))
        publish_bundle(self.site, source, lambda key: b"", name="greeter", version=version)
        shutil.rmtree(self.disk / "srv/site", ignore_errors=True)
        shutil.copytree(self.site.public, self.disk / "srv/site")


def run(machine: Machine) -> Completed:
    return machine.run("puller", "run", timeout=120, check=False)


def enforced(machine: Machine) -> tuple[str, str]:
    """Return the enforced version and the state of its service."""
    status: dict[str, Any] = json.loads(machine.run("puller", "status", "--format", "json").stdout)
    up = machine.run("systemctl", "is-active", "greeter", check=False).stdout.strip()
    return status["bundles"][0]["enforced"], up


def cut_power_during_a_run(machine: Machine, waited: Path) -> None:
    waited.unlink(missing_ok=True)
    from tests.support.machines import wait_until

    inside = [
        "nsenter",
        "--target",
        str(machine.init),
        "--all",
        "--root",
        "--wd=/",
        "/usr/local/bin/puller",
        "run",
    ]
    with subprocess.Popen(inside, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        wait_until(waited.exists, "the run is in the middle of the new bundle", 60, machine.say)
        machine.cut_power()


def test_machine_rolls_back_after_failures_and_power_cuts(debian_disk: Path, tmp_path: Path) -> None:
    from tests.support.machines import powered_on

    stick = Stick(tmp_path, debian_disk)
    with powered_on(debian_disk) as machine:
        stick.publish("1.0.0", "infinity")
        assert run(machine).returncode == 0
        assert enforced(machine) == ("1.0.0", "active")

        stick.publish("1.1.0", "no-number")
        outcome = run(machine)
        assert outcome.returncode == 7, outcome.stdout + outcome.stderr
        # systemctl is no Nagios plugin: its exit status 3 means that the unit is not active.
        why = "1.1.0 is given up: service#greeter: health check up: exit status 3 (UNKNOWN): "
        assert why in outcome.stdout
        assert machine.run("puller", "status", "--check", check=False).returncode == 1
        assert enforced(machine) == ("1.0.0", "active")
        assert "greeter 1.1.0" in machine.run("puller", "quarantine", "list").stdout

        stick.publish("1.2.0", "infinity", WAIT)
        cut_power_during_a_run(machine, debian_disk / "root/waiting")
    with powered_on(debian_disk) as machine:
        cut_power_during_a_run(machine, debian_disk / "root/waiting")
    with powered_on(debian_disk) as machine:
        outcome = run(machine)
        assert outcome.returncode == 7, outcome.stdout + outcome.stderr
        assert "2 consecutive runs were interrupted" in outcome.stdout
        assert "the machine restarted" in outcome.stdout
        assert enforced(machine) == ("1.0.0", "active")
        assert run(machine).returncode == 20
        check = machine.run("puller", "status", "--check")
        assert check.stdout.startswith(
            "PULLER OK - the last run ended with exit status 20; greeter 1.0.0 is enforced; "
        )


def test_journal_warns_only_where_action_is_required(debian: Machine, tmp_path: Path) -> None:
    def journal(priority: str) -> str:
        debian.run("journalctl", "--sync")
        return debian.run("journalctl", "-u", "puller", "-p", priority, "-o", "cat", "--no-pager").stdout

    debian.run("puller", "install-units")
    debian.run("systemctl", "daemon-reload")
    stick = Stick(tmp_path, debian.root)
    skipped = '  - exec: [{"false": {control: {if: "false"}}}]\n'
    stick.publish("1.0.0", "infinity", skipped)
    debian.run("systemctl", "start", "puller.service")
    assert "file#/etc/greeter changed" in journal("notice")
    assert "greeter 1.0.0 is now enforced" in journal("notice")
    assert "Puller" not in journal("warning")
    assert "greeter" not in journal("warning")
    stick.publish("1.1.0", "no-number", skipped)
    failed = debian.run("systemctl", "start", "puller.service", check=False)
    assert failed.returncode != 0
    assert "1.1.0 is given up" in journal("err")
    assert "is now enforced" not in journal("warning")


ONE_RUN = "trial: {duration: 0s}\n"
"""The version passes in its first run."""


def test_service_that_ends_or_restarts_later_is_rolled_back(debian_disk: Path, tmp_path: Path) -> None:
    """The run that starts the service cannot know. The next run would start it again, and must not."""
    from tests.support.machines import powered_on, wait_until

    stick = Stick(tmp_path, debian_disk)
    restarting = UNIT + "Restart=always\n"
    with powered_on(debian_disk) as machine:

        def shows(field: str) -> str:
            return machine.run(
                "systemctl", "show", "--value", f"--property={field}", "greeter"
            ).stdout.strip()

        stick.publish("1.0.0", "infinity", ONE_RUN)
        assert run(machine).returncode == 0
        for version, unit, is_over, why in (
            (
                "1.1.0",
                UNIT,
                lambda: shows("ActiveState") == "inactive",
                "health check keeps running: CRITICAL",
            ),
            ("1.2.0", restarting, lambda: shows("NRestarts") == "1", "systemd has restarted it 1 time"),
        ):
            # Ten seconds are longer than Puller watches a new process.
            stick.publish(version, "10", unit=unit)
            outcome = run(machine)
            assert outcome.returncode == 0, outcome.stdout + outcome.stderr
            assert f"greeter {version} is on trial" in outcome.stdout
            assert enforced(machine) == (version, "active")
            wait_until(is_over, "the process of the service has ended", 60, machine.say)
            outcome = run(machine)
            assert outcome.returncode == 7, outcome.stdout + outcome.stderr
            assert f"{version} is given up: the trial has failed between two runs: " in outcome.stdout
            assert why in outcome.stdout
            assert enforced(machine) == ("1.0.0", "active")
