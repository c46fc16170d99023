"""The host_entry resource: every state of its lines, and lines of other people."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.errors import ManifestError
from puller.resources.host.host_entry import Edit, edited, parse
from tests.puller.resources.host.conftest import HostMachine
from tests.support.sweeps import Sweep

DB = "host_entry#db.example.com"
MINE = "127.0.0.1\tlocalhost\n# by hand\n\n10.0.0.1   gateway  gw # router\n"


def entry(name: str = "db.example.com", **properties: object) -> str:
    listed = ", ".join(f"{key}: {value}" for key, value in properties.items())
    return f"host_entry: {{name: {name}, {listed}}}"


V1 = entry(address="192.0.2.10", aliases="[db]")
V2 = entry(address="192.0.2.11", aliases="[db, store]")
LINE1, LINE2 = "192.0.2.10\tdb.example.com db\n", "192.0.2.11\tdb.example.com db store\n"


@pytest.mark.parametrize("before", ["", MINE, MINE.rstrip("\n")])
@pytest.mark.parametrize(
    ("own", "result"),
    [
        ("", LINE1),
        (LINE1, LINE1),
        (LINE2, LINE1),
        ("192.0.2.10 DB.example.com   db # ours\n", "192.0.2.10 DB.example.com   db # ours\n"),
        ("192.0.2.9  db.example.com # ours\n", "192.0.2.10  db.example.com db # ours\n"),
        ("2001:db8::1 db.example.com\n", LINE1),
        (LINE2 + LINE1, LINE1),
        (LINE1 + LINE1, LINE1),
    ],
)
def test_every_state_becomes_the_declared_one(
    machine: HostMachine, before: str, own: str, result: str
) -> None:
    end = "" if not own or before.endswith("\n") or not before else "\n"
    machine.hosts.write_text(before + end + own)
    done = machine.converge(V1)
    complete = before if not before or before.endswith("\n") else f"{before}\n"
    assert machine.hosts.read_text() == complete + result
    assert (done.state == "stable") is (own == result)


@pytest.mark.parametrize("own", ["", LINE1, LINE2 + LINE1, "192.0.2.9 db.example.com # ours"])
def test_absent_removes_the_lines_of_the_entry_only(machine: HostMachine, own: str) -> None:
    machine.hosts.write_text(MINE + own)
    done = machine.converge(entry(ensure="absent"))
    assert machine.hosts.read_text() == MINE
    assert [str(difference) for difference in done.differences] == (
        ["ensure present → absent"] if own else []
    )


def test_missing_file_is_created_for_everyone_to_read(machine: HostMachine) -> None:
    assert machine.converge(entry(ensure="absent")).state == "stable"
    assert not machine.hosts.exists()
    machine.converge(V1)
    assert machine.hosts.read_text() == LINE1
    assert machine.hosts.stat().st_mode & 0o7777 == 0o644


def test_owner_and_mode_of_the_file_stay(machine: HostMachine) -> None:
    machine.hosts.write_text(MINE)
    machine.hosts.chmod(0o640)
    machine.converge(V1)
    assert machine.hosts.stat().st_mode & 0o7777 == 0o640


def test_versions_one_two_and_back(machine: HostMachine) -> None:
    machine.hosts.write_text(MINE)
    for declaration, line in ((V1, LINE1), (V2, LINE2), (V1, LINE1)):
        assert machine.converge(declaration).state == "changed"
        assert machine.hosts.read_text() == MINE + line


def test_differences_name_address_and_aliases(machine: HostMachine) -> None:
    machine.hosts.write_text(LINE1)
    done = machine.converge(V2)
    assert [str(difference) for difference in done.differences] == [
        "address 192.0.2.10 → 192.0.2.11",
        "aliases db → db store",
    ]
    assert "-192.0.2.10\tdb.example.com db\n+192.0.2.11\tdb.example.com db store" in done.diff


def test_host_with_two_families_has_a_line_for_each(machine: HostMachine) -> None:
    both = entry(address='[192.0.2.10, "2001:DB8::7"]', aliases="[db]")
    machine.converge(both)
    assert machine.hosts.read_text() == LINE1 + "2001:DB8::7\tdb.example.com db\n"
    machine.converge(V1)
    assert machine.hosts.read_text() == LINE1
    machine.hosts.write_text("2001:db8:0::0:7 db.example.com db\n" + LINE1)
    assert machine.converge(both).state == "stable"


def test_entries_share_a_write_and_a_diff(machine: HostMachine) -> None:
    events = machine.apply(V1, entry("cache", address="192.0.2.20"), entry("mail", address="192.0.2.30"))
    assert machine.changes == ["hosts"]
    diffs = [event.diff for event in events.values()]
    assert diffs[0].count("\n+") == 4
    assert diffs[1:] == ["", ""]


def test_name_in_another_line_is_a_note(machine: HostMachine) -> None:
    text = "10.0.0.9 old db # by hand\n2001:db8::9 six db\n192.0.2.10 same db\n"
    machine.hosts.write_text(text)
    event = machine.converge(V1)
    assert event.notes == [f"{machine.hosts}:1 also gives db the address 10.0.0.9"]
    assert machine.hosts.read_text() == text + LINE1


def test_run_that_is_killed_is_finished_by_the_next(machine: HostMachine, sweep: Sweep) -> None:
    entries = (V1, entry("cache", address="192.0.2.20"))

    def attempt(step: int) -> bool:
        machine.hosts.write_text(MINE)
        try:
            machine.apply(*entries, dies_after=step)
        except KeyboardInterrupt:
            assert machine.hosts.read_text() == MINE
            machine.apply(*entries)
            assert machine.hosts.read_text() == MINE + LINE1 + "192.0.2.20\tcache\n"
            return True
        return False

    sweep(attempt)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ("address: 192.0.2", "address is '192.0.2', expected an IP address"),
        ("address: 192.0.2.300", "address is '192.0.2.300', expected an IP address"),
        ("address: '192.0.2.1 evil'", "address is '192.0.2.1 evil', expected an IP address"),
        ("address: [192.0.2.1, 192.0.2.1]", "address has one address twice"),
        ("address: []", "address is missing"),
        (
            "ensure: absent, name: localhost",
            "name has localhost, which programs expect at a loopback address",
        ),
        ("address: 192.0.2.1, aliases: [LOCALHOST]", "aliases has localhost"),
        ("address: 192.0.2.1, aliases: [Db.example.com]", "aliases has one name twice"),
        ("address: 192.0.2.1, aliases: ['a b']", "aliases has 'a b', expected a host name"),
        ('address: 192.0.2.1, aliases: ["a\\n10.0.0.1 b"]', "expected a host name"),
        ("address: 192.0.2.1, aliases: ['#a']", "aliases has '#a', expected a host name"),
        ("address: 192.0.2.1, name: 192.0.2.1", "name is '192.0.2.1', expected a host name"),
        ("address: 192.0.2.1, name: -a", "name is '-a', expected a host name"),
        ("address: 192.0.2.1, name: a..b", "name is 'a..b', expected a host name"),
        ("address: 192.0.2.1, ensure: running", "ensure is 'running', expected present or absent"),
    ],
)
def test_invalid_properties_are_errors_of_the_manifest(
    machine: HostMachine, properties: str, message: str
) -> None:
    name = "" if "name:" in properties else "name: db.example.com, "
    with pytest.raises(ManifestError) as error:
        machine.apply(f"host_entry: {{{name}{properties}}}")
    assert message in str(error.value)


def test_localhost_at_loopback_addresses_is_valid(machine: HostMachine) -> None:
    machine.hosts.write_text("127.0.0.1 localhost\n::1 localhost ip6-localhost\n")
    both = entry("localhost", address='[127.0.0.1, "::1"]')
    machine.converge(both)
    assert machine.hosts.read_text() == "127.0.0.1 localhost\n::1 localhost\n"


def test_two_addresses_of_a_name_are_a_contradiction(machine: HostMachine) -> None:
    other = entry("store.example.com", address="192.0.2.11", aliases="[db]")
    with pytest.raises(ManifestError, match="gives db another address"):
        machine.apply(V1, other)
    six = entry("store.example.com", address='"2001:db8::1"', aliases="[db]")
    machine.apply(V1, six)
    with pytest.raises(ManifestError, match="address"):
        machine.apply(V1, entry("DB.example.com", address="192.0.2.11", aliases="[db]"))


def test_spellings_of_a_name_and_address_agree(machine: HostMachine) -> None:
    same = entry("DB.Example.com", address="192.0.2.10", aliases="[db]")
    assert len(machine.apply(V1, same)) == 1
    assert machine.hosts.read_text() == LINE1


def test_line_resource_for_the_name_is_a_contradiction(machine: HostMachine) -> None:
    line = f"line: {{name: db, path: {machine.hosts}, line: 10.0.0.1 db.example.com}}"
    with pytest.raises(ManifestError, match="another resource"):
        machine.apply(V1, line)


@pytest.mark.parametrize("noop", [True, False])
@pytest.mark.parametrize("obstacle", ["directory", "link", "utf-16"])
def test_file_that_cannot_be_edited_is_a_failure(machine: HostMachine, obstacle: str, noop: bool) -> None:
    if obstacle == "directory":
        machine.hosts.mkdir()
    elif obstacle == "link":
        machine.hosts.symlink_to("nowhere")
    else:
        machine.hosts.write_bytes(MINE.encode("utf-16"))
    (event,) = machine.apply(V1, noop=noop).values()
    assert event.state == "failed"
    assert str(machine.hosts) in event.errors[0]
    assert machine.changes == []


def test_bytes_that_are_no_text_stay(machine: HostMachine) -> None:
    machine.hosts.write_bytes(b"# caf\xe9\n\xff\xfe\n10.0.0.1\x00a b\r\n")
    machine.converge(V1)
    assert machine.hosts.read_bytes() == b"# caf\xe9\n\xff\xfe\n10.0.0.1\x00a b\r\n" + LINE1.encode()


TEXT = st.text(alphabet="ab1. \t#\n:", max_size=60)


@given(TEXT, st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "::1"]), max_size=3, unique=True))
def test_edits_settle_and_leave_other_lines(text: str, addresses: list[str]) -> None:
    text += random.Random(text).choice(["", "10.0.0.1 a\n10.0.0.3 a # c\n", "10.0.0.2 A b"])
    edit = Edit("a", tuple(addresses), ("b",))
    after = edited(text, [edit])
    assert edited(after, [edit]) == after
    own = [line for line in parse(after) if line.is_of("a")]
    assert sorted(line.written for line in own) == sorted(addresses)
    others = [line for line in text.splitlines() if not any(each.is_of("a") for each in parse(line))]
    remaining = [line for line in after.splitlines() if not any(each.is_of("a") for each in parse(line))]
    assert remaining == others
