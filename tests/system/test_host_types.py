"""Host name, hosts, time zone and locales with a real systemd and glibc: now and back, and names after a boot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

V1: list[Any] = [
    {"hostname": [{"web01": {"hosts": True, "domain": "example.com"}}]},
    {"host_entry": [{"db.example.com": {"address": "192.0.2.10", "aliases": ["db"]}}]},
    {"timezone": ["Europe/Berlin"]},
]
V2: list[Any] = [
    {"hostname": [{"web02": {"hosts": True, "domain": "example.com"}}]},
    {"host_entry": [{"db.example.com": {"address": "192.0.2.11"}}]},
    {"timezone": ["America/New_York"]},
]


def apply(machine: Machine, resources: list[Any], *options: str) -> Completed:
    text = yaml.safe_dump({"resources": resources}, sort_keys=False)
    (machine.root / "root/manifest.yaml").write_text(text)
    command = ("puller", "apply", "/root/manifest.yaml", "--verbose", *options)
    return machine.run(*command, check=False, timeout=120)


def seen(machine: Machine) -> list[str]:
    """Return the names and the zone as programs of the machine see them.

    The service of timedatectl keeps the zone that it has read until it exits, half a minute after its last use.
    """
    script = (
        "uname -n; hostname --fqdn; hostnamectl hostname; getent hosts db.example.com | awk '{print $1}'; "
        "systemctl stop systemd-timedated; timedatectl show --property=Timezone --value; date --date=@1700000000 +%Z"
    )
    return machine.run("sh", "-c", script).stdout.split()


ONE = ["web01", "web01.example.com", "web01", "192.0.2.10", "Europe/Berlin", "CET"]
TWO = ["web02", "web02.example.com", "web02", "192.0.2.11", "America/New_York", "EST"]


def test_programs_see_names_and_zone_of_each_version(debian_disk: Path) -> None:
    from tests.support.machines import powered_on

    with powered_on(debian_disk, "--private-network") as machine:
        change_twice_and_back(machine)
    with powered_on(debian_disk, "--private-network") as machine:
        names = slice(4)  # systemd-nspawn sets the zone of its container at each boot
        assert seen(machine)[names] == ONE[names]


def change_twice_and_back(machine: Machine) -> None:
    before = (machine.root / "etc/hosts").read_text() if (machine.root / "etc/hosts").exists() else ""
    (machine.root / "etc/timezone").write_text("Etc/UTC\n")
    for resources, expected in ((V1, ONE), (V2, TWO), (V1, ONE)):
        foretold = apply(machine, resources, "--noop")
        assert foretold.stdout.count("would change ensure=") == 3, foretold.stdout
        done = apply(machine, resources)
        assert done.returncode == 0, done.stdout + done.stderr
        assert seen(machine) == expected
        again = apply(machine, resources)
        assert ", 3 stable, 0 changed in " in again.stdout, again.stdout
    assert before.strip() in (machine.root / "etc/hosts").read_text()
    assert (machine.root / "etc/timezone").read_text() == "Europe/Berlin\n"


def locales_of(machine: Machine) -> list[str]:
    """Return the locales, and the language that a login session has."""
    script = "locale -a; su --login root --command 'echo $LANG; LC_ALL= locale decimal_point 2>&1'"
    return machine.run("sh", "-c", script).stdout.split()


def test_programs_use_generated_locales(debian_with: Callable[..., AbstractContextManager[Path]]) -> None:
    from tests.support.machines import powered_on

    with debian_with("locales") as disk, powered_on(disk, "--private-network") as machine:
        english = {"locale": [{"en_US.UTF-8": {"variables": ["LANG"]}}, {"de_DE": {}}]}
        german = {"locale": [{"en_US.UTF-8": {"ensure": "absent"}}, {"de_DE.UTF-8": {"variables": ["LANG"]}}]}
        for resources, names, session in (
            ([english], {"en_US.utf8", "de_DE", "de_DE.iso88591"}, ["en_US.UTF-8", "."]),
            ([german, {"locale": [{"de_DE": {"ensure": "absent"}}]}], {"de_DE.utf8"}, ["de_DE.UTF-8", ","]),
        ):
            assert "Would have" in apply(machine, resources, "--noop").stdout
            done = apply(machine, resources)
            assert done.returncode == 0, done.stdout + done.stderr
            *available, lang, point = locales_of(machine)
            assert {*available} - {"C", "C.utf8", "POSIX"} == names
            assert [lang, point] == session
            assert " 0 changed in " in apply(machine, resources).stdout
        machine.run("locale-gen", "--keep-existing", timeout=120)  # an upgrade of the C library runs it
        assert {*locales_of(machine)[:-2]} - {"C", "C.utf8", "POSIX"} == {"de_DE.utf8"}
