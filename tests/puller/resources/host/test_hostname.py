"""The hostname resource: every state of the kernel, the file and the line of the own address."""

from __future__ import annotations

import errno
import os

import pytest

from puller.errors import ManifestError
from tests.puller.resources.host.conftest import HostMachine, KilledSystem
from tests.support.sweeps import Sweep

PLAIN = "hostname: [web01]"
WITH_HOSTS = "hostname: [web01: {hosts: true, domain: example.com}]"
OTHERS = "127.0.0.1\tlocalhost\n# by hand\n10.0.0.1 gateway\n"
LINE = "127.0.1.1\tweb01.example.com web01\n"


@pytest.mark.parametrize("running", ["old", "web01"])
@pytest.mark.parametrize(
    ("kept", "result"),
    [
        (None, "web01\n"),
        ("", "web01\n"),
        ("web01\n", "web01\n"),
        ("web01", "web01"),
        ("old\n", "web01\n"),
        ("# by hand\nold\n", "# by hand\nweb01\n"),
        ("# by hand", "# by hand\nweb01\n"),
    ],
)
def test_every_state_becomes_the_declared_one(
    machine: HostMachine, running: str, kept: str | None, result: str
) -> None:
    machine.kernel.write_text(f"{running}\n")
    if kept is not None:
        machine.hostname.write_text(kept)
    done = machine.converge(PLAIN)
    assert machine.kernel.read_text() == "web01\n"
    assert machine.hostname.read_text() == result
    assert not machine.hosts.exists()
    assert (done.state == "stable") is (running == "web01" and kept in ("web01\n", "web01"))


@pytest.mark.parametrize(
    ("own", "result"),
    [
        ("", LINE),
        (LINE, LINE),
        ("127.0.1.1 old.example.com old # installer\n", "127.0.1.1 web01.example.com web01 # installer\n"),
        ("127.0.1.1 WEB01.example.com   web01\n", "127.0.1.1 WEB01.example.com   web01\n"),
    ],
)
@pytest.mark.parametrize("others", ["", OTHERS])
def test_hosts_gives_the_name_to_the_own_address(
    machine: HostMachine, own: str, result: str, others: str
) -> None:
    machine.hosts.write_text(others + own)
    machine.converge(WITH_HOSTS)
    assert machine.hosts.read_text() == others + result


@pytest.mark.parametrize(
    ("declaration", "names"),
    [
        ("hostname: [web01: {hosts: true}]", "web01"),
        ("hostname: [web01.example.com: {hosts: true}]", "web01.example.com web01"),
        (WITH_HOSTS, "web01.example.com web01"),
    ],
)
def test_names_in_hosts_begin_with_the_full_name(machine: HostMachine, declaration: str, names: str) -> None:
    machine.converge(declaration)
    assert machine.hosts.read_text() == f"127.0.1.1\t{names}\n"


def test_differences_name_kernel_file_and_hosts(machine: HostMachine) -> None:
    machine.hostname.write_text("old\n")
    done = machine.converge(WITH_HOSTS)
    assert [str(difference) for difference in done.differences] == [
        "name old → web01",
        f"{machine.hostname} name old → web01",
        f"{machine.hosts} hosts absent → web01.example.com web01",
    ]
    assert "-old\n+web01" in done.diff
    assert "+127.0.1.1\tweb01.example.com web01" in done.diff


def test_versions_one_two_and_back(machine: HostMachine) -> None:
    for name in ("web01", "web02", "web01"):
        machine.converge(f"hostname: [{name}: {{hosts: true, domain: example.com}}]")
        assert machine.kernel.read_text() == machine.hostname.read_text() == f"{name}\n"
        assert machine.hosts.read_text() == f"127.0.1.1\t{name}.example.com {name}\n"


def test_run_that_is_killed_is_finished_by_the_next(machine: HostMachine, sweep: Sweep) -> None:
    def attempt(step: int) -> bool:
        machine.kernel.write_text("old\n")
        machine.hostname.write_text("old\n")
        machine.hosts.write_text(OTHERS)
        try:
            machine.apply(WITH_HOSTS, dies_after=step)
        except KeyboardInterrupt:
            assert machine.hostname.read_text() in ("old\n", "web01\n")
            assert machine.apply(WITH_HOSTS)["hostname#web01"].state == "changed"
            assert machine.kernel.read_text() == machine.hostname.read_text() == "web01\n"
            assert machine.hosts.read_text() == OTHERS + LINE
            return True
        return False

    assert sweep(attempt) >= 1


def test_name_that_the_kernel_refuses_is_not_kept(
    machine: HostMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: KilledSystem, path: str, data: bytes) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)

    monkeypatch.setattr(KilledSystem, "write_kernel", refuse)
    machine.hostname.write_text("old\n")
    (event,) = machine.apply(WITH_HOSTS).values()
    assert event.errors == ["the kernel refuses the name web01: operation not permitted"]
    assert machine.hostname.read_text() == "old\n"
    assert not machine.hosts.exists()


@pytest.mark.parametrize("noop", [True, False])
@pytest.mark.parametrize("obstacle", ["hostname", "hosts"])
def test_file_that_cannot_be_edited_is_a_failure(machine: HostMachine, obstacle: str, noop: bool) -> None:
    (machine.etc / obstacle).mkdir()
    (event,) = machine.apply(WITH_HOSTS, noop=noop).values()
    assert event.errors == [f"{machine.etc / obstacle} is a directory, expected a file"]
    assert machine.changes == []


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("localhost", "name is 'localhost', expected a host name"),
        ("-web", "name is '-web', expected a host name"),
        ("web_01.", "name is 'web_01.', expected a host name"),
        ("'web 01'", "expected a host name"),
        ('"web\\n01"', "expected a host name"),
        (f"{'a' * 40}.{'b' * 40}", "with at most 64 characters"),
        ("'10'", "name is '10', expected a host name"),
        ("web01: {ensure: absent}", "ensure is 'absent', expected present"),
        ("web01: {domain: example.com}", "domain requires hosts: true"),
        ("web01.example.com: {domain: example.com, hosts: true}", "domain is 'example.com', and the name"),
        ("web01: {domain: a..b, hosts: true}", "domain is 'a..b', expected a domain"),
    ],
)
def test_invalid_names_are_errors_of_the_manifest(
    machine: HostMachine, declaration: str, message: str
) -> None:
    with pytest.raises(ManifestError) as error:
        machine.apply(f"hostname: [{declaration}]")
    assert message in str(error.value)


def test_two_names_are_a_contradiction(machine: HostMachine) -> None:
    with pytest.raises(ManifestError, match="declared twice"):
        machine.apply(PLAIN, "hostname: [web02]")
    assert len(machine.apply(PLAIN, WITH_HOSTS)) == 1
    assert machine.hosts.read_text() == LINE


def test_file_and_entries_in_hosts_are_edited_together(machine: HostMachine) -> None:
    entries = (WITH_HOSTS, "host_entry: [db: {address: 192.0.2.10}]")
    machine.apply(*entries)
    assert machine.hosts.read_text() == LINE + "192.0.2.10\tdb\n"
    assert {event.state for event in machine.apply(*entries).values()} == {"stable"}
