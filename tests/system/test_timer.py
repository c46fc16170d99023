"""A booted Debian with its own Python, in which systemd's timer starts the runs.

The site is behind nginx, and the bundle manages files of the machine. The state in systemd, the journal, the report and
``puller status`` must agree.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.machines import Machine
    from tests.support.nginx import Nginx
    from tests.support.stories import Publisher

pytestmark = [pytest.mark.booted, pytest.mark.root, pytest.mark.nginx]

MANIFEST = """\
resources:
  - file:
      - defaults: {owner: root, group: root, mode: "0644"}
      - /etc/app: {ensure: directory, mode: "0755"}
      - /etc/app/app.conf:
          content: |
            version = VERSION
            host = {{ facts.networking.fqdn }}
            system = {{ facts.os.name }} {{ facts.os.release.major }}
  - exec:
      - reload:
          command: sh -c 'echo VERSION >> /etc/app/reloads'
          refreshonly: true
          subscribe: [file#/etc/app/app.conf]
"""

# Between the file and its subscriber: a command that runs until a signal ends it.
SLOW_MANIFEST = MANIFEST.replace(
    "  - exec:\n",
    """\
  - exec:
      - wait:
          command: sh -c 'touch /srv/begun; while [ ! -e /srv/go ]; do sleep 0.05; done; touch /srv/ended'
          creates: /srv/ended
          require: [file#/etc/app/app.conf]
""",
)

CONFIGURATION = """\
site: {url}
bundles:
  - name: web
http: {{retries: 0}}
"""

# The first run starts immediately, each later one soon after the previous run.
OFTEN = """\
[Timer]
OnCalendar=
OnActiveSec=0
OnUnitInactiveSec={interval}
RandomizedDelaySec=0
AccuracySec=100ms
"""


class Provisioned:
    """A machine with a configuration, a trust anchor and the units. Its timer is stopped."""

    def __init__(
        self, machine: Machine, nginx: Nginx, publisher: Publisher, wait: Callable[..., None]
    ) -> None:
        self.machine = machine
        self._wait = wait
        etc = machine.root / "etc/puller"
        etc.mkdir()
        (etc / "config.yaml").write_text(CONFIGURATION.format(url=nginx.url))
        shutil.copyfile(publisher.site.anchor, etc / "root.json")
        machine.run("puller", "install-units")
        machine.run("systemctl", "daemon-reload")

    def start_timer(self, interval: str = "3s") -> None:
        drop_in = self.machine.root / "etc/systemd/system/puller.timer.d/often.conf"
        drop_in.parent.mkdir(exist_ok=True)
        drop_in.write_text(OFTEN.format(interval=interval))
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "enable", "--now", "puller.timer")

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        self._wait(condition, what, 60, self.machine.say)

    def unit(self) -> dict[str, str]:
        return self.machine.show("puller.service", "ActiveState", "Result", "ExecMainStatus", "ExecMainCode")

    def reports(self) -> list[dict[str, Any]]:
        """Return the reports of all completed runs, oldest first."""
        runs = self.machine.root / "var/lib/puller/runs"
        return [json.loads(path.read_bytes()) for path in sorted(runs.glob("*.json"))]

    def status(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.machine.run("puller", "status", "--format", "json").stdout)
        return result

    def messages(self, least_urgent: int = 7) -> list[str]:
        """Return the journal messages of the runs, of this priority or a more urgent one."""
        entries = self.machine.journal("puller.service")
        own = [entry for entry in entries if entry["SYSLOG_IDENTIFIER"] == "puller"]
        messages = [entry["MESSAGE"] for entry in own if int(entry["PRIORITY"]) <= least_urgent]
        # The kernel of the host may lack Landlock, which each run reports.
        return [message for message in messages if "has no Landlock" not in message]

    def file(self, name: str) -> str:
        return (self.machine.root / name.lstrip("/")).read_text()


@pytest.fixture
def host(debian: Machine, nginx: Nginx, publisher: Publisher, wait_until: Callable[..., None]) -> Provisioned:
    return Provisioned(debian, nginx, publisher, wait_until)


def states(report: dict[str, Any]) -> list[str]:
    """Return the states of the listed resources, then a state for each resource in sync."""
    bundles = report["bundles"]
    listed = [event["state"] for bundle in bundles for event in bundle.get("events", [])]
    return listed + ["stable"] * sum(bundle.get("in_order", {}).get("resources", 0) for bundle in bundles)


def test_timer_enforces_the_state_and_notices_an_attack(host: Provisioned, publisher: Publisher) -> None:
    publisher.publish("1.0.0", MANIFEST)
    host.start_timer()
    host.wait_for(lambda: len(host.reports()) >= 2, "two runs")

    first, second = host.reports()[:2]
    assert states(first) == ["changed", "changed", "refreshed"]
    assert states(second) == ["stable", "stable", "stable"]
    assert (first["exit_status"], second["exit_status"]) == (0, 0)
    assert host.file("/etc/app/app.conf") == "version = 1.0.0\nhost = web01.example.com\nsystem = Debian 12\n"
    assert host.file("/etc/app/reloads") == "1.0.0\n"

    assert host.messages(least_urgent=4) == []
    reported = [message.split(" ensure=")[0] for message in host.messages(least_urgent=5)]
    assert [
        re.sub(r"fetched .*", "fetched", message)
        for message in reported
        if not re.search(" resources, |the run ended", message)
    ] == [
        "web 1.0.0: fetching from the site",
        "web 1.0.0: fetched",
        "web 1.0.0 is now enforced",
        "file#/etc/app changed",
        "file#/etc/app/app.conf changed",
        "exec#reload refreshed",
    ]
    summaries = [message for message in host.messages() if " resources, " in message]
    assert [summary.rpartition(" in ")[0] for summary in summaries[:2]] == [
        "web 1.0.0: 3 resources, 0 stable, 2 changed, 1 refreshed",
        "web 1.0.0: 3 resources, 3 stable, 0 changed",
    ]
    status = host.status()
    assert [status["bundles"][0][key] for key in ("enforced", "good", "held")] == ["1.0.0", "1.0.0", None]
    assert status["last_run"]["exit_status"] == 0
    assert host.machine.show("puller.service", "Result")["Result"] == "success"
    timer = host.machine.show("puller.timer", "ActiveState", "UnitFileState")
    assert timer == {"ActiveState": "active", "UnitFileState": "enabled"}

    publisher.publish("1.1.0", MANIFEST)
    bundle = publisher.newest("targets/web/*.tar.gz")
    bundle.write_bytes(bundle.read_bytes()[:-1] + b"!")
    (host.machine.root / "etc/app/app.conf").unlink()
    host.wait_for(lambda: host.reports()[-1]["exit_status"] == 10, "a run that refuses the bundle")
    host.wait_for(lambda: host.unit()["ActiveState"] == "failed", "a failed unit")
    assert host.unit() | {"ActiveState": ""} == {
        "ActiveState": "",
        "Result": "exit-code",
        "ExecMainStatus": "10",
        "ExecMainCode": "1",
    }
    assert "sha256 is" in host.messages(least_urgent=3)[-1]
    assert host.file("/etc/app/app.conf").startswith("version = 1.0.0\n")
    assert host.status()["bundles"][0]["enforced"] == "1.0.0"
    assert "sha256 is" in host.status()["bundles"][0]["held"]

    publisher.deploy()
    host.wait_for(lambda: host.reports()[-1]["exit_status"] == 0, "a run after the attack")
    assert host.file("/etc/app/app.conf").startswith("version = 1.1.0\n")
    assert host.file("/etc/app/reloads") == "1.0.0\n1.0.0\n1.1.0\n"


def test_first_run_after_boot_waits_for_no_long_delay(host: Provisioned, publisher: Publisher) -> None:
    """The next tick of the regular timer may be an hour away. Stopping the regular timer stops both."""
    publisher.publish("1.0.0", MANIFEST)
    drop_in = host.machine.root / "etc/systemd/system/puller-boot.timer.d/soon.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Timer]\nOnActiveSec=\nOnActiveSec=1s\nRandomizedDelaySec=0\nAccuracySec=100ms\n")
    host.machine.run("systemctl", "daemon-reload")
    host.machine.run("systemctl", "enable", "--now", "puller.timer")
    host.wait_for(lambda: len(host.reports()) == 1, "the first run")
    host.machine.run("systemctl", "stop", "puller.timer")
    assert host.machine.show("puller-boot.timer", "ActiveState") == {"ActiveState": "inactive"}


@pytest.fixture
def in_the_middle(host: Provisioned, publisher: Publisher) -> Provisioned:
    """A host whose first run has changed a file and waits for a command that does not end, before a refresh."""
    publisher.publish("1.0.0", SLOW_MANIFEST)
    host.machine.run("systemctl", "start", "--no-block", "puller.service")
    host.wait_for((host.machine.root / "srv/begun").exists, "the slow command")
    assert host.file("/etc/app/app.conf").startswith("version = 1.0.0\n")
    return host


def assert_the_next_run_makes_it_good(host: Provisioned) -> None:
    host.machine.run("systemctl", "start", "puller.service")
    assert "refreshed" in states(host.reports()[-1])
    assert host.file("/etc/app/reloads") == "1.0.0\n"
    host.machine.run("systemctl", "start", "puller.service")
    assert states(host.reports()[-1]) == ["stable"] * 4


def test_stop_finishes_the_current_resource_only(in_the_middle: Provisioned) -> None:
    host = in_the_middle
    host.machine.run("systemctl", "stop", "--no-block", "puller.service")
    host.wait_for(lambda: host.unit()["ActiveState"] == "deactivating", "the unit is being stopped")
    (host.machine.root / "srv/go").touch()
    # Not "failed": stopping a run is no error. The report has its exit status; systemd forgets a unit that ended well.
    host.wait_for(lambda: host.unit()["ActiveState"] == "inactive", "the unit has stopped")
    assert (host.machine.root / "srv/ended").exists()
    (report,) = host.reports()
    assert report["exit_status"] == 143
    assert states(report) == ["changed", "changed", "changed", "skipped"]
    assert report["bundles"][0]["events"][-1]["skip_reason"] == "stopped by SIGTERM"
    assert not (host.machine.root / "etc/app/reloads").exists()
    assert_the_next_run_makes_it_good(host)


def test_kill_before_a_refresh_only_delays_it(in_the_middle: Provisioned) -> None:
    host = in_the_middle
    # systemctl fails if the first signal ends the unit before the others are sent. The assertions are below.
    host.machine.run("systemctl", "kill", "--signal=KILL", "puller.service", check=False)
    host.wait_for(lambda: host.unit()["ActiveState"] == "failed", "the unit is dead")
    assert host.unit()["Result"] == "signal"
    assert host.reports() == []
    assert host.status()["running_since"] is None
    (host.machine.root / "srv/go").touch()
    assert_the_next_run_makes_it_good(host)
