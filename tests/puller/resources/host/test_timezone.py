"""The timezone resource: every state of the link and the file, and zones that do not exist."""

from __future__ import annotations

import os

import pytest

from puller.errors import ManifestError
from tests.puller.resources.host.conftest import HostMachine
from tests.support.sweeps import Sweep

BERLIN = "timezone: [Europe/Berlin]"
PARIS = "timezone: [Europe/Paris]"


def zone_of(machine: HostMachine) -> str:
    return os.path.relpath(os.readlink(machine.localtime), machine.zones)


def prepare(machine: HostMachine, link: str | None, text: str | None) -> None:
    for path in (machine.localtime, machine.timezone):
        if os.path.lexists(path):
            path.unlink()
    if link == "copy":
        machine.localtime.write_bytes(b"TZif2")
    elif link is not None:
        machine.localtime.symlink_to(link.replace("ZONES", str(machine.zones)))
    if text is not None:
        machine.timezone.write_text(text)


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        (None, "zone absent → Europe/Berlin"),
        ("ZONES/Europe/Berlin", None),
        ("../zoneinfo/Europe/Berlin", None),
        ("ZONES/UTC", "zone UTC → Europe/Berlin"),
        ("ZONES/missing", "zone missing → Europe/Berlin"),
        ("/elsewhere/zone", "zone /elsewhere/zone → Europe/Berlin"),
        ("copy", "zone a file → Europe/Berlin"),
    ],
)
@pytest.mark.parametrize("text", [None, "", "Europe/Berlin\n", "Etc/UTC\n"])
def test_every_state_becomes_the_declared_one(
    machine: HostMachine, link: str | None, shown: str | None, text: str | None
) -> None:
    prepare(machine, link, text)
    done = machine.converge(BERLIN)
    target = str(machine.zones / "Europe/Berlin")
    assert os.readlink(machine.localtime) == (
        target if shown or not link else link.replace("ZONES", str(machine.zones))
    )
    assert (machine.timezone.read_text() if machine.timezone.exists() else None) == (
        None if text is None else "Europe/Berlin\n"
    )
    expected = [shown] if shown else []
    if text is not None and text != "Europe/Berlin\n":
        expected.append(f"{machine.timezone} zone {text.strip() or 'empty'} → Europe/Berlin")
    assert [str(difference) for difference in done.differences] == expected


def test_versions_one_two_and_back(machine: HostMachine) -> None:
    prepare(machine, "ZONES/UTC", "Etc/UTC\n")
    for declaration, zone in ((BERLIN, "Europe/Berlin"), (PARIS, "Europe/Paris"), (BERLIN, "Europe/Berlin")):
        assert machine.converge(declaration).state == "changed"
        assert (zone_of(machine), machine.timezone.read_text()) == (zone, f"{zone}\n")


def test_run_that_is_killed_is_finished_by_the_next(machine: HostMachine, sweep: Sweep) -> None:
    def attempt(step: int) -> bool:
        prepare(machine, "ZONES/UTC", "Etc/UTC\n")
        try:
            machine.apply(BERLIN, dies_after=step)
        except KeyboardInterrupt:
            assert zone_of(machine) in ("UTC", "Europe/Berlin")
            assert machine.apply(BERLIN)["timezone#Europe/Berlin"].state == "changed"
            assert (zone_of(machine), machine.timezone.read_text()) == ("Europe/Berlin", "Europe/Berlin\n")
            return True
        return False

    assert sweep(attempt) >= 1


@pytest.mark.parametrize("noop", [True, False])
@pytest.mark.parametrize("zone", ["Europe/Atlantis", "Europe", "zone.tab", "leap"])
def test_missing_zone_is_a_failure_that_changes_nothing(machine: HostMachine, zone: str, noop: bool) -> None:
    prepare(machine, "ZONES/UTC", "Etc/UTC\n")
    (machine.zones / "leap").write_text("no zone")
    if "." in zone:
        with pytest.raises(ManifestError, match="expected a zone such as"):
            machine.apply(f"timezone: ['{zone}']", noop=noop)
        return
    (event,) = machine.apply(f"timezone: ['{zone}']", noop=noop).values()
    assert event.errors[0].startswith(f"unknown time zone {zone}: ")
    assert (zone_of(machine), machine.timezone.read_text()) == ("UTC", "Etc/UTC\n")
    assert machine.changes == []


@pytest.mark.parametrize("noop", [True, False])
def test_directory_in_place_of_the_link_is_a_failure(machine: HostMachine, noop: bool) -> None:
    machine.localtime.mkdir()
    (event,) = machine.apply(BERLIN, noop=noop).values()
    assert event.errors == [f"{machine.localtime} is a directory, expected a link or a file"]


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../../etc/passwd", "Europe/../UTC", "", "posix/UTC", "right/UTC", "Europe/", "a b"],
)
def test_invalid_zones_are_errors_of_the_manifest(machine: HostMachine, name: str) -> None:
    with pytest.raises(ManifestError):
        machine.apply(f"timezone: [{{name: {name!r}}}]")


def test_zone_cannot_be_absent(machine: HostMachine) -> None:
    with pytest.raises(ManifestError, match="ensure is 'absent', expected present"):
        machine.apply("timezone: [UTC: {ensure: absent}]")


def test_two_zones_are_a_contradiction(machine: HostMachine) -> None:
    with pytest.raises(ManifestError, match="declared twice"):
        machine.apply(BERLIN, PARIS)
    assert len(machine.apply(BERLIN, BERLIN)) == 1


def test_dry_run_accepts_a_zone_that_a_command_may_install(machine: HostMachine) -> None:
    (machine.zones / "Europe/Berlin").unlink()
    events = machine.apply("exec: ['true']", BERLIN, noop=True)
    assert events["timezone#Europe/Berlin"].noop_message == (
        "Would have changed the time zone from none to Europe/Berlin"
    )
