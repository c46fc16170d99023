"""The unit that renews a site's signatures, under a real systemd, with all of its hardening."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.machines import Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

PAGE = (Path(__file__).parents[2] / "docs/keys.md").read_text()


def version(machine: Machine, site: str) -> int:
    """Return the version of the site's timestamp."""
    listed = json.loads(machine.run("puller", "site", "list", site, "--format", "json").stdout)
    return {role["role"]: int(role["version"]) for role in listed["roles"]}["timestamp"]


def test_documented_units_sign_the_site(debian: Machine) -> None:
    (debian.root / "site.pass").write_text("open sesame\n")
    debian.run("puller", "site", "init", "/srv/site", "--passphrase-file", "/site.pass")
    section = PAGE.split("## Signed anew every day")[1].split("\n## ")[0]
    commands = re.findall(r"^    (\S.*)$", section, re.MULTILINE)
    debian.run("sh", "-ec", "\n".join(["cd /", *commands]))
    unit = "puller-site-refresh@srv-site"
    assert debian.show(f"{unit}.timer", "ActiveState")["ActiveState"] == "active"
    debian.run("systemctl", "start", f"{unit}.service")
    assert version(debian, "/srv/site") == 2
    debian.run("puller", "site", "verify", "/srv/site")

    # Without the credential it fails with an error, and the site stays unchanged.
    (debian.root / "etc/puller/publisher/srv-site.passphrase").unlink()
    assert debian.run("systemctl", "start", f"{unit}.service", check=False).returncode != 0
    assert "the passphrase is wrong" in debian.run("journalctl", "-u", f"{unit}.service").stdout
    assert version(debian, "/srv/site") == 2

    output = debian.run("systemd-analyze", "security", "--no-pager", f"{unit}.service").stdout
    (score,) = re.findall(r"Overall exposure level for \S+: (\S+ \w+)", output)
    assert f"Overall exposure level: {score}" in " ".join(PAGE.split())


def test_plain_keys_need_no_credential_and_any_path_works(debian: Machine) -> None:
    debian.run("puller", "site", "init", "/srv/my-site", "--no-passphrase")
    debian.run("puller", "install-units", "--publisher")
    debian.run("systemctl", "daemon-reload")
    debian.run("systemctl", "start", "puller-site-refresh@srv-my\\x2dsite.service")
    assert version(debian, "/srv/my-site") == 2
