"""The types for nftables of ``examples/types``, with the real nft and kernel in a network namespace of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.site_types.conftest import ROOT, MakeSite, SiteTypes

pytestmark = [pytest.mark.root, pytest.mark.nftables]

TABLE: dict[str, object] = {"nft_table": ["inet site"]}
INPUT: dict[str, object] = {"nft_chain": [{"inet site input": {"hook": "input", "policy": "drop"}}]}
ADMINS: dict[str, object] = {
    "nft_set": [
        {"inet site admins": {"type": "ipv4_addr", "flags": ["interval"], "elements": ["192.0.2.0/24"]}}
    ]
}


def rule(name: str, text: str, **more: Any) -> dict[str, object]:
    return {"nft_rule": [{name: {"chain": "inet site input", "rule": text, **more}}]}


SSH = rule("ssh", "tcp dport 22 ip saddr @admins accept", order=20)
STATE = rule("state", "ct state established,related accept", order=10)
WEB = rule("web", "tcp dport { 80, 443 } counter accept")
ALL = (TABLE, INPUT, ADMINS, SSH, STATE, WEB)


class Namespace:
    """A network namespace, which lives as long as its process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.before = ("nsenter", f"--net=/proc/{process.pid}/ns/net", "--")

    def nft(self, *arguments: str, text: str = "") -> str:
        command = [*self.before, "nft", *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    def rules(self) -> list[str]:
        """Return the lines of the chain ``input``."""
        listing = self.nft("-s", "list", "chain", "inet", "site", "input")
        return [line.strip() for line in listing.splitlines()[2:-2]]


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    command = ["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield Namespace(process)
        process.kill()


@pytest.fixture
def site(make_site: MakeSite, namespace: Namespace, tmp_path: Path) -> SiteTypes:
    return make_site(namespace.before, {'"/etc/nftables.d"': repr(str(tmp_path / "nftables.d"))})


def file_of(site: SiteTypes) -> Path:
    return site.directory / "nftables.d/inet-site.nft"


def test_rules_of_several_resources_become_one_table(site: SiteTypes, namespace: Namespace) -> None:
    site.converge(*ALL)
    assert namespace.rules() == [
        "type filter hook input priority filter; policy drop;",
        "ct state established,related accept",
        "tcp dport 22 ip saddr @admins accept",
        "tcp dport { 80, 443 } counter accept",
    ]
    before = namespace.nft("-s", "list", "ruleset")
    namespace.nft("flush", "ruleset")
    namespace.nft("-f", str(file_of(site)))  # as at boot
    assert namespace.nft("-s", "list", "ruleset") == before


def test_example_opens_the_ports_of_two_bundles(site: SiteTypes, namespace: Namespace) -> None:
    texts = [(ROOT / name).read_text() for name in ("firewall.yaml", "web.yaml")]
    first, second = (yaml.safe_load(text)["resources"] for text in texts)
    filters = [entry for entry in first if next(iter(entry)).startswith("nft_")]
    assert len(filters) == 4
    site.converge(*filters, *second)
    assert namespace.rules()[1:] == [
        "ct state established,related accept",
        'iif "lo" accept',
        "tcp dport 22 ip saddr @admins accept",
        "tcp dport { 80, 443 } accept",
    ]
    assert site.run("lint", str(ROOT / "firewall.yaml")) == 0, site.output


def test_changes_by_hand_are_found_and_undone(site: SiteTypes, namespace: Namespace) -> None:
    site.converge(*ALL)
    expected = namespace.rules()
    namespace.nft("add", "rule", "inet", "site", "input", "tcp", "dport", "23", "accept")
    namespace.nft("add", "element", "inet", "site", "admins", "{ 198.51.100.7 }")
    assert site.apply(*ALL, noop=True) == 0
    assert "-\t\ttcp dport 23 accept" in site.output
    assert "Would have loaded the table inet site" in site.output
    assert len(namespace.rules()) == len(expected) + 1
    site.converge(*ALL)
    assert namespace.rules() == expected
    assert "198.51.100.7" not in namespace.nft("list", "table", "inet", "site")


def test_other_tables_stay(site: SiteTypes, namespace: Namespace) -> None:
    namespace.nft("-f", "-", text="table ip docker { chain forward { counter accept; }; }")
    site.converge(*ALL)
    site.converge({"nft_table": [{"inet site": {"ensure": "absent"}}]})
    assert namespace.nft("list", "tables") == "table ip docker\n"
    assert not file_of(site).exists()


def test_rule_that_leaves_its_bundle_is_removed(site: SiteTypes, namespace: Namespace) -> None:
    site.converge(*ALL)
    site.converge(TABLE, INPUT, ADMINS, SSH, STATE, rule("web", "", ensure="absent"))
    assert not [line for line in namespace.rules() if "80" in line]
    site.converge(TABLE, INPUT)
    assert len(namespace.rules()) == 1


@pytest.mark.parametrize("noop", [True, False])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (rule("bad", "tcp dport teapot accept"), "nft_rule#bad: nft rejects 'tcp dport teapot accept'"),
        (rule("bad", "ip saddr @missing accept"), "nft_rule#bad: nft rejects 'ip saddr @missing accept'"),
        (rule("bad", "include"), "nft_rule#bad: nft rejects"),
        (
            {"nft_set": [{"inet site x": {"type": "ipv4_addr", "elements": ["teapot.invalid"]}}]},
            "nft_set#inet site x: nft rejects",
        ),
        (
            {"nft_rule": [{"bad": {"chain": "inet site output", "rule": "accept"}}]},
            "nft_rule#bad: chain 'inet site output' is not declared",
        ),
    ],
)
@pytest.mark.sample(4)
def test_rejected_rule_leaves_the_running_rules(
    site: SiteTypes, namespace: Namespace, wrong: dict[str, object], message: str, noop: bool
) -> None:
    site.converge(*ALL)
    before, text = namespace.nft("list", "ruleset"), file_of(site).read_text()
    assert site.apply(*ALL, wrong, noop=noop) == 4
    assert message in site.output, site.output
    assert (namespace.nft("list", "ruleset"), file_of(site).read_text()) == (before, text)


