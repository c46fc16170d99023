"""Five faults on a booted machine: one command, ``puller status``, states the cause of each."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.lifecycle import make_site
from bundles.publisher.publication import publish_bundle
from bundles.publisher.site import Site

if TYPE_CHECKING:
    from tests.support.machines import Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

CONFIGURATION = """\
site: /srv/site
bundles: [{name: app}]
trust_anchor: /srv/root.json
"""
UNIT = """\
[Service]
ExecStart=/usr/bin/sleep 20
"""
SOUND = """\
resources:
  - file:
      - /etc/app: {owner: root, group: root, mode: "0644", content: "VERSION"}
"""
SERVICE = """\
resources:
  - file:
      - /etc/systemd/system/app.service: {owner: root, group: root, mode: "0644", source: app.service}
  - service:
      - app: {ensure: running, subscribe: [file#/etc/systemd/system/app.service]}
"""
TEMPLATE = """\
resources:
  - file:
      - /etc/app: {owner: root, group: root, mode: "0644", template: app.j2}
"""
PACKAGE = "resources: [{package: [no-such-package]}]\n"
FILES = {"app.service": UNIT, "app.j2": "role: {{ facts.role }}\n"}


def publish(
    directory: Path, disk: Path, version: str, manifest: str, *, age: timedelta = timedelta()
) -> None:
    """Publish a version, as if it had been so long ago, and copy the site to the disk of the machine."""
    site = Site(directory / "site", lambda: datetime.now(UTC) - age)
    source = directory / version
    source.mkdir()
    for name, text in {"manifest.yaml": manifest.replace("VERSION", version), **FILES}.items():
        (source / name).write_text(text)
    publish_bundle(site, source, lambda key: b"", name="app", version=version)
    shutil.rmtree(disk / "srv/site", ignore_errors=True)
    shutil.copytree(site.public, disk / "srv/site")


def status(machine: Machine) -> str:
    """Return the status as a person reads it. Its first line says whether the host is in sync."""
    return machine.run("puller", "status", check=False).stdout


def test_status_states_the_cause_of_five_faults(debian_disk: Path, tmp_path: Path) -> None:
    from tests.support.machines import powered_on, wait_until

    site = make_site(tmp_path / "site", None)
    (debian_disk / "etc/puller").mkdir()
    (debian_disk / "etc/puller/config.yaml").write_text(CONFIGURATION)
    shutil.copy(site.anchor, debian_disk / "srv/root.json")
    with powered_on(debian_disk) as machine:

        def run() -> int:
            return machine.run("puller", "run", check=False).returncode

        publish(tmp_path, debian_disk, "1.0.0", SOUND)
        assert run() == 0
        assert status(machine).startswith("in sync")

        # The template needs a fact that this host lacks.
        publish(tmp_path, debian_disk, "1.1.0", TEMPLATE)
        assert run() in (4, 6)
        shown = status(machine)
        assert shown.startswith("out of sync: file#/etc/app failed"), shown
        assert "facts.role" in shown, shown

        publish(tmp_path, debian_disk, "1.2.0", PACKAGE)
        assert run() in (4, 6)
        shown = status(machine)
        assert shown.startswith("out of sync: package#no-such-package failed"), shown
        assert (
            "Unable to locate package" in shown or "has no candidate" in shown or "not available" in shown
        ), shown

        publish(tmp_path, debian_disk, "1.3.0", SERVICE)
        assert run() == 0
        is_over = lambda: "inactive" in machine.run("systemctl", "is-active", "app", check=False).stdout  # noqa: E731
        wait_until(is_over, "the process of the service has ended", 90, machine.say)
        assert "app" in status(machine), status(machine)
        assert "stopped" in status(machine), status(machine)

        machine.run("cp", "-a", "/var/lib/puller", "/root/state")
        machine.run("mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", "/var/lib/puller")
        machine.run("cp", "-a", "/root/state/.", "/var/lib/puller/")
        machine.run("sh", "-c", "head -c 8m /dev/zero > /var/lib/puller/filler", check=False)
        assert run() != 0
        assert "full" in status(machine) or "space" in status(machine), status(machine)
        machine.run("umount", "/var/lib/puller")

        publish(tmp_path, debian_disk, "1.4.0", SOUND, age=timedelta(days=40))
        assert run() == 11
        assert "expired" in status(machine), status(machine)
