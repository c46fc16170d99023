"""Facts in reports: a preview of the fleet needs no list of facts, and names each fact that it lacks."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from puller.delivery.report_document import unpack
from puller.reporting.report import SentReport

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stories import Execute, Host, Publisher

OWNED = "owner: '{{ facts.uid }}', group: '{{ facts.gid }}', mode: '0644'"
MANIFEST = f"""\
data: {{workers: 2}}
hierarchy:
  order: ["host:{{{{ facts.networking.fqdn }}}}", "role:{{{{ lookup('facts.role', 'none') }}}}"]
overrides:
  host:web01.example.com: {{workers: 4}}
  role:none: {{workers: 3}}
resources:
  - file: [{{'{{{{ facts.machine }}}}/conf': {{content: "{{{{ data.workers }}}}", {OWNED}}}}}]
"""


@pytest.fixture
def reports(host: Host, tmp_path: Path) -> Path:
    """Return the directory to which the host sends its reports."""
    place = tmp_path / "reports"
    place.mkdir()
    host.machine.mkdir()
    host.configure(reports={"to": [str(place)]})
    facts = next(host.configuration.parent.rglob("facts.d"))
    (facts / "name.json").write_text(json.dumps({"networking": {"fqdn": "web01.example.com"}}))
    return place


def newest(reports: Path) -> SentReport:
    path = max(reports.rglob("*.json.gz"), key=lambda path: path.stat().st_mtime_ns)
    return msgspec.json.decode(unpack(path.read_bytes()), type=SentReport)


def preview(execute: Execute, reports: Path, old: str, new: str) -> tuple[int, dict[str, Any]]:
    """Import the reports and preview a change of the manifest on the fleet."""
    place = reports.parent / "preview"
    shutil.rmtree(place, ignore_errors=True)
    for name, text in {"old": old, "new": new}.items():
        (place / name).mkdir(parents=True)
        (place / name / "manifest.yaml").write_text(text)
    store = str(place.parent / "fleet.db")
    status, output = execute("fleet", "import", str(reports), "--store", store)
    assert status == 0, output
    words = ("--from", str(place / "old"), "--fleet", store, "--format", "json")
    status, output = execute("preview", str(place / "new"), *words)
    return status, json.loads(output[output.index("{") :])


def test_changed_override_of_a_host_is_previewed(
    host: Host, publisher: Publisher, reports: Path, execute: Execute
) -> None:
    publisher.publish("1.0.0", MANIFEST, files={})
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    status, result = preview(execute, reports, MANIFEST, MANIFEST.replace("workers: 4", "workers: 8"))
    assert status == 2
    assert result["groups"][0]["machines"] == ["web01.example.com"]
    assert result["missing_facts"] == {}
    status, result = preview(execute, reports, MANIFEST, MANIFEST.replace("workers: 3", "workers: 9"))
    assert (status, result["unchanged"], result["missing_facts"]) == (0, ["web01.example.com"], {})


def test_preview_names_machine_and_missing_fact(
    host: Host, publisher: Publisher, reports: Path, execute: Execute
) -> None:
    publisher.publish("1.0.0", MANIFEST, files={})
    host.run()
    new = MANIFEST.replace("host:{{ facts.networking.fqdn }}", "rack:{{ lookup('facts.rack', 'x') }}")
    new = new.replace("host:web01.example.com", "rack:r1")
    _, result = preview(execute, reports, MANIFEST, new)
    assert result["missing_facts"] == {"rack": ["web01.example.com"]}
    new = MANIFEST.replace("{{ data.workers }}", "{{ facts.os | length }}")
    _, result = preview(execute, reports, MANIFEST, new)
    assert result["missing_facts"] == {"os (all of its keys)": ["web01.example.com"]}


def test_failing_preview_that_lists_all_facts_has_a_note(
    host: Host, publisher: Publisher, reports: Path, execute: Execute
) -> None:
    publisher.publish("1.0.0", MANIFEST, files={})
    host.run()
    listing = MANIFEST.replace("{{ data.workers }}", "{{ facts | length }}")
    _, result = preview(execute, reports, MANIFEST, listing)
    assert result["missing_facts"] == {"facts (all of them)": ["web01.example.com"]}
    failing = listing + "  - exec: [{'true': {creates: '{{ facts.rack }}'}}]\n"
    status, result = preview(execute, reports, MANIFEST, failing)
    assert status == 4
    assert result["missing_facts"]["rack"] == ["web01.example.com"]


def test_report_has_the_values_that_bundles_read(host: Host, publisher: Publisher, reports: Path) -> None:
    publisher.publish("1.0.0", MANIFEST, files={})
    host.run()
    sent = newest(reports)
    assert sent.facts["networking"]["fqdn"] == "web01.example.com"
    assert sent.facts["machine"] == str(host.machine)
    assert "interfaces" not in sent.facts["networking"]
    assert "role" in sent.absent_facts
    assert "os.release" in sent.whole_facts


def test_paused_host_sends_the_facts_of_its_last_run(host: Host, publisher: Publisher, reports: Path) -> None:
    publisher.publish("1.0.0", MANIFEST, files={})
    host.run()
    before = newest(reports)
    host.puller("disable", "--reason", "work")
    host.run()
    sent = newest(reports)
    assert sent.report.paused
    assert (sent.facts, sent.absent_facts) == (before.facts, before.absent_facts)
    host.puller("enable")
    publisher.publish("1.1.0", "resources: []\n", files={})
    host.run()
    host.run()  # the first run also reads the previous version
    assert "machine" not in newest(reports).facts


def test_used_facts_can_be_left_out(host: Host, publisher: Publisher, reports: Path) -> None:
    host.configure(reports={"to": [str(reports)], "facts": ["os.family"], "used_facts": False})
    publisher.publish("1.0.0", MANIFEST, files={})
    host.run()
    assert [*newest(reports).facts] == ["os"]
    assert not (host.state / "used-facts.json").exists()


def test_facts_of_a_bundle_are_sent(host: Host, publisher: Publisher, reports: Path) -> None:
    manifest = "resources:\n  - file: [{'{{ facts.machine }}/x': {content: '{{ facts.rack.row }}', " + OWNED
    publisher.publish("1.0.0", manifest + "}}]\n", files={"facts.d/rack.yaml": b"{row: 3, unused: 4}\n"})
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    sent = newest(reports)
    assert sent.facts["rack"] == {"row": 3}
    assert "rack" not in sent.absent_facts