def test_table_with_elements_from_packets_is_stable(site: SiteTypes, namespace: Namespace) -> None:
    properties = {"type": "ipv4_addr", "flags": ["dynamic", "timeout"], "timeout": "1h"}
    seen: dict[str, object] = {"nft_set": [{"inet site seen": properties}]}
    resources = (TABLE, INPUT, seen)
    site.converge(*resources)
    namespace.nft("add", "element", "inet", "site", "seen", "{ 192.0.2.1 }")
    assert site.apply(*resources) == 0
    assert " 0 changed" in site.output, site.output
    assert "192.0.2.1" in namespace.nft("list", "table", "inet", "site")


def test_content_is_the_whole_table(site: SiteTypes, namespace: Namespace) -> None:
    content = "chain input { type filter hook input priority 0; policy accept; tcp dport 22 accept; }"
    site.converge({"nft_table": [{"inet site": {"content": content}}]})
    assert namespace.rules()[1:] == ["tcp dport 22 accept"]


def test_run_that_is_killed_is_finished_by_the_next(site: SiteTypes, namespace: Namespace) -> None:
    site.converge(*ALL)
    file_of(site).unlink()  # killed after the kernel was changed
    site.converge(*ALL)
    assert file_of(site).exists()
    namespace.nft("flush", "ruleset")  # a boot without the service
    site.converge(*ALL)
    assert len(namespace.rules()) == 4


def test_rule_without_a_table_names_the_missing_table(site: SiteTypes) -> None:
    assert site.apply(INPUT, SSH) == 13
    assert "is a part of nft_table#inet site, which is not declared" in site.output, site.output
    assert "declare the nft_table, in this bundle or an earlier one" in site.output
    assert site.apply({"nft_table": [{"inet site": {"content": ""}}]}, INPUT) == 13
    assert "which has no parts" in site.output


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ({"nft_table": ["inet"]}, "name is 'inet', expected a family"),
        ({"nft_table": ["inet ../x"]}, "name is 'inet ../x', expected a family"),
        ({"nft_table": [{"inet site": {"ensure": "gone"}}]}, "ensure is 'gone'"),
        ({"nft_chain": ["inet site"]}, "expected family, table and name"),
        ({"nft_chain": [{"inet site x": {"hook": "input; }"}}]}, "hook is 'input; }'"),
        ({"nft_chain": [{"inet site x": {"policy": "drop"}}]}, "hook is missing"),
        ({"nft_chain": [{"inet site x": {"hook": "input", "policy": "maybe"}}]}, "policy is 'maybe'"),
        ({"nft_chain": [{"inet site x": {"hook": "input", "priority": "0; drop"}}]}, "priority is '0; drop'"),
        ({"nft_set": ["inet site x"]}, "type is missing"),
        ({"nft_set": [{"inet site x": {"type": "a; b"}}]}, "type is 'a; b'"),
        ({"nft_set": [{"inet site x": {"type": "mark", "elements": ["1 }"]}}]}, "elements has '1 }'"),
        (rule("x", ""), "rule is missing"),
        (rule("x", "accept\ndrop"), "expected one rule on one line"),
        (rule("x", "accept; drop"), "expected one rule on one line"),
        (rule("x", "accept } chain y { accept"), "expected one rule on one line"),
        (rule("x", "accept # all"), "expected one rule on one line"),
        (rule("x", 'log prefix "open'), "expected one rule on one line"),
    ],
)
@pytest.mark.representatives(4)
def test_invalid_values_are_errors_of_the_manifest(
    site: SiteTypes, resource: dict[str, object], message: str
) -> None:
    assert site.apply(TABLE, resource) == 13
    assert message in site.output, site.output
