"""Exports of a host: resolved in runs, stored, and sent with each report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from puller.delivery.report_document import unpack
from puller.reporting.report import SentReport

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stories import Host, Publisher

EXPORTS = """\
data: {port: 80, list: [a, b]}
exports:
  name: "{{ facts.machine }}"
  port: {value: "{{ data.port }}", type: port}
  list: {value: "{{ data.list }}", type: [text]}
resources:
  - file:
      - "{{ facts.machine }}": {ensure: directory, owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0755"}
"""


@pytest.fixture
def arrived(host: Host, tmp_path: Path) -> Path:
    """Return the directory to which the host sends its reports."""
    (tmp_path / "reports").mkdir()
    host.configure(reports={"to": [str(tmp_path / "reports")]})
    return tmp_path / "reports"


def exported(arrived: Path, bundle: str = "web") -> dict[str, Any]:
    """Return the exports of a bundle in the newest report."""
    newest = max(arrived.rglob("*.json.gz"), key=lambda path: path.stat().st_mtime_ns)
    sent = msgspec.json.decode(unpack(newest.read_bytes()), type=SentReport)
    (result,) = (one.exports for one in sent.bundles if one.name == bundle)
    return dict(result)


def test_values_follow_data_through_releases_and_back(
    host: Host, publisher: Publisher, arrived: Path
) -> None:
    for version, port in (("1.0.0", 80), ("2.0.0", 81), ("3.0.0", 80)):
        publisher.publish(version, EXPORTS.replace("port: 80", f"port: {port}"), files={})
        for _ in range(2):
            assert host.run().status == 0
            assert exported(arrived) == {"name": str(host.machine), "port": port, "list": ["a", "b"]}
    publisher.publish("5.0.0", "resources: []\n", files={})
    assert host.run().status == 0
    assert exported(arrived) == {}
    assert not (host.state / "exports.json").exists()


def test_host_without_a_run_keeps_its_exports(host: Host, publisher: Publisher, arrived: Path) -> None:
    publisher.publish("1.0.0", EXPORTS, files={})
    assert host.run().status == 0
    before = exported(arrived)
    host.puller("disable", "--reason", "a test")
    publisher.publish("2.0.0", EXPORTS.replace("port: 80", "port: 81"), files={})
    assert host.run().status == 20
    assert exported(arrived) == before
    host.puller("enable")
    assert host.run().status == 0
    assert exported(arrived)["port"] == 81


def test_a_release_that_is_rejected_changes_no_export(
    host: Host, publisher: Publisher, arrived: Path
) -> None:
    publisher.publish("1.0.0", EXPORTS, files={})
    assert host.run().status == 0
    publisher.publish(
        "2.0.0", EXPORTS.replace("port: 80", "port: 81").replace("ensure:", "ensures:"), files={}
    )
    assert host.run().status == 13
    assert exported(arrived)["port"] == 80


def test_noop_and_a_bundle_that_is_configured_no_more(
    host: Host, publisher: Publisher, arrived: Path
) -> None:
    publisher.publish("1.0.0", EXPORTS, files={})
    publisher.publish("1.0.0", EXPORTS.replace("port: 80", "port: 90"), name="other", files={})
    assert host.run("--noop").status == 0
    assert not (host.state / "exports.json").exists()
    host.configure(bundles=[{"name": "web"}, {"name": "other"}])
    assert host.run().status == 0
    assert exported(arrived, "other")["port"] == 90
    host.configure(bundles=[{"name": "web"}])
    assert host.run().status == 0
    assert "other" not in (host.state / "exports.json").read_text()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("'{{ facts.nothing.here }}'", "is unavailable on this host"),
        ("{value: '{{ data.port }}', type: boolean}", "is 80, expected true or false"),
        ("{value: 'x', type: port}", "is 'x', expected a port"),
        ('"a\\nb"', "expected one line without control characters"),
    ],
)
def test_invalid_export_is_reported_and_others_are_sent(
    host: Host, publisher: Publisher, arrived: Path, written: str, said: str
) -> None:
    text = EXPORTS.replace('name: "{{ facts.machine }}"', f"name: {written}")
    publisher.publish("1.0.0", text, files={})
    for _ in range(2):
        outcome = host.run()
        assert outcome.status == 4, outcome
        host.assert_told("exports.name ", outcome)
        host.assert_told(said, outcome)
        assert exported(arrived) == {"port": 80, "list": ["a", "b"]}
        assert host.machine.is_dir()


@pytest.mark.attack("exports.secret")
def test_a_secret_is_not_exported(host: Host, publisher: Publisher, arrived: Path) -> None:
    text = EXPORTS.replace(
        "data: {port: 80, list: [a, b]}", "data:\n  port: 80\n  list: [a]\n  # @sensitive\n  key: CANARY"
    )
    text = text.replace('name: "{{ facts.machine }}"', "name: 'x {{ data.key }}'")
    publisher.publish("1.0.0", text, files={})
    outcome = host.run()
    assert outcome.status == 4
    host.assert_told("exports.name is a secret, which is never", outcome)
    assert "CANARY" not in outcome.output
    assert "name" not in exported(arrived)
    for path in (*arrived.rglob("*.gz"), host.state / "exports.json"):
        data = path.read_bytes()
        assert b"CANARY" not in (unpack(data) if path.suffix == ".gz" else data)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[a]", "exports is .'a'., expected a mapping"),
        ("{Bad: x}", "exports has 'Bad', expected a name"),
        ("{a: {value: x, typ: ip}}", "exports.a has unknown key 'typ' .did you mean 'type'"),
        ("{a: {type: ip}}", "exports.a has no value"),
        ("{a: {value: x, type: prt}}", "exports.a: type is 'prt' .did you mean 'port'"),
        ("{a: {value: x, type: [ip, ip]}}", "exports.a: type is "),
        ("{" + ", ".join(f"n{number}: x" for number in range(33)) + "}", "exports has 33 names, at most 32"),
    ],
)
@pytest.mark.representatives(5)
def test_invalid_export_declaration_refuses_the_manifest(
    host: Host, publisher: Publisher, written: str, said: str
) -> None:
    publisher.publish("1.0.0", f"exports: {written}\nresources: []\n", files={})
    outcome = host.run()
    assert outcome.status in (13, 15), outcome
    host.assert_told(rf"web-1.0.0/manifest.yaml:1: {said}", outcome)


def test_a_child_manifest_says_that_it_exports_nothing(
    host: Host, publisher: Publisher, arrived: Path
) -> None:
    child = b"exports: {a: x}\nresources: []\n"
    publisher.publish(
        "1.0.0", "resources:\n  - apply:\n      - child.yaml: {}\n", files={"child.yaml": child}
    )
    outcome = host.run()
    assert outcome.status == 0
    assert "child.yaml:1: exports has no effect in a child manifest" in outcome.output
    assert exported(arrived) == {}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"web": 1}'])
def test_damaged_export_state_is_repaired(
    host: Host, publisher: Publisher, arrived: Path, damage: bytes
) -> None:
    publisher.publish("1.0.0", EXPORTS, files={})
    assert host.run().status == 0
    (host.state / "exports.json").write_bytes(damage)
    outcome = host.run()
    assert outcome.status == 0
    assert "exports.json: " in outcome.output
    assert exported(arrived)["port"] == 80
    assert host.run().status == 0


def test_oversized_exports_are_omitted_completely() -> None:
    from puller.delivery.report_document import pack
    from puller.reporting.report import PublishedBundle
    from tests.simulators import fleet

    sent = fleet.sent("a", fleet.now())
    many = [PublishedBundle(name=f"b{n}", exports={"x": "y" * 900}) for n in range(2000)]
    packed = msgspec.json.decode(unpack(pack(msgspec.structs.replace(sent, bundles=many))), type=SentReport)
    assert all(not bundle.exports for bundle in packed.bundles)
    assert "exports" in packed.left_out
