"""Three hosts, a publisher and a fleet view: a release breaks a host of its wave, is halted, and repaired.

Freshly booted Debians pull from nginx and send their reports to it (WebDAV). With ``PULLER_PICTURES=DIRECTORY`` and
Chromium, screenshots of the pages are kept there for review.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bundles.format.release import place

if TYPE_CHECKING:
    from tests.support.machines import Completed, Machine
    from tests.support.nginx import Nginx

pytestmark = [pytest.mark.booted, pytest.mark.root]

HOSTS = [f"web{number}.example.com" for number in (1, 2, 3)]
MANIFEST = """\
resources:
  - file:
      - /etc/web.conf:
          content: "VERSION\\n"
          owner: root
          group: root
          mode: "0644"
          health_checks:
            - {name: web, command: "sh -c 'grep -q BREAKS /etc/web.conf && test -e /etc/fragile && exit 2 || exit 0'"}
"""
Execute = Callable[..., tuple[int, str]]
Copied = Callable[[Path], contextlib.AbstractContextManager[Path]]


class Publisher:
    """The publisher's machine: a site, the reports that have arrived, a store, and pages."""

    def __init__(self, directory: Path, nginx: Nginx, execute: Execute) -> None:
        self.site, self.store = directory / "site", directory / "fleet.db"
        self.arrived, self.pages = directory / "arrived", directory / "pages"
        self._nginx, self._execute, self._bundle = nginx, execute, directory / "web"
        self._bundle.mkdir()
        self.puller("site", "init", str(self.site), "--no-passphrase")
        self._take_reports()

    def _take_reports(self) -> None:
        """Let nginx accept reports that hosts PUT."""
        self.arrived.mkdir()
        shutil.chown(self.arrived, "root")
        configuration = self._nginx.work / "nginx.conf"
        location = (
            f"location /reports/ {{ alias {self.arrived}/; dav_methods PUT; create_full_put_path on;"
            " client_max_body_size 256k; dav_access user:rw group:r all:r; }"
        )
        text = configuration.read_text()
        begin = text.index("server {") + len("server {")
        configuration.write_text(f"{text[:begin]}\n{location}\n{text[begin:]}")
        self._nginx.stop()
        self._nginx.start()

    def puller(self, *words: str, ok: tuple[int, ...] = (0,)) -> str:
        status, output = self._execute(*words)
        assert status in ok, output
        return output

    def publish(self, version: str, content: str, *options: str) -> None:
        (self._bundle / "manifest.yaml").write_text(MANIFEST.replace("VERSION", content))
        self.puller("site", "publish", str(self.site), str(self._bundle), "--version", version, *options)
        self.deploy()

    def deploy(self) -> None:
        self.puller("site", "push", str(self.site), str(self._nginx.root))

    def look(self) -> dict[str, Any]:
        """Import all arrived reports, write the pages, and return the fleet."""
        self.puller("fleet", "import", str(self.arrived), "--store", str(self.store))
        self.puller("fleet", "page", "--store", str(self.store), "--to", str(self.pages))
        output = self.puller("fleet", "status", "--store", str(self.store), "--format", "json")
        result: dict[str, Any] = json.loads(output)
        return result

    def picture(self, name: str, page: str = "index.html") -> None:
        """Save a screenshot of a page for review."""
        program, retained = shutil.which("chromium"), os.environ.get("PULLER_PICTURES")
        if program is None or retained is None:
            return
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1200,1500",
        ]
        options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        options += [f"--user-data-dir={self.site.parent}/chromium", f"--screenshot={retained}/{name}.png"]
        subprocess.run(
            [program, *options, f"file://{self.pages}/{page}"], check=True, capture_output=True, timeout=120
        )


