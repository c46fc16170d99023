"""Facts of recorded machines, and the problems while they are gathered."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.facts.fact_tree import BUILT_IN, gather
from puller.facts.machine import Machine

CASES = Path(__file__).parents[2] / "cases" / "facts"
MACHINES = {
    file.stem: yaml.load(file.read_text(), yaml.CSafeLoader)
    for file in sorted((CASES / "machines").glob("*.yaml"))
}
SYSTEMS = yaml.load((CASES / "systems.yaml").read_text(), yaml.CSafeLoader)
VIRTUAL = yaml.load((CASES / "virtual.yaml").read_text(), yaml.CSafeLoader)

Record = Callable[..., Machine]

# Files that host.info requires, and that the cases do not declare.
RUNNING = {"/proc/uptime": "1.0 1.0\n", "/proc/stat": "btime 1750000000\n"}


@pytest.mark.parametrize("name", MACHINES)
def test_a_recorded_machine_has_the_facts_that_its_case_expects(record: Record, name: str) -> None:
    case = MACHINES[name]
    facts = gather(machine=record(case), custom_directories=())

    gathered = facts.as_dict()
    assert {key: gathered.get(key) for key in case["expected"]} == case["expected"]
    assert gathered.keys() & set(case.get("absent", ())) == set()
    assert [str(problem) for problem in facts.problems] == case.get("problems", [])


def test_the_debian_machine_has_every_built_in_fact() -> None:
    assert {*MACHINES["debian-12"]["expected"], "puller"} == set(BUILT_IN)


@pytest.mark.parametrize("name", SYSTEMS)
def test_release_files_say_which_system_it_is(record: Record, name: str) -> None:
    case = SYSTEMS[name]
    facts = gather(machine=record(case | {"files": RUNNING | case["files"]}), custom_directories=())

    system = {
        key: value for key, value in facts["os"].items() if key in ("name", "family", "release", "distro")
    }
    assert system == case["os"]
    host = facts["host"]["info"]
    assert [host["platform"], host["platformFamily"], host["platformVersion"]] == case["platform"]


@pytest.mark.parametrize("name", VIRTUAL)
def test_virtualization_is_detected_from_files(record: Record, name: str) -> None:
    case: dict[str, Any] = VIRTUAL[name]
    facts = gather(machine=record(case | {"files": RUNNING | case["files"]}), custom_directories=())

    assert [facts["virtual"], facts["is_virtual"]] == case["virtual"]
    assert facts.get("hypervisors") == case.get("hypervisors")
    host = facts["host"]["info"]
    assert [host["virtualizationSystem"], host["virtualizationRole"]] == case["host"]


def test_system_without_release_files_still_has_hardware(record: Record) -> None:
    facts = gather(machine=record({}), custom_directories=())

    assert facts["os"]["hardware"] == "x86_64"
    assert [str(problem) for problem in facts.problems] == [
        "/etc/os-release: is missing, so the name and release of this system are unknown"
    ]
