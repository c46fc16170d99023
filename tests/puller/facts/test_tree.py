"""The tree of facts: lazy groups, precedence of custom and given facts, and isolated failures."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.facts.fact_tree import BUILT_IN, Facts, gather
from puller.facts.fact_values import within
from puller.facts.groups import network, storage
from puller.facts.machine import Machine

Record = Callable[..., Machine]

DEBIAN = {
    "/etc/os-release": 'NAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"\n',
    "/etc/debian_version": "12.11\n",
}


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    """Return a directory for custom facts."""
    directory = tmp_path / "facts.d"
    directory.mkdir(mode=0o755)
    return directory


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)


def test_custom_facts_are_gathered_lazily(custom: Path) -> None:
    facts = gather(custom_directories=[custom])
    write(custom / "role.yaml", "role: web\n")

    assert facts["role"] == "web"


def test_later_sources_are_merged_deeply_over_earlier_ones(record: Record, custom: Path) -> None:
    write(custom / "os.json", '{"os": {"family": "Own", "site": {"rack": "a1"}}, "role": "web"}')
    overrides = {"os": {"site": {"rack": "b4"}}, "role": ["db"]}
    facts = gather(machine=record({"files": DEBIAN}), custom_directories=[custom], overrides=overrides)

    assert facts["os"]["name"] == "Debian"
    assert facts["os"]["family"] == "Own"
    assert facts["os"]["site"] == {"rack": "b4"}
    assert facts["role"] == ["db"]


def test_a_group_that_a_given_fact_replaces_is_not_gathered(record: Record) -> None:
    facts = gather(machine=record({}), custom_directories=(), overrides={"memory": "plenty"})

    assert facts["memory"] == "plenty"
    assert facts.problems == []


def test_agent_facts_override_built_in_facts() -> None:
    agent = {"clientcert": "web1.example.com", "puller": {"bundle": {"name": "web", "version": "1.4.0"}}}
    facts = gather(custom_directories=(), agent=agent)

    assert facts["clientcert"] == "web1.example.com"
    assert facts["puller"]["bundle"] == {"name": "web", "version": "1.4.0"}
    assert facts["puller"]["version"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("osfamily", "Debian"),
        ("operatingsystem", "Debian"),
        ("operatingsystemmajrelease", "12"),
        ("architecture", "amd64"),
        ("hardwaremodel", "x86_64"),
        ("hostname", "web1"),
        ("domain", "example.com"),
        ("fqdn", "web1.example.com"),
        ("clientcert", "web1.example.com"),
        ("ipaddress", "192.0.2.10"),
        ("ipaddress_eth0", "192.0.2.10"),
        ("macaddress_eth0", "52:54:00:12:34:56"),
        ("mtu_lo", 65536),
        ("interfaces", "eth0,lo"),
        ("memorysize_mb", 2.0),
        ("memorysize", "2.00 MiB"),
        ("memoryfree_mb", 1.0),
    ],
)
def test_legacy_names_follow_the_tree(record: Record, name: str, value: object) -> None:
    case = {
        "uname": {"nodename": "web1.example.com"},
        "files": DEBIAN | {"/proc/meminfo": "MemTotal: 2048 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n"},
        "links_of_kernel": [[1, "lo", "", 65536, 0], [2, "eth0", "52:54:00:12:34:56", 1500, 0]],
        "addresses_of_kernel": [[2, "eth0", "192.0.2.10", 24, 128]],
    }
    facts = gather(machine=record(case), custom_directories=())

    assert facts[name] == value


def test_legacy_name_follows_a_given_modern_fact() -> None:
    facts = gather(custom_directories=(), overrides={"os": {"family": "Own"}})

    assert facts["osfamily"] == "Own"


@pytest.mark.parametrize(
    "name", ["ipaddress6", "ipaddress_eth9", "ipaddress_", "swapsize_mb", "no_such_fact", ""]
)
def test_a_fact_that_this_machine_does_not_have_is_absent(record: Record, name: str) -> None:
    case = {"files": DEBIAN | {"/proc/meminfo": "MemTotal: 2048 kB\nMemFree: 1024 kB\nSwapTotal: 0 kB\n"}}
    facts = gather(machine=record(case), custom_directories=())

    assert name not in facts
    assert facts.get(name, "absent") == "absent"
    with pytest.raises(KeyError, match=name or "''"):
        facts[name]


def test_iterating_gives_exactly_the_names_that_have_a_value() -> None:
    facts = gather(custom_directories=(), overrides={"role": "web", "nothing": None})

    names = list(facts)
    assert len(facts) == len(names) == len(set(names))
    assert all(name in facts for name in names)
    assert {"os", "osfamily", "role", "nothing"} <= set(names)


def test_complete_tree_omits_legacy_names_by_default() -> None:
    facts = gather(custom_directories=())

    assert types_in(facts.as_dict()) <= {dict, list, str, int, float, bool, type(None)}
    assert set(facts.as_dict()) <= set(BUILT_IN)
    assert facts.as_dict(legacy=True) == dict(facts)
    assert "osfamily" in facts.as_dict(legacy=True)


def types_in(value: Any) -> set[type]:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {type(value)}.union(*(types_in(member) for member in below))


def test_the_machine_that_runs_the_tests_has_facts_too() -> None:
    facts = gather(custom_directories=())

    assert facts["kernelrelease"] == os.uname().release
    assert facts["memory"]["system"]["total_bytes"] > 0
    assert facts["networking"]["interfaces"]["lo"]["ip"] == "127.0.0.1"
    assert facts["identity"]["uid"] == os.geteuid()
    assert facts["processors"]["count"] >= 1
    assert "/" in facts["mountpoints"]
    assert facts["host"]["info"]["os"] == "linux"


# Failures


def test_a_source_that_cannot_be_read_costs_its_own_group_only(record: Record) -> None:
    facts = gather(
        machine=record({"files": DEBIAN | {"/proc/loadavg": "who knows\n"}}), custom_directories=()
    )

    assert "memory" not in facts
    assert "load_averages" not in facts
    assert facts["os"]["release"]["full"] == "12.11"
    assert [str(problem) for problem in facts.problems] == [
        "/proc/meminfo: No such file or directory",
        "facts of load: cannot be interpreted: ValueError(\"could not convert string to float: 'who'\")",
    ]


def test_unreadable_file_is_a_problem_and_no_empty_fact(record: Record) -> None:
    machine = record({"files": {"/sys/class/dmi/id/sys_vendor": "Dell Inc.\n"}})
    # A directory instead of a file cannot be read, even by root.
    os.mkdir(f"{machine.root}/sys/class/dmi/id/product_uuid")
    facts = gather(machine=machine, custom_directories=())

    assert facts["dmi"] == {"manufacturer": "Dell Inc."}
    assert [str(problem) for problem in facts.problems] == ["/sys/class/dmi/id/product_uuid: Is a directory"]


class Stuck(Machine):
    """A machine whose kernel never answers."""

    def uname(self) -> os.uname_result:
        time.sleep(60)
        raise AssertionError("nobody waits for this")


def test_a_group_that_hangs_is_given_up_after_its_time_limit() -> None:
    facts = gather(machine=Stuck(limit=0.2), custom_directories=())

    assert "kernel" not in facts
    assert facts["load_averages"].keys() == {"1m", "5m", "15m"}
    assert [str(problem) for problem in facts.problems] == ["facts of kernel: no answer within 0.2 s"]


class DeadFileServer(Machine):
    """Two mounts of a file server that does not answer, and a working disk."""

    asked = 0

    def need(self, path: str) -> str:
        return "nas:/a /srv/a nfs4 rw 0 0\n/dev/vda1 / ext4 rw 0 0\nnas:/b /srv/b nfs4 rw 0 0\n"

    def sizes(self, path: str) -> os.statvfs_result:
        if path != "/":
            self.asked += 1
            time.sleep(60)
        return os.statvfs("/")


def test_dead_file_server_costs_a_single_timeout() -> None:
    machine = DeadFileServer(limit=0.4)
    mounts = storage.mountpoints(machine)["mountpoints"]

    assert mounts["/srv/a"] == {"device": "nas:/a", "filesystem": "nfs4", "options": ["rw"]}
    assert mounts["/srv/b"] == {"device": "nas:/b", "filesystem": "nfs4", "options": ["rw"]}
    assert mounts["/"]["size_bytes"] > 0
    assert machine.asked == 1
    assert [str(problem) for problem in machine.problems] == [
        "mountpoints /srv/a: no answer within 0.1 s",
        "mountpoints /srv/b: its sizes are not read, because another nfs4 gave no answer",
    ]


class SilentResolver(Machine):
    """A machine whose name servers do not answer, and that may not query its kernel for interfaces."""

    def uname(self) -> os.uname_result:
        return os.uname_result(("Linux", "web1", "6.1", "#1", "x86_64"))

    def hint(self, path: str) -> str:
        return "search example.com\n" if path == "/etc/resolv.conf" else ""

    def canonical_name(self, name: str, seconds: float) -> str | None:
        answer: str | None = within(seconds, time.sleep, 60)
        return answer

    def links(self) -> Any:
        raise PermissionError(13, "Permission denied")


def test_host_name_is_known_without_name_servers() -> None:
    machine = SilentResolver(limit=0.2)

    assert network.networking(machine) == {
        "networking": {"hostname": "web1", "domain": "example.com", "fqdn": "web1.example.com"}
    }
    assert [str(problem) for problem in machine.problems] == [
        "networking: resolving 'web1': no answer within 0.1 s",
        "networking interfaces: Permission denied",
    ]


def test_limited_call_returns_its_value_or_error() -> None:
    assert within(5, max, 1, 2) == 2
    with pytest.raises(ValueError, match="invalid literal"):
        within(5, int, "x")


def test_asking_whether_there_are_facts_gathers_none(record: Record) -> None:
    facts = gather(machine=record({}), custom_directories=())

    assert isinstance(facts, Facts)
    assert facts
    assert facts.problems == []
