"""A role of many types on a booted Debian: released, changed, reverted, broken and rolled back, removed.

The types interact: an account owns files below a mount, a cron job and a command run as that account, a service runs
from a link that a release moves, and a purged directory contains files of resources of other types.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.lifecycle import make_site
from bundles.publisher.publication import publish_bundle

if TYPE_CHECKING:
    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

MANIFEST = """\
data: {user: deploy, uid: 3000, mount: /srv/data, release: "1", listen: 8001}
removed: absent
resources:
  - file:
      - /srv/home: {ensure: directory, owner: root, group: root, mode: "0755"}
  - group:
      - crew: {gid: 3100}
  - user:
      - "{{ data.user }}":
          uid: "{{ data.uid }}"
          groups: [crew]
          home: "/srv/home/{{ data.user }}"
          shell: /bin/sh
          authorized_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINENO5BBHYBbDqOgk1cPiqa+N259bg97G1XeVSYa0YiN ci]
  - mount:
      - "{{ data.mount }}": {device: tmpfs, type: tmpfs, options: [size=8m, mode=0755, nosuid]}
  - file:
      - defaults: {owner: root, group: root, mode: "0644"}
      - "{{ data.mount }}/app": {ensure: directory, owner: "{{ data.user }}", group: crew, mode: "0750"}
      - "{{ data.mount }}/app/settings": {content: "listen {{ data.listen }}\\n", owner: "{{ data.user }}", group: crew}
      - /srv/releases: {ensure: directory, mode: "0755"}
      - /srv/releases/1: {ensure: directory, mode: "0755"}
      - /srv/releases/1/serve: {content: "#!/bin/sh\\nexec sleep infinity\\n", mode: "0755"}
      - /srv/releases/2: {ensure: directory, mode: "0755"}
      - /srv/releases/2/serve: {content: "#!/bin/sh\\nexec sleep 1000000\\n", mode: "0755"}
      - /etc/cron.d: {ensure: directory, mode: "0755", purge: true}
      - /etc/systemd/system/app.service:
          content: |
            [Service]
            User={{ data.user }}
            ExecStart=/srv/current/serve
            ExecReload=/bin/sh -c 'echo reloaded >> /srv/reloads'
      - /srv/reloads: {ensure: exists, owner: "{{ data.user }}", mode: "0666"}
      - /etc/app.ini: {ensure: exists}
  - link:
      - /srv/current: {target: "releases/{{ data.release }}"}
  - setting:
      - defaults: {path: /etc/app.ini, format: ini, section: app, require: [file#/etc/app.ini]}
      - listen: {key: listen, value: "{{ data.listen }}"}
      - user: {key: user, value: "{{ data.user }}"}
  - line:
      - "deploy motd": {path: /etc/motd, line: "app {{ data.release }} of {{ data.user }}", match: "^app "}
  - cron:
      - app: {schedule: "@hourly", user: "{{ data.user }}", command: "touch {{ data.mount }}/app/seen"}
  - exec:
      - index:
          command: sh -c 'umask 027; id -un > {{ data.mount }}/app/made-by; id -Gn >> {{ data.mount }}/app/made-by'
          creates: "{{ data.mount }}/app/made-by"
          user: "{{ data.user }}"
          group: crew
          require: ["file#{{ data.mount }}/app", "user#{{ data.user }}"]
  - service:
      - app:
          ensure: running
          subscribe: [file#/etc/systemd/system/app.service, link#/srv/current]
          reload: ["file#{{ data.mount }}/app/settings"]
          require: ["user#{{ data.user }}", "link#/srv/current"]
          health_checks: [{name: up, command: "systemctl is-active app"}]
"""
SECOND = (
    MANIFEST.replace("user: deploy, uid: 3000", "user: runner, uid: 3001")
    .replace("mount: /srv/data", "mount: /srv/fast")
    .replace('release: "1"', 'release: "2"')
)
BROKEN = SECOND.replace("is-active app", "is-active nothing-of-this-name")
STOPPED = MANIFEST.replace("ensure: running", "ensure: stopped").replace("is-active app", "--version")
EMPTY = "removed: absent\nresources: []\n"
CONFIGURATION = "site: /srv/site\nbundles: [{name: app}]\ntrust_anchor: /srv/root.json\n"
LOOKS = (
    "getent passwd deploy runner; getent group crew deploy runner; getent shadow deploy runner | cut -d: -f1,2",
    "findmnt --noheadings --output TARGET,SOURCE,FSTYPE --list | grep /srv; cat /etc/fstab",
    "find /srv/data /srv/fast -mindepth 1 -printf '%p %y %u %g %m\\n' | sort",
    "find /srv/releases /srv/current /etc/cron.d /etc/app.ini /etc/motd -printf '%p %y %u %g %m %l\\n' | sort",
    "cat /etc/app.ini /etc/motd /etc/cron.d/*; cat /srv/*/app/settings /srv/*/app/made-by",
    "systemctl is-active app; systemctl cat app",
)


class Kept:
    """A machine whose site is a directory, and functions that read its state."""

    def __init__(self, machine: Machine, directory: Path) -> None:
        self.machine, self.directory = machine, directory
        self.site = make_site(directory / "site", None)
        (machine.root / "etc/puller").mkdir()
        (machine.root / "etc/puller/config.yaml").write_text(CONFIGURATION)
        shutil.copy(self.site.anchor, machine.root / "srv/root.json")

    def publish(self, version: str, manifest: str) -> None:
        source = self.directory / version
        source.mkdir()
        (source / "manifest.yaml").write_text(manifest)
        publish_bundle(self.site, source, lambda key: b"", name="app", version=version)
        shutil.rmtree(self.machine.root / "srv/site", ignore_errors=True)
        shutil.copytree(self.site.public, self.machine.root / "srv/site")

    def run(self) -> Completed:
        return self.machine.run("puller", "run", timeout=180, check=False)

    def settles(self, version: str, manifest: str) -> list[str]:
        """Publish a bundle, run twice, and return the machine's state. The second run must change nothing."""
        self.publish(version, manifest)
        first = self.run()
        assert first.returncode == 0, first.stdout + first.stderr
        self.changes_nothing()
        return self.look()

    def changes_nothing(self) -> None:
        second = self.run()
        report = json.loads((self.machine.root / "var/lib/puller/last-run.json").read_text())
        events = [event for bundle in report["bundles"] for event in bundle.get("events", [])]
        changed = [
            f"{event['type']}#{event['name']}"
            for event in events
            if event["state"] in ("changed", "refreshed")
        ]
        assert (second.returncode in (0, 20), changed) == (True, []), second.stdout + second.stderr

    def look(self) -> list[str]:
        output = (self.machine.run("sh", "-c", look, check=False).stdout for look in LOOKS)
        return [line for text in output for line in text.splitlines()]


def test_role_is_stable_over_release_rollback_and_return(debian: Machine, tmp_path: Path) -> None:
    retained = Kept(debian, tmp_path)
    debian.run("sh", "-c", "rm /etc/cron.d/*; echo welcome > /etc/motd")
    before = retained.look()
    first = retained.settles("1.0.0", MANIFEST)
    assert "deploy crew" in debian.run("cat", "/srv/data/app/made-by").stdout.replace("\n", " ")
    second = retained.settles("2.0.0", SECOND)
    assert "deploy" not in "\n".join(second)
    assert retained.settles("3.0.0", MANIFEST) == first
    retained.publish("4.0.0", BROKEN)
    given_up = retained.run()
    assert given_up.returncode == 7, given_up.stdout + given_up.stderr
    assert retained.look() == first, given_up.stdout
    retained.changes_nothing()
    retained.settles("5.0.0", STOPPED)
    assert retained.settles("6.0.0", EMPTY) == before