class Host:
    """A machine that follows the site."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name, self.machine = name, machine

    def run(self, status: int = 0) -> Completed:
        done = self.machine.run("puller", "run", check=False, timeout=300)
        assert done.returncode == status, f"{self.name}: {done.stdout}{done.stderr}"
        return done


@pytest.fixture
def publisher(tmp_path: Path, nginx: Nginx, execute: Execute) -> Publisher:
    os.chmod(tmp_path, 0o755)
    made = Publisher(tmp_path, nginx, execute)
    made.publish("1.0.0", "first")
    return made


@pytest.fixture
def hosts(debian_tree: Path, copied: Copied, publisher: Publisher, nginx: Nginx) -> Iterator[dict[str, Host]]:
    from tests.support.machines import powered_on

    with contextlib.ExitStack() as stack:
        hosts: dict[str, Host] = {}
        for name in HOSTS:
            disk = stack.enter_context(copied(debian_tree))
            configuration = {
                "site": f"{nginx.url}/",
                "bundles": [{"name": "web"}],
                "reports": {"to": [f"{nginx.url}/reports/"]},
            }
            files = {
                "etc/hostname": f"{name}\n",
                "etc/hosts": f"127.0.0.1 localhost {name}\n",
                "etc/puller/config.yaml": yaml.safe_dump(configuration),
            }
            for path, text in files.items():
                (disk / path).parent.mkdir(parents=True, exist_ok=True)
                (disk / path).write_text(text)
            shutil.copy(publisher.site / "root.json", disk / "etc/puller/root.json")
            hosts[name] = Host(name, stack.enter_context(powered_on(disk)))
        yield hosts


def test_broken_release_of_a_wave_is_halted_and_fixed(publisher: Publisher, hosts: dict[str, Host]) -> None:
    for host in hosts.values():
        host.run()
    seen = publisher.look()
    assert (seen["hosts"], seen["states"]) == (3, {"in-order": 3})
    assert [row["version"] for row in seen["bundles"]["web"]] == ["1.0.0"]
    publisher.picture("1-before")

    # A wave that reaches two of the three hosts. One of these two differs from the publisher's test machines.
    broken, fine, later = sorted(HOSTS, key=lambda name: place(name, "web", "1.1.0"))
    (hosts[broken].machine.root / "etc/fragile").touch()
    with (publisher.site / "site.yaml").open("a") as settings:
        settings.write("watch: {at_least: 1}\n")
    percent = f"{place(fine, 'web', '1.1.0') + 0.01:.2f}"
    publisher.publish("1.1.0", "BREAKS", "--percent", percent)
    assert "1.1.0" in hosts[broken].run(status=7).stdout
    hosts[fine].run()
    hosts[later].run(status=20)
    seen = publisher.look()
    assert seen["states"] == {"gave-up": 1, "waiting": 1, "in-order": 1}
    rows = {row["version"]: row for row in seen["bundles"]["web"]}
    assert (rows["1.1.0"]["hosts"], rows["1.1.0"]["gave_up"], rows["1.1.0"]["waiting"]) == (1, 1, 1)
    assert {host for failure in seen["failures"] for host in failure["hosts"]} == {broken}
    overview = (publisher.pages / "index.html").read_text()
    assert "rolled back" in overview
    assert "waiting for the rollout" in overview
    publisher.picture("2-broken")

    # The rollout stops, and the broken host reports the reason.
    output = publisher.puller("site", "watch", str(publisher.site), "--store", str(publisher.store), ok=(4,))
    assert f"1 of 2 hosts failed or rolled back (limit 2%): {broken}" in output
    publisher.deploy()
    hosts[later].run(status=20)
    assert "health check web" in (publisher.pages / f"hosts/{broken}.html").read_text()
    publisher.picture("2-broken-host", f"hosts/{broken}.html")

    publisher.publish("1.1.1", "mended")
    for host in hosts.values():
        host.run()
    seen = publisher.look()
    assert seen["states"] == {"in-order": 3}
    assert seen["failures"] == []
    assert {row["version"]: row["hosts"] for row in seen["bundles"]["web"] if row["hosts"]} == {"1.1.1": 3}
    publisher.picture("3-mended")
    assert publisher.puller("site", "watch", str(publisher.site), "--store", str(publisher.store))
