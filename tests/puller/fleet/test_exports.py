"""Exports: collected from untrusted hosts, and written for hosts that trust them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from hiera.document.document import Document
from puller.fleet.host_document import as_targets, collect, is_suspicious
from puller.reporting.report import PublishedBundle
from puller.values.export_types import LARGEST, MOST, ExportType, parse_exports
from tests.puller.fleet.conftest import imported
from tests.simulators import fleet
from tests.support.rows import each_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from puller.fleet.store.database import Store
    from puller.reporting.report import SentReport
    from puller.values.export_types import Export
    from tests.support.stories import Execute, Publisher

EXPORTS = {
    "address": {"value": "{{ facts.x }}", "type": "ip"},
    "port": {"value": 1, "type": "port"},
    "tags": {"value": [], "type": ["text"]},
}
GOOD = {"address": "192.0.2.1", "port": 80, "tags": ["a", "b"]}


def declared() -> dict[str, Export]:
    exports, wrong = parse_exports(EXPORTS)
    assert not wrong
    return exports


def standing(values: Mapping[str, Any], version: str = "1.0.0") -> PublishedBundle:
    return PublishedBundle(name="web", enforced=version, exports=dict(values))


def left_out(values: Mapping[str, Any]) -> str:
    """Return the reason to leave out a host with these values. The other host is kept."""
    result = collect("web", [("bad", standing(values)), ("good", standing(GOOD))], lambda _: declared())
    assert list(result.values) == ["good"]
    assert list(result.left_out) == ["bad"]
    assert result.left_out["bad"].isprintable()
    assert len(result.left_out["bad"]) < 300
    return result.left_out["bad"]


def test_declared_exports_are_collected_by_host() -> None:
    both = [("b", standing(GOOD)), ("a", standing(GOOD | {"port": 81}))]
    result = collect("web", both, lambda _: declared())
    assert list(result.values) == ["a", "b"]
    assert result.values["b"] == GOOD
    assert not result.left_out


def test_hosts_without_exports_are_not_named() -> None:
    result = collect("web", [("a", standing({}, "")), ("b", standing({}))], lambda _: {})
    assert not result.values
    assert not result.left_out


def test_host_is_checked_against_its_own_version() -> None:
    def types(version: str) -> Mapping[str, Export]:
        return declared() if version == "2.0.0" else {"address": declared()["address"]}

    old, new = standing({"address": "192.0.2.9"}, "1.0.0"), standing(GOOD, "2.0.0")
    result = collect("web", [("old", old), ("new", new)], types)
    assert set(result.values) == {"old", "new"}


@pytest.mark.attack("exports.undeclared")
def test_undeclared_export_excludes_the_host() -> None:
    assert left_out(GOOD | {"more": 1}) == "exports 'more', which its version does not declare"
    assert "\\x1b" in left_out(GOOD | {"\x1b[2J": 1})


def test_a_value_that_is_missing_leaves_a_host_out() -> None:
    assert left_out({"address": "192.0.2.1", "tags": []}) == "does not export port"


@pytest.mark.attack("exports.type")
@pytest.mark.parametrize(
    "wrong",
    [
        {"address": "192.0.2.1; rm -rf /"},
        {"address": "fe80::1%eth0"},
        {"address": 3221225985},
        {"port": True},
        {"port": 0},
        {"port": 65536},
        {"port": "80"},
        {"port": [80]},
        {"tags": "a"},
        {"tags": [1]},
        {"tags": ["x"] * 65},
    ],
)
def test_a_value_of_another_type_leaves_a_host_out(wrong: dict[str, Any]) -> None:
    assert f"exports {next(iter(wrong))}, which" in left_out(GOOD | wrong)


@pytest.mark.attack("exports.expression")
@pytest.mark.parametrize("text", ["{{ facts }}", "a{{", "{% if x %}", "{# x", "${x}", "%{x}", "{{{{"])
def test_export_with_an_expression_excludes_the_host(text: str) -> None:
    assert "would start an expression" in left_out(GOOD | {"tags": ["fine", text]})


@pytest.mark.attack("exports.control")
@pytest.mark.parametrize("text", ["a\nb", "\x1b[31m", "\x00", "a\u2028b", "\u202e", "\t", "\x7f"])
def test_control_characters_leave_a_host_out(text: str) -> None:
    assert left_out(GOOD | {"tags": [text]})


@pytest.mark.attack("exports.large")
def test_oversized_export_excludes_the_host() -> None:
    assert "at most 1024" in left_out(GOOD | {"tags": ["x" * 1025]})
    assert "at most 8192" in left_out(GOOD | {"tags": ["x" * 1000] * 9})
    assert f"at most {MOST}" in left_out({f"n{number}": 1 for number in range(MOST + 1)})
    assert LARGEST == 8192


@each_row(
    ("word", "good", "bad"),
    [
        ("text", ["", "ssh-ed25519 AAAA", "ü"], [1, None, True, ["a"], {}]),
        ("integer", [0, -5, 2**53 - 1], [True, 2**53, "1", 1.5]),
        ("boolean", [True, False], [0, "true"]),
        ("ip", ["::1", "10.0.0.1"], ["", "10.0.0", "10.0.0.1/8", "010.0.0.1"]),
        ("ipv4", ["10.0.0.1"], ["::1"]),
        ("ipv6", ["2001:db8::1"], ["10.0.0.1"]),
        (
            "hostname",
            ["a", "web-1.example.com"],
            ["", "-x", "a_b", "a b", "a..b", "x." * 127 + "y", "a\n", "a-"],
        ),
        ("port", [1, 65535], [0, -1]),
    ],
)
def test_types(word: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert ExportType.parse(word).problem(value) == "", value
        assert ExportType.parse([word]).problem([value, value]) == "", value
    for value in bad:
        assert ExportType.parse(word).problem(value), value
        assert ExportType.parse([word]).problem([good[0], value]), value


def test_targets_of_prometheus() -> None:
    six = GOOD | {"address": "2001:db8::1"}
    result = collect("web", [("a", standing(GOOD)), ("b", standing(six))], lambda _: declared())
    first, second = as_targets([result], "address", "port").groups
    assert first == {
        "targets": ["192.0.2.1:80"],
        "labels": {"puller_host": "a", "puller_bundle": "web", "puller_tags": "a,b"},
    }
    assert second["targets"] == ["[2001:db8::1]:80"]
    assert as_targets([result], "address", "").groups[1]["targets"] == ["2001:db8::1"]
    nothing = as_targets([result], "nothing", "port")
    assert nothing.groups == []
    assert set(nothing.left_out.values()) == {"does not export nothing"}


@pytest.mark.parametrize(
    ("before", "now", "expected"), [(0, 0, False), (1, 0, True), (2, 1, False), (3, 1, True)]
)
def test_many_hosts_that_are_gone_at_once_are_suspicious(before: int, now: int, expected: bool) -> None:
    assert is_suspicious(before, now) is expected


# --- the command --------------------------------------------------------------------------------------------

MANIFEST = "exports: {address: {value: 192.0.2.1, type: ip}, note: '{{ facts.x }}'}\nresources: []\n"


def sent(host: str, minutes: float = 0, **given: Any) -> SentReport:
    exports = given.pop("exports", {"address": "192.0.2.1", "note": host})
    version = given.pop("version", "1.0.0")
    report = fleet.sent(host, fleet.now() - timedelta(minutes=minutes), version, **given)
    return msgspec.structs.replace(
        report, bundles=[msgspec.structs.replace(report.bundles[0], exports=exports)]
    )


class Fleet:
    def __init__(self, location: str, store: Store, place: Path, site: Path, execute: Execute) -> None:
        self.location, self.store, self.place, self.site, self.execute = location, store, place, site, execute
        self.file = place.parent / "exports.yaml"

    def arrive(self, *documents: SentReport) -> None:
        fleet.deliver(self.place, documents)
        imported(self.store, self.place)

    def exports(self, *options: str, status: int = 0) -> str:
        words = ("--store", self.location, "--bundle", "web", "--site", str(self.site), *options)
        ended, output = self.execute("fleet", "exports", *words)
        assert ended == status, output
        return output

    def written(self, *options: str) -> dict[str, Any]:
        self.exports("--to", str(self.file), *options)
        resolved = Document.parse(self.file.read_text(), "exports").resolve({}, {})
        result: dict[str, Any] = dict(resolved.data["exports"]["web"])
        return result


@pytest.fixture
def scene(location: str, store: Store, place: Path, publisher: Publisher, execute: Execute) -> Fleet:
    publisher.publish("1.0.0", MANIFEST, files={})
    return Fleet(location, store, place, publisher.site.directory, execute)


def test_targets_without_their_exports_are_an_error(scene: Fleet) -> None:
    scene.arrive(sent("b"), sent("a"))
    targets = ("--format", "file_sd", "--to", str(scene.file))
    output = scene.exports(*targets, status=64)
    assert "no host exports address and port. The hosts export address, note" in output
    assert not scene.file.exists()
    assert "2 hosts" in scene.exports(*targets, "--target", "address")
    assert len(yaml.safe_load(scene.file.read_text())) == 2


def test_export_file_is_replaced_only_when_it_changes(scene: Fleet) -> None:
    scene.arrive(sent("b", 2), sent("a", 1))
    assert list(scene.written()) == ["a", "b"]
    before = scene.file.stat()
    assert "2 hosts, as before" in scene.exports("--to", str(scene.file))
    scene.arrive(sent("a"))
    assert "as before" in scene.exports("--to", str(scene.file))
    assert scene.file.stat().st_ino == before.st_ino
    scene.arrive(sent("a", -1, exports={"address": "::1", "note": "x"}))
    assert scene.written()["a"]["address"] == "::1"
    assert scene.file.stat().st_ino != before.st_ino


def test_hosts_are_chosen_by_how_they_are_and_by_facts(scene: Fleet) -> None:
    fine, failed, silent = sent("fine"), sent("failed", failed={"exec#x": "no"}), sent("silent", 300)
    scene.arrive(fine, failed, silent)
    assert set(scene.written()) == {"fine", "failed", "silent"}
    assert set(scene.written("--in-order", "--force")) == {"fine"}
    assert set(scene.written("--in-order", "--silent-after", "10h")) == {"fine", "silent"}
    paused = {"paused": "disabled by an operator"}
    scene.arrive(*(sent(host, -1, **paused) for host in ("fine", "failed", "new")))
    assert set(scene.written("--in-order", "--force")) == {"fine"}, "a pause mends nothing"
    family = fleet.facts_of("fine")["os"]["family"]
    assert "fine" in scene.written("--where", f"os.family={family}")
    scene.exports("--where", "os.family=none", "--to", str(scene.file), status=20)


@pytest.mark.attack("exports.silence")
def test_a_file_is_not_emptied_because_reports_do_not_arrive(scene: Fleet) -> None:
    scene.arrive(*(sent(f"h{number}") for number in range(4)))
    assert len(scene.written("--in-order")) == 4
    before = scene.file.read_text()
    output = scene.exports("--in-order", "--silent-after", "0.001s", "--to", str(scene.file), status=20)
    assert "0 hosts are left of 4, and it stays as it is. --force writes it all the same" in output
    assert scene.file.read_text() == before
    assert scene.written("--in-order", "--silent-after", "0.001s", "--force") == {}


@pytest.mark.attack("exports.version")
@pytest.mark.parametrize("version", ["9.9.9", "../../etc", "1.0.0\x1b[2J", "x" * 500])
def test_a_version_that_was_never_published_leaves_a_host_out(scene: Fleet, version: str) -> None:
    scene.arrive(sent("good"), sent("bad", version=version))
    output = scene.exports()
    assert "bad: left out of the exports of web: runs version" in output
    assert "\x1b" not in output
    assert "good:" in output


def test_values_are_the_same_after_yaml_and_the_resolver(scene: Fleet) -> None:
    """Test values that YAML could read as another type: booleans, numbers, nulls, tags, anchors, comments, keys."""
    texts = [
        "yes",
        "0x10",
        "1_000",
        "null",
        "~",
        "!tag x",
        "&a",
        "*a",
        "- x",
        "a: b",
        "# x",
        "'",
        '"',
        "12:30",
    ]
    texts += [
        "<<",
        "=",
        "é\xa0x",
        "%x",
        "@require",
        "'{'",
        "2001-01-01",
        " x ",
        "\U0001d400 \U0001f600",
        "|",
        ">",
        "a #b",
        "\\",
        "[1]",
    ]
    texts = [text for text in texts if text.isprintable()]
    scene.arrive(
        *(sent(f"h{number}", exports={"address": "::1", "note": text}) for number, text in enumerate(texts))
    )
    result = scene.written()
    assert {int(host[1:]): values["note"] for host, values in result.items()} == dict(enumerate(texts))
    assert yaml.safe_load(scene.exports("--format", "json")) == {"data": {"exports": {"web": result}}}


@pytest.mark.attack("exports.name")
def test_report_in_a_foreign_host_directory_exports_nothing(scene: Fleet) -> None:
    scene.arrive(sent("victim"))
    lie = sent("evil", exports={"address": "203.0.113.1", "note": "x"})
    (path,) = fleet.deliver(scene.place, [lie])
    os.rename(path, scene.place / "victim" / "zzz.json.gz")
    imported(scene.store, scene.place)
    assert scene.written()["victim"]["address"] == "192.0.2.1"


@pytest.mark.attack("exports.control", "exports.type")
def test_report_with_invalid_exports_is_refused(scene: Fleet) -> None:
    for number, exports in enumerate([{"address": {"a": 1}}, {"address": 1.5}, {"address": None}, ["x"]]):
        document = json.loads(fleet.json_of(sent(f"h{number}")))
        document["bundles"][0]["exports"] = exports
        (scene.place / f"h{number}").mkdir()
        (scene.place / f"h{number}" / "1.json").write_text(json.dumps(document))
    scene.arrive(sent("good"))
    assert list(scene.written()) == ["good"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--target", ""), "expected the name of an export"),
        (("--site", "/nowhere"), "is not a site"),
        (("--where", "x"), "--where"),
        (("--to", "/nowhere/x"), "cannot be written"),
    ],
)
def test_bad_input_is_told(scene: Fleet, options: tuple[str, ...], said: str) -> None:
    scene.arrive(sent("a"))
    words = ("--store", scene.location, "--bundle", "web", "--site", str(scene.site), *options)
    status, output = scene.execute("fleet", "exports", *words)
    assert status in (13, 64), output
    assert said in output
    assert "Traceback" not in output


@pytest.mark.everything
def test_a_reader_that_goes_away_is_no_bug(scene: Fleet) -> None:
    scene.arrive(*(sent(f"h{number}") for number in range(50)))
    words = ["--store", scene.location, "--bundle", "web", "--site", str(scene.site)]
    command = [sys.executable, "-m", "puller", "fleet", "exports", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
