"""The facts of known systems. ``PULLER_WRITE_SYSTEMS=1`` writes their expected values."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.errors import UsageError
from puller.facts import given_facts
from puller.facts.bundled import BundleFactError, over
from puller.facts.fact_tree import BUILT_IN, described, gather
from puller.facts.given_facts import facts_of, known_systems
from puller.facts.machine import Machine
from puller.version import __version__
from tests.support.rows import each_row

CASE = Path(__file__).parents[2] / "cases" / "facts" / "known.yaml"
KNOWN = yaml.load(CASE.read_text(), yaml.CSafeLoader)
DIRECTORY = Path(given_facts.__file__).parent / "systems"

Record = Callable[..., Machine]

FAMILIES = {"debian": "Debian", "ubuntu": "Debian", "rocky": "RedHat", "rhel": "RedHat", "fedora": "RedHat"}

DOCUMENTATION = [
    ip_network(net) for net in ("192.0.2.0/24", "2001:db8::/32", "127.0.0.0/8", "::1/128", "fe80::/10")
]


def gathered(record: Record, name: str) -> dict[str, Any]:
    """Return the facts of a system, without the version of Puller."""
    system = KNOWN["systems"][name]
    machine = KNOWN["machine"]
    case = {
        **machine,
        "uname": {"nodename": "host", "release": system["kernel"]},
        "files": machine["files"] | system["files"],
        "path": system.get("path", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    }
    facts = gather(machine=record(case), custom_directories=())
    result = facts.as_dict()
    assert facts.problems == []
    del result["puller"]
    return result


@pytest.mark.parametrize("name", KNOWN["systems"])
def test_known_system_equals_gathered_facts(record: Record, name: str) -> None:
    text = json.dumps(gathered(record, name), indent=1) + "\n"
    file = DIRECTORY / f"{name}.json"
    if os.environ.get("PULLER_WRITE_SYSTEMS"):
        file.write_text(text)
    assert file.read_text() == text, (
        "write it anew: PULLER_WRITE_SYSTEMS=1 pytest tests/puller/facts/test_systems.py"
    )
    assert facts_of(name).keys() == BUILT_IN.keys()
    assert facts_of(name)["puller"] == {"version": __version__}


def test_the_systems_are_those_that_have_a_machine() -> None:
    assert known_systems() == sorted(KNOWN["systems"])


@each_row("name", KNOWN["systems"])
def test_known_system_matches_its_name(name: str) -> None:
    kind, _, version = name.partition("-")
    result = described(facts_of(name))

    assert result["os"]["family"] == FAMILIES[kind]
    assert result["os"]["release"]["major"] == version
    assert result["os"]["selinux"]["enabled"] == (FAMILIES[kind] == "RedHat")
    assert result["networking"]["fqdn"] == "host.example.com"


@each_row("name", KNOWN["systems"])
def test_legacy_names_answer_over_a_known_system(name: str) -> None:
    result = described(facts_of(name), overrides={"memory": {"system": {"total_bytes": 1 << 30}}})

    assert result["osfamily"] == result["os"]["family"]
    assert result["ipaddress_eth0"] == "192.0.2.10"
    assert result["memorysize_mb"] == 1024
    assert "no_such_fact" not in result
    assert "osfamily" in result.as_dict(legacy=True)


def test_a_described_machine_has_nothing_of_this_one() -> None:
    result = described({"os": {"name": "Own"}}, overrides={"os": {"family": "None"}, "role": "web"})

    assert result.as_dict() == {"os": {"name": "Own", "family": "None"}, "role": "web"}
    assert list(result) == ["operatingsystem", "os", "osfamily", "role"]
    assert result.problems == []
    with pytest.raises(KeyError):
        result["kernel"]


def test_described_machine_reads_documents_and_runs_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "facts.d"
    directory.mkdir()
    (directory / "rack.yaml").write_text("{row: 2}\n")
    (directory / "disks_of.sh").write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\necho size=1\n")
    (directory / "disks_of.sh").chmod(0o755)
    result, problems = over(described(facts_of("debian-12")), tmp_path, [directory])

    assert problems == []
    assert result["rack"] == {"row": 2}
    with pytest.raises(BundleFactError):
        result["disks_of"]
    assert not (tmp_path / "was-run").exists()


@each_row("name", KNOWN["systems"])
def test_no_address_of_a_known_system_is_anybodys(name: str) -> None:
    texts = list(leaves(facts_of(name)))
    results = [text for text in texts if is_address(text)]

    assert results
    assert [text for text in results if not allowed(text)] == []


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield str(value)


def is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def allowed(text: str) -> bool:
    is_mask = re.match(r"(255\.|ffff:)", text) is not None
    address = ip_address(text)
    return is_mask or any(address.version == net.version and address in net for net in DOCUMENTATION)


def test_each_call_gives_facts_of_its_own() -> None:
    facts_of("debian-12")["os"]["name"] = "changed"

    assert facts_of("debian-12")["os"]["name"] == "Debian"


def test_an_unknown_system_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"^unknown system 'debian12' \(did you mean 'debian-12'\?\)$"):
        facts_of("debian12")
    with pytest.raises(UsageError, match=r"'\.\./systems/debian-12'"):
        facts_of("../systems/debian-12")
    with pytest.raises(UsageError, match=r"'solaris' \(known: .*debian-12, debian-13 and 2 more\)$"):
        facts_of("solaris")
