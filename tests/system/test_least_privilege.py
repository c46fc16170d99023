"""Agents with fewer rights on a booted Debian: the profiles of the unit, and an ordinary user's agent."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.lifecycle import make_site
from bundles.publisher.publication import publish_bundle

if TYPE_CHECKING:
    from pathlib import Path

    from bundles.publisher.site import Site
    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

UNIT = """\
[Service]
ExecStart=/usr/bin/sleep infinity
Environment=GREETING={greeting}
[Install]
WantedBy={target}
"""
OF_THE_MACHINE = """\
resources:
  - file:
      - /etc/systemd/system/greeter.service: {source: greeter.service, owner: root, group: root, mode: "0644"}
      - /srv/virtual: {content: "{{ facts.virtual }}", owner: nobody, group: nogroup, mode: "0640"}
      - /tmp/seen-by-all: {content: "x", owner: root, group: root, mode: "0644"}
  - exec:
      - id -un > /var/lib/as-nobody: {provider: shell, creates: /var/lib/as-nobody, user: root}
  - service:
      - greeter:
          ensure: running
          enable: true
          subscribe: [file#/etc/systemd/system/greeter.service]
          health_checks: [{name: up, service: {unit: greeter}, tries: 3}]
"""
WITH_PACKAGE = """\
  - package: [greeting: {}]
"""
OF_A_USER = """\
as_user: true
resources:
  - file:
      - /home/alice/.config/systemd/user: {ensure: directory, mode: "0755"}
      - /home/alice/.config/systemd/user/greeter.service:
          source: greeter.service
          mode: "0644"
          require: [file#/home/alice/.config/systemd/user]
      - /home/alice/greeting: {content: "{{ data.greeting }}", mode: "0600"}
  - service:
      - greeter:
          ensure: running
          enable: true
          subscribe: [file#/home/alice/.config/systemd/user/greeter.service]
          health_checks: [{name: up, service: {unit: greeter, scope: user}, tries: 3}]
"""
CONTROL = """\
Package: greeting
Version: 1.0
Architecture: all
Maintainer: Nobody <nobody@example.com>
Description: Says hello
"""
OFTEN = """\
[Timer]
OnCalendar=
OnActiveSec=1s
OnUnitInactiveSec=1s
RandomizedDelaySec=0
AccuracySec=100ms
"""


class Publisher:
    """A site on the disk of the machine, which reads it as a directory."""

    def __init__(self, directory: Path, disk: Path) -> None:
        self.site: Site = make_site(directory / "site", None)
        self.source, self.disk = directory / "source", disk
        self.source.mkdir()
        (disk / "srv").mkdir(exist_ok=True)

    def publish(self, version: str, manifest: str, *, greeting: str, target: str) -> None:
        (self.source / "manifest.yaml").write_text(f"data: {{greeting: {greeting}}}\n{manifest}")
        (self.source / "greeter.service").write_text(UNIT.format(greeting=greeting, target=target))
        publish_bundle(self.site, self.source, lambda key: b"", name="greeter", version=version)
        shutil.copytree(self.site.public, self.disk / "srv/site", dirs_exist_ok=True)

    def configure(self, directory: Path) -> None:
        """Write a host's configuration for this site into a directory."""
        directory.mkdir(parents=True)
        shutil.copy(self.site.anchor, directory / "root.json")
        (directory / "config.yaml").write_text("site: /srv/site\nbundles: [{name: greeter}]\n")


def make_repository(machine: Machine) -> None:
    """Create the machine's only repository, with one package."""
    directory = machine.root / "srv/repository"
    for path in ("tree/DEBIAN", "tree/usr/share/greeting"):
        (directory / path).mkdir(parents=True)
    (directory / "tree/DEBIAN/control").write_text(CONTROL)
    (directory / "tree/usr/share/greeting/hello").write_text("hello\n")
    machine.run(
        "dpkg-deb", "--build", "--root-owner-group", "/srv/repository/tree", "/srv/repository/one.deb"
    )
    built = (directory / "one.deb").read_bytes()
    entry = f"Filename: ./one.deb\nSize: {len(built)}\nSHA256: {hashlib.sha256(built).hexdigest()}\n"
    (directory / "Packages").write_text(CONTROL + entry)
    for source in (machine.root / "etc/apt/sources.list.d").glob("*"):
        source.unlink()
    (machine.root / "etc/apt/sources.list").write_text("deb [trusted=yes] file:/srv/repository ./\n")
    machine.run("apt-get", "update")


def start(machine: Machine, unit: str) -> tuple[str, str]:
    """Start a service, wait for its end, and return its exit status and its messages."""
    before = len(machine.journal(unit))
    machine.run("systemctl", "start", unit, check=False)
    output = "\n".join(str(entry.get("MESSAGE")) for entry in machine.journal(unit)[before:])
    return machine.show(unit, "ExecMainStatus")["ExecMainStatus"], output


def test_tight_profile_runs_files_and_services(debian: Machine, tmp_path: Path) -> None:
    make_repository(debian)
    publisher = Publisher(tmp_path, debian.root)
    publisher.configure(debian.root / "etc/puller")
    target = "multi-user.target"
    publisher.publish("1.0.0", OF_THE_MACHINE, greeting="hello", target=target)
    (debian.root / "etc/puller/config.yaml").write_text(
        "site: /srv/site\ntrust_anchor: /etc/puller/root.json\nbundles: [{name: greeter}]\n"
    )
    debian.run("puller", "install-units")
    debian.run("puller", "install-units", "--tight")
    debian.run("systemctl", "daemon-reload")

    # All resources are applied, and the run sees the real state.
    status, output = start(debian, "puller.service")
    assert status == "0", output
    assert debian.run("systemctl", "is-active", "greeter").stdout == "active\n"
    assert (debian.root / "srv/virtual").read_text() == debian.run(
        "puller", "facts", "virtual"
    ).stdout.strip()
    assert debian.run("cat", "/tmp/seen-by-all").stdout == "x"
    status, output = start(debian, "puller.service")
    assert (status, "0 changed" in output or "changed" not in output) == ("0", True), output

    # The checks between runs repair under the profile, too.
    debian.run("systemctl", "stop", "greeter")
    status, output = start(debian, "puller-check.service")
    assert status == "0", output
    assert debian.run("systemctl", "is-active", "greeter").stdout == "active\n"

    # A package fails before it is unpacked, and the error gives the reason.
    publisher.publish("2.0.0", OF_THE_MACHINE + WITH_PACKAGE, greeting="bonjour", target=target)
    status, output = start(debian, "puller.service")
    assert status in ("4", "6"), output
    assert "the tight profile of the unit may have forbidden the failed operation" in output
    assert "docs/units.md" in output
    assert not (debian.root / "usr/share/greeting").exists()
    assert debian.run("dpkg", "--audit").stdout == ""
    assert debian.run("dpkg-query", "--show", "greeting", check=False).returncode == 1

    # Without the profile the package is installed.
    for unit in ("puller", "puller-check"):
        (debian.root / f"etc/systemd/system/{unit}.service.d/50-tight.conf").unlink()
    debian.run("systemctl", "daemon-reload")
    status, output = start(debian, "puller.service")
    assert status == "0", output
    assert (debian.root / "usr/share/greeting/hello").read_text() == "hello\n"


def as_alice(machine: Machine, *command: str, check: bool = True) -> Completed:
    """Run a command as in a login session of alice."""
    uid = machine.run("id", "-u", "alice").stdout.strip()
    login = ("runuser", "-u", "alice", "--", "env", "HOME=/home/alice", f"XDG_RUNTIME_DIR=/run/user/{uid}")
    return machine.run(*login, *command, check=check)


def test_user_agent_pulls_under_its_timer_forth_and_back(debian: Machine, tmp_path: Path) -> None:
    from tests.support.machines import wait_until

    publisher = Publisher(tmp_path, debian.root)
    target = "default.target"
    publisher.publish("1.0.0", OF_A_USER, greeting="hello", target=target)
    debian.run("apt-get", "update", "-q")
    debian.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "libpam-systemd")
    debian.run("useradd", "--create-home", "--shell", "/bin/bash", "alice")
    debian.run("loginctl", "enable-linger", "alice")
    publisher.configure(debian.root / "home/alice/.config/puller")
    debian.run("chown", "--recursive", "alice:alice", "/home/alice/.config")

    def status() -> dict[str, object]:
        result: dict[str, object] = json.loads(
            as_alice(debian, "puller", "status", "--as-user", "--format", "json").stdout
        )
        return result

    def greeting() -> str:
        result = debian.root / "home/alice/greeting"
        return result.read_text() if result.exists() else ""

    def environment() -> str:
        show = ("systemctl", "--user", "show", "--property=Environment,ActiveState", "greeter")
        return as_alice(debian, *show).stdout

    def user_manager_is_up() -> bool:
        return as_alice(debian, "systemctl", "--user", "is-system-running", check=False).stdout.strip() in (
            "running",
            "degraded",
        )

    wait_until(user_manager_is_up, "alice has a systemd", 20, debian.say)
    assert "loginctl enable-linger" in as_alice(debian, "puller", "install-units", "--user").stdout
    drop_in = debian.root / "home/alice/.config/systemd/user/puller.timer.d/often.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(OFTEN)
    as_alice(debian, "systemctl", "--user", "daemon-reload")
    as_alice(debian, "systemctl", "--user", "enable", "--now", "puller.timer")

    # To the new version.
    wait_until(lambda: greeting() == "hello", "the first version is here", 60, debian.say)
    wait_until(lambda: status()["last_run"], "the run has ended", 60, debian.say)
    assert as_alice(debian, "stat", "--format=%U:%G %a", "/home/alice/greeting").stdout == "alice:alice 600\n"
    assert "GREETING=hello" in environment()
    assert "ActiveState=active" in environment()
    publisher.publish("2.0.0", OF_A_USER, greeting="bonjour", target=target)
    wait_until(lambda: greeting() == "bonjour", "the second version is here", 60, debian.say)
    wait_until(lambda: "GREETING=bonjour" in environment(), "its service is, too", 60, debian.say)

    # Her checks pass. The machine's agent is not involved.
    as_alice(debian, "systemctl", "--user", "disable", "--now", "puller.timer")
    as_alice(debian, "systemctl", "--user", "stop", "puller.service")
    output = as_alice(debian, "puller", "check", "--as-user").stdout
    assert output.startswith("PULLER OK - 1 check OK"), output
    assert not (debian.root / "var/lib/puller").exists()
    assert debian.run("puller", "run", "--as-user", check=False).returncode == 64

    # Back to the old version.
    as_alice(debian, "puller", "rollback", "greeter", "--as-user", "--reason", "English")
    assert greeting() == "hello"
    assert "GREETING=hello" in environment()
    second = as_alice(debian, "puller", "run", "--as-user", "--detailed-exitcodes", check=False)
    assert second.returncode == 20, second.stdout  # held: a rolled back release is not tried again
    assert "4 resources, 4 stable, 0 changed" in second.stdout

    # Resources that require root fail before any change.
    publisher.publish("3.0.0", OF_A_USER + WITH_PACKAGE, greeting="ciao", target=target)
    refused = as_alice(debian, "puller", "run", "--as-user", check=False)
    assert refused.returncode == 13
    assert "package#greeting: package resources require root" in refused.stdout + refused.stderr
    assert greeting() == "hello"
