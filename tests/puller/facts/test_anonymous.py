"""Anonymous facts contain no identification of the machine, and all other facts."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from puller.facts.anonymous import anonymous
from puller.facts.fact_tree import BUILT_IN, gather
from puller.facts.given_facts import facts_of
from puller.facts.machine import Machine
from tests.support.rows import each_row

MACHINES = sorted((Path(__file__).parents[2] / "cases" / "facts" / "machines").glob("*.yaml"))

CANARY = "c4n4ry"

# Facts that identify a machine. The test replaces all values below them by canaries.
IDENTIFYING = [
    ("disks", "vda", "serial"),
    ("disks", "vda", "wwn"),
    ("dmi", "board", "asset_tag"),
    ("dmi", "board", "serial_number"),
    ("dmi", "chassis", "asset_tag"),
    ("dmi", "product", "serial_number"),
    ("dmi", "product", "uuid"),
    ("host", "info", "hostId"),
    ("host", "info", "hostname"),
    ("hypervisors", "docker", "id"),
    ("hypervisors", "lxc", "name"),
    ("hypervisors", "systemd_nspawn", "id"),
    ("identity", "group"),
    ("identity", "user"),
    ("mountpoints", "/", "device"),
    ("mountpoints", "/srv", "device"),
    ("networking", "dhcp"),
    ("networking", "domain"),
    ("networking", "fqdn"),
    ("networking", "hostname"),
    ("networking", "ip"),
    ("networking", "mac"),
    ("networking", "network6"),
    ("networking", "primary"),
    ("networking", "interfaces", "eth0", "dhcp"),
    ("networking", "interfaces", "eth0", "ip6"),
    ("networking", "interfaces", "eth0", "mac"),
    ("partitions", "/dev/vda1", "backing_file"),
    ("partitions", "/dev/vda1", "label"),
    ("partitions", "/dev/vda1", "mount"),
    ("partitions", "/dev/vda1", "partlabel"),
    ("partitions", "/dev/vda1", "partuuid"),
    ("partitions", "/dev/vda1", "uuid"),
    ("path",),
    ("ssh", "ed25519", "fingerprints", "sha1"),
    ("ssh", "ed25519", "fingerprints", "sha256"),
    ("ssh", "ed25519", "key"),
]


def gathered(record: Callable[..., Machine], file: Path) -> dict[str, Any]:
    case = yaml.load(file.read_text(), yaml.CSafeLoader)
    return gather(machine=record(case), custom_directories=()).as_dict()


def planted(tree: Any) -> Any:
    """Return a tree with a custom fact in every mapping, and with a mapping that the machine has named."""
    if isinstance(tree, Mapping):
        below = {name: planted(value) for name, value in tree.items()}
        return below | {CANARY: CANARY, f"{CANARY}.d": {"owner": CANARY, "list": [CANARY]}}
    return [planted(item) for item in tree] if isinstance(tree, list) else tree


def put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def test_no_canary_of_any_group_survives() -> None:
    facts = planted(facts_of("debian-12"))
    for path in IDENTIFYING:
        put(facts, path, f"{CANARY}-{'-'.join(path)}")
    facts["mountpoints"]["/"]["options"] = ["rw", f"username={CANARY}", f"addr={CANARY}", f"{CANARY}=1"]
    facts["mountpoints"][f"/srv/{CANARY}"] = {"device": f"{CANARY}:/export", "filesystem": "nfs4"}
    facts["partitions"][f"/dev/mapper/{CANARY}-root"] = {"size_bytes": 1}
    facts["disks"][CANARY] = {"size_bytes": 1}
    facts["networking"]["interfaces"][f"enx{CANARY}"] = {"mac": CANARY, "mtu": 1500, "flags": [CANARY]}
    facts["networking"]["interfaces"]["eth0"]["bindings"] = [{"address": CANARY, "netmask": CANARY}]

    assert CANARY not in json.dumps(anonymous(facts))
    assert anonymous(facts, keep=[CANARY])[CANARY] == CANARY


@each_row("path", IDENTIFYING, ids=".".join)
@each_row("value", [CANARY, [CANARY], {CANARY: CANARY}, {"name": CANARY}], ids=repr)
def test_a_fact_of_another_kind_is_no_way_around(path: tuple[str, ...], value: Any) -> None:
    facts = facts_of("debian-12")
    put(facts, path, value)

    assert CANARY not in json.dumps(anonymous(facts))


@each_row("group", sorted(BUILT_IN))
@each_row("value", [None, 1, "text", [], {}, [1], {"a": {"b": 1}}], ids=repr)
def test_a_group_that_a_custom_fact_has_replaced_is_no_error(group: str, value: Any) -> None:
    anonymous(facts_of("debian-12") | {group: value})


@given(st.ip_addresses(), st.ip_addresses())
def test_equal_addresses_become_equal_example_addresses(one: Any, other: Any) -> None:
    bindings = [{"address": str(address)} for address in (one, other, one)]
    facts = {"networking": {"interfaces": {"eth0": {"bindings": bindings}}}}
    links = anonymous(facts)["networking"]["interfaces"]["eth0"]["bindings"]
    results = [link.get("address", "") for link in links]

    assert results[0] == results[2]
    assert (results[0] == results[1]) == (one == other) or one.is_loopback or other.is_loopback
    allowed = re.compile(r"(192\.0\.2\.\d+|2001:db8::\w+|fe80::\w+|127\.0\.0\.1|::1|)")
    assert [text for text in results if not allowed.fullmatch(text)] == []


@pytest.mark.parametrize("file", MACHINES, ids=lambda file: file.stem)
def test_nothing_that_identifies_a_recorded_machine_is_left(
    record: Callable[..., Machine], file: Path
) -> None:
    facts = gathered(record, file)
    remaining = json.dumps(anonymous(facts))
    texts = re.findall(r'"([^"]+)"', json.dumps(facts))
    numbers = re.compile(r"[0-9a-f]{8}-|([0-9a-f]{2}:){5}|\d+\.\d+\.\d+\.\d+|.*::|AAAA.|SSHFP|.*example")
    neutral = re.compile(
        r"255\.|ffff|fe80::$|127\.0\.0\.|::1|192\.0\.2|2001:db8|.*example\.com|(64:|2001:db8)"
    )
    identifying = {text for text in texts if numbers.match(text) and not neutral.match(text)}

    assert [text for text in identifying if f'"{text}"' in remaining] == []


@pytest.mark.parametrize("file", MACHINES, ids=lambda file: file.stem)
def test_other_facts_of_the_machine_stay(record: Callable[..., Machine], file: Path) -> None:
    facts = gathered(record, file)
    remaining = anonymous(facts)

    assert remaining.keys() == facts.keys()
    for group in ("os", "kernelrelease", "memory", "processors", "virtual", "is_virtual", "timezone"):
        assert remaining.get(group) == facts.get(group)
    links, before = remaining["networking"].get("interfaces", {}), facts["networking"].get("interfaces", {})
    assert [set(link) for link in links.values()] == [set(link) for link in before.values()]
    assert remaining["networking"].keys() == facts["networking"].keys()


def test_a_known_system_stays_almost_as_it_is() -> None:
    facts = facts_of("debian-12")
    remaining = anonymous(facts)

    assert remaining["networking"]["interfaces"]["eth0"]["bindings6"][1]["network"] == "fe80::"
    for group in facts.keys() - {"dmi", "partitions", "ssh", "networking"}:
        assert remaining[group] == facts[group]
    assert anonymous(remaining) == remaining


def test_the_facts_that_are_given_are_not_changed() -> None:
    facts = facts_of("rocky-9")
    anonymous(facts)

    assert facts == facts_of("rocky-9")
