"""Five releases of a service on a booted Debian. Three of them fail during their trial, each at another time.

The host, its report, the fleet and the watcher of rollouts agree at each step. A service ends when the test writes a
file, so that no step depends on the speed of the machine.
"""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.machines import HOSTNAME, powered_on, wait_until
from tests.support.stories import execute_here

if TYPE_CHECKING:
    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

CONFIGURATION = """\
site: /srv/site
bundles: [{name: greeter}]
trust_anchor: /srv/root.json
reports: {to: [{directory: /srv/reports}]}
"""
MANIFEST = """\
trial: {duration: 1s, runs: 3}
resources:
  - file:
      - defaults: {owner: root, group: root, mode: "0644"}
      - /etc/greeter: {content: "VERSION\\n"}
      - /etc/systemd/system/greeter.service: {source: greeter.service}
  - service:
      - greeter:
          ensure: running
          subscribe: [file#/etc/greeter, file#/etc/systemd/system/greeter.service]
          health_checks:
            - {name: answers, command: "sh -c 'test ! -e /run/unhealthy || { echo no answer; exit 2; }'"}
"""
UNIT = """\
[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c 'until test -e /run/end-VERSION; do sleep 0.1; done'
EXTRA
"""
CRASH_LOOP = "Restart=always\nRestartSec=100ms"
NOWHERE = {"in order": 0, "on trial": 0, "failed": 0, "gave it up": 0, "not heard of since": 0}


class Story:
    """A publisher, one host, and the fleet that its reports show."""

    def __init__(self, directory: Path, disk: Path) -> None:
        self.directory, self.disk = directory, disk
        self.site, self.store, self.pages = (directory / name for name in ("site", "fleet.db", "pages"))
        self.puller("site", "init", str(self.site), "--no-passphrase")
        (disk / "etc/puller").mkdir()
        (disk / "etc/puller/config.yaml").write_text(CONFIGURATION)
        (disk / "srv/reports").mkdir()
        shutil.copy(self.site / "root.json", disk / "srv/root.json")

    def puller(self, *words: str) -> str:
        """Run a command of the publisher."""
        status, output = execute_here(*words)
        assert status == 0, output
        return output

    def publish(self, version: str, extra: str = "") -> None:
        """Publish a version for all hosts, as a rollout that ends at once. The watcher judges only rollouts."""
        source = self.directory / version / "greeter"
        source.mkdir(parents=True)
        (source / "manifest.yaml").write_text(MANIFEST.replace("VERSION", version))
        (source / "greeter.service").write_text(UNIT.replace("VERSION", version).replace("EXTRA", extra))
        growth = ("--over", "1s", "--start", f"{datetime.now(UTC) - timedelta(minutes=2):%Y-%m-%dT%H:%MZ}")
        self.puller("site", "publish", str(self.site), str(source), "--version", version, *growth)
        shutil.copytree(self.site / "public", self.disk / "srv/site", dirs_exist_ok=True)

    def watched(self) -> dict[str, Any]:
        """Return the judgement of the watcher about the current release."""
        words = ("--store", str(self.store), "--noop", "--format", "json")
        (result,) = json.loads(self.puller("site", "watch", str(self.site), *words))
        assert isinstance(result, dict)
        return result

    def look(self) -> dict[str, Any]:
        """Import the reports, write the pages, and return the state of the fleet."""
        store = ("--store", str(self.store))
        self.puller("fleet", "import", str(self.disk / "srv/reports"), *store)
        self.puller("fleet", "page", *store, "--to", str(self.pages))
        result: dict[str, Any] = json.loads(self.puller("fleet", "status", *store, "--format", "json"))
        return result


def run(machine: Machine, status: int = 0) -> Completed:
    done = machine.run("puller", "run", check=False)
    assert done.returncode == status, f"{done.stdout}{done.stderr}{machine.say()}"
    return done


