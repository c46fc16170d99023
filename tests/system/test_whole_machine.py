"""One bundle for a machine: a package, its configuration with a secret, and the service that depends on both.

Runs on a freshly booted Debian, with a test package in a repository on the machine's disk, and an encrypted password in
the bundle's Hiera tree.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

CANARY = "canary-0f9d2c"
REPOSITORY = "srv/apt"
CONTROL = """\
Package: greeter
Version: 1.0
Architecture: all
Maintainer: Nobody <nobody@example.com>
Description: a service to follow
"""
UNIT = """\
[Service]
EnvironmentFile=/etc/greeter.env
ExecStart=/usr/bin/sleep infinity
[Install]
WantedBy=multi-user.target
"""
MANIFEST = """\
resources:
  - package:
      - greeter: {ensure: present}
  - file:
      - /etc/greeter.env:
          content: |
            GREETING={{ data.greeting }}
            PASSWORD={{ data.password }}
          owner: root
          group: root
          mode: "0600"
          require: [package#greeter]
  - service:
      - greeter:
          ensure: running
          enable: true
          subscribe: [file#/etc/greeter.env]
"""
HIERA = """\
version: 5
hierarchy:
  - {name: all, path: common.yaml, lookup_key: eyaml_lookup_key}
"""


def publish_package(machine: Machine) -> None:
    """Publish a package with a unit in the machine's only repository."""
    repository = machine.root / REPOSITORY
    tree = repository / "tree"
    for name, text in (("DEBIAN/control", CONTROL), ("usr/lib/systemd/system/greeter.service", UNIT)):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    machine.run(
        "dpkg-deb", "--build", "--root-owner-group", f"/{REPOSITORY}/tree", f"/{REPOSITORY}/greeter.deb"
    )
    built = (repository / "greeter.deb").read_bytes()
    entry = f"Filename: ./greeter.deb\nSize: {len(built)}\nSHA256: {hashlib.sha256(built).hexdigest()}\n"
    (repository / "Packages").write_text(CONTROL + entry)
    for path in (machine.root / "etc/apt/sources.list.d").glob("*"):
        path.unlink()
    (machine.root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:/{REPOSITORY} ./\n")
    machine.run("apt-get", "update")


def write_bundle(machine: Machine, greeting: str) -> None:
    bundle = machine.root / "root/bundle"
    (bundle / "data").mkdir(parents=True, exist_ok=True)
    (bundle / "manifest.yaml").write_text(MANIFEST)
    (bundle / "hiera.yaml").write_text(HIERA)
    if not (machine.root / "root/keys").exists():
        machine.run("puller", "hiera", "keys", "create", "--directory", "/root/keys")
    encrypt = "puller hiera encrypt --certificate /root/keys/public_key.pkcs7.pem"
    encrypted = machine.run("sh", "-c", f"printf {CANARY} | {encrypt}").stdout.strip()
    (bundle / "data/common.yaml").write_text(f"greeting: {greeting}\npassword: {encrypted}\n")


def apply(machine: Machine, *options: str) -> Completed:
    key = ("--private-key", "/root/keys/private_key.pkcs7.pem")
    return machine.run("puller", "apply", "/root/bundle", *key, *options, check=False, timeout=180)


def started(machine: Machine) -> str:
    """Return the start time of the service. A different time means a restart."""
    return machine.show("greeter", "ExecMainStartTimestampMonotonic", "ActiveState", "MainPID").__repr__()


def environment_of(machine: Machine) -> str:
    process = machine.show("greeter", "MainPID")["MainPID"]
    return machine.run("cat", f"/proc/{process}/environ").stdout.replace("\0", "\n")


def test_machine_converges_and_the_service_follows_its_file(debian: Machine) -> None:
    publish_package(debian)
    write_bundle(debian, "hello")
    predicted = apply(debian, "--noop")
    assert "0 changed, 3 would change" in predicted.stdout, predicted.stdout

    first = apply(debian, "--diff", "--verbose")
    assert "3 resources, 0 stable, 3 changed" in first.stdout, first.stdout + first.stderr
    assert f"GREETING=hello\nPASSWORD={CANARY}\n" in environment_of(debian)

    running = started(debian)
    second = apply(debian, "--diff", "--verbose")
    assert "3 resources, 3 stable, 0 changed" in second.stdout, second.stdout
    assert started(debian) == running

    write_bundle(debian, "bonjour")
    third = apply(debian, "--diff", "--verbose")
    assert "3 resources, 1 stable, 1 changed, 1 refreshed" in third.stdout, third.stdout
    assert started(debian) != running
    assert "GREETING=bonjour\n" in environment_of(debian)

    running = started(debian)
    fourth = apply(debian, "--diff", "--verbose")
    assert "3 resources, 3 stable, 0 changed" in fourth.stdout, fourth.stdout
    assert started(debian) == running

    explained = apply_explain(debian)
    for done in (predicted, first, second, third, fourth, explained):
        assert CANARY not in done.stdout + done.stderr
    assert CANARY not in debian.run("journalctl", "--no-pager").stdout
    result = debian.run(
        "grep", "--recursive", "--files-with-matches", CANARY, "/var/lib/puller", "/run/puller", check=False
    )
    assert result.stdout == ""


def apply_explain(machine: Machine) -> Completed:
    key = ("--private-key", "/root/keys/private_key.pkcs7.pem")
    return machine.run("puller", "explain", "password", "/root/bundle", *key, check=False)
