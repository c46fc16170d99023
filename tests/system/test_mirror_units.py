"""The unit that mirrors a site, under a real systemd with all of its hardening, set up as its page describes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.machines import Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/mirroring.md").read_text()
MANIFEST = 'resources:\n  - file:\n      - /etc/motd: {content: "VERSION\\n", owner: root, group: root, mode: "0644"}\n'
CONFIGURATION = "site: /var/lib/puller-mirror/public\nbundles: [{name: web}]\n"


def publish(machine: Machine, version: str) -> None:
    source = machine.root / "srv/web"
    source.mkdir(exist_ok=True)
    (source / "manifest.yaml").write_text(MANIFEST.replace("VERSION", version))
    machine.run("puller", "site", "publish", "/srv/site", "/srv/web", "--version", version)


def test_documented_mirror_units_serve_hosts(debian: Machine) -> None:
    debian.run("puller", "site", "init", "/srv/site", "--no-passphrase")
    publish(debian, "1.0.0")
    debian.run("install", "-D", "-m", "644", "/srv/site/root.json", "/etc/puller/root.json")
    shutil.copytree(ROOT / "systemd", debian.root / "root/systemd")
    section = PAGE.split("## By a timer")[1].split("\n## ")[0]
    (commands,) = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert "https://www.example.org/puller" in commands
    debian.run(
        "sh", "-ec", "cd /root; " + commands.replace("https://www.example.org/puller", "/srv/site/public")
    )
    assert debian.show("puller-mirror.timer", "ActiveState")["ActiveState"] == "active"

    (debian.root / "etc/puller/config.yaml").write_text(CONFIGURATION)
    for version in ("1.0.0", "1.1.0"):
        publish(debian, version) if version != "1.0.0" else None
        debian.run("systemctl", "start", "puller-mirror.service")
        debian.run("puller", "run")
        assert (debian.root / "etc/motd").read_text() == f"{version}\n"
    owners = debian.run("find", "/var/lib/puller-mirror", "-not", "-user", "puller-mirror").stdout
    assert owners == "", "it is a user's that can do nothing else"

    # Files that a host would reject fail the unit, which monitoring reports. The copy stays.
    timestamp = debian.root / "srv/site/public/metadata/timestamp.json"
    good = timestamp.read_bytes()
    timestamp.write_bytes(good.replace(b'"sig":"', b'"sig":"00'))
    assert timestamp.read_bytes() != good
    assert debian.run("systemctl", "start", "puller-mirror.service", check=False).returncode != 0
    copy = debian.root / "var/lib/puller-mirror/public/metadata/timestamp.json"
    assert copy.read_bytes() == good
    debian.run("puller", "run")