def agree(story: Story, machine: Machine, *, enforced: str, good: str, published: str) -> None:
    """Compare the host, its last report, the fleet, its pages and the watcher."""
    is_on_trial, is_rolled_back = enforced != good, enforced != published
    # The host.
    status = json.loads(machine.run("puller", "status", "--format", "json", check=False).stdout)
    (bundle,) = status["bundles"]
    assert (bundle["enforced"], bundle["good"], "trial" in bundle) == (enforced, good, is_on_trial)
    assert machine.run("cat", "/etc/greeter").stdout == f"{enforced}\n"
    assert machine.run("systemctl", "is-active", "greeter").stdout == "active\n"
    quarantine = machine.run("puller", "quarantine", "list").stdout
    assert (f"greeter {published}" in quarantine) is is_rolled_back
    # The report.
    report = json.loads((story.disk / "var/lib/puller/last-run.json").read_text())
    (reported,) = report["bundles"]
    assert (reported["version"], "trial" in reported) == (enforced, is_on_trial)
    # The fleet and its pages.
    fleet = story.look()
    rows = {row["version"]: row for row in fleet["bundles"]["greeter"]}
    assert (rows[enforced]["hosts"], rows[enforced]["on_trial"]) == (1, int(is_on_trial))
    states = {state: count for state, count in fleet["states"].items() if count}
    assert states == {"gave-up" if is_rolled_back else "in-order": 1}
    page = (story.pages / f"hosts/{HOSTNAME}.html").read_text()
    assert ("(on trial)" in page) is is_on_trial
    if is_rolled_back:
        assert rows[published]["gave_up"] == 1
        assert re.search(rf"<td>{re.escape(good)}</td>.*{re.escape(published)} is quarantined", page)
    # The watcher.
    result = "gave it up" if is_rolled_back else "on trial" if is_on_trial else "in order"
    assert story.watched()["hosts"] == {**NOWHERE, result: 1}


def pass_trial(story: Story, machine: Machine, version: str) -> None:
    """Run until the trial of a good version is over."""

    def is_good() -> bool:
        run(machine)
        status = json.loads(machine.run("puller", "status", "--format", "json").stdout)
        return bool(status["bundles"][0]["good"] == version)

    wait_until(is_good, f"the trial of {version} has ended", 60, machine.say)
    agree(story, machine, enforced=version, good=version, published=version)


@pytest.mark.parametrize("codename", ["bookworm", "trixie"], ids=["Debian 12", "Debian 13"])
@pytest.mark.sample(1)
def test_each_failed_trial_is_rolled_back(debian_with: Any, tmp_path: Path, codename: str) -> None:
    with debian_with(codename=codename) as disk:
        story = Story(tmp_path, disk)
        with powered_on(disk) as machine:

            def shows(name: str) -> str:
                return machine.show("greeter", name)[name]

            story.publish("1.0.0")
            pass_trial(story, machine, "1.0.0")

            # The process ends after the first run. Nothing restarts it.
            story.publish("2.0.0")
            run(machine)
            agree(story, machine, enforced="2.0.0", good="1.0.0", published="2.0.0")
            machine.run("touch", "/run/end-2.0.0")
            wait_until(lambda: shows("ActiveState") == "inactive", "the service has ended", 60, machine.say)
            assert "given up: the trial has failed between two runs: " in run(machine, 7).stdout
            agree(story, machine, enforced="1.0.0", good="1.0.0", published="2.0.0")

            # The process begins to crash after the second run, and systemd restarts it again and again.
            story.publish("3.0.0", CRASH_LOOP)
            run(machine)
            run(machine)
            agree(story, machine, enforced="3.0.0", good="1.0.0", published="3.0.0")
            machine.run("touch", "/run/end-3.0.0")
            wait_until(lambda: int(shows("NRestarts")) > 1, "a crash loop", 60, machine.say)
            assert "systemd has restarted it" in run(machine, 7).stdout
            agree(story, machine, enforced="1.0.0", good="1.0.0", published="3.0.0")

            # Only `puller check` notices the failure, which is over before the next run.
            story.publish("4.0.0")
            run(machine)
            machine.run("touch", "/run/unhealthy")
            checked = machine.run("puller", "check", check=False)
            assert (checked.returncode, "no answer" in checked.stdout) == (2, True), checked.stdout
            machine.run("rm", "/run/unhealthy")
            assert machine.run("puller", "check").returncode == 0
            agree(story, machine, enforced="4.0.0", good="1.0.0", published="4.0.0")
            assert "puller check: service#greeter: health check answers" in run(machine, 7).stdout
            agree(story, machine, enforced="1.0.0", good="1.0.0", published="4.0.0")

            story.publish("5.0.0")
            run(machine)
            agree(story, machine, enforced="5.0.0", good="1.0.0", published="5.0.0")

        # The service does not start at boot, which says nothing about the version.
        with powered_on(disk) as machine:
            assert machine.run("systemctl", "is-active", "greeter", check=False).stdout == "inactive\n"
            pass_trial(story, machine, "5.0.0")
