"""Metrics of a host, parsed by the reference parser of Prometheus' Python client."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from puller.reporting import monitoring
from puller.reporting.report import (
    BundleReport,
    Event,
    HoldReason,
    PublishedBundle,
    Report,
    RestlessResource,
    SentReport,
    State,
    Summary,
)
from puller.values.foreign_text import visible
from puller.values.maintenance import PendingReboot

PAGE = Path(__file__).parents[3] / "docs/monitoring.md"
FINISHED = 1795190401.5

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def sent(**fields: Any) -> SentReport:
    events = [
        Event(type="file", name="/a", state=State.STABLE),
        Event(type="file", name="/b", state=State.CHANGED),
        Event(type="exec", name="c", state=State.FAILED),
        Event(type="exec", name="d", state=State.WOULD_CHANGE),
    ]
    bundle = BundleReport(
        name="web",
        version="1.4.0",
        held="web 1.5.0 is quarantined: <b>why</b>",
        held_because=HoldReason.QUARANTINE,
        summary=Summary.of(events, 0.5),
        events=events,
    )
    report = Report(
        run="20261120T160000.000000Z",
        started="2026-11-20T16:00:00+00:00",
        finished="2026-11-20T16:00:01.500+00:00",
        host="a",
        puller="1",
        exit_status=6,
        bundles=[bundle],
        phases={"refresh": 0.25, "apply": 1.0},
        last_good="2026-11-20T15:30:00+00:00",
        reboots=[
            PendingReboot(resource="reboot#kernel", reasons=["a kernel"], since="2026-11-20T12:00:00+00:00")
        ],
    )
    published = PublishedBundle(
        name="web", enforced="1.4.0", enforced_since="2026-11-19T00:00:00+00:00", quarantined=["1.5.0"]
    )
    document = SentReport(
        host="a",
        sent=report.finished,
        metadata_expire="2026-11-21T16:00:00+00:00",
        bundles=[published],
        restless=[RestlessResource(bundle="web", reference="file#/b", runs=5, changes=4)],
        report=report,
    )
    return msgspec.structs.replace(document, **fields)


def parsed(text: str) -> Samples:
    """Return all samples by name and labels. Each family must have help and type, and each sample must be unique."""
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type == "gauge"
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples
            samples[key] = sample.value
    return samples


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((f"puller_{name}", frozenset(labels.items())))


def test_bundle_is_on_trial_until_it_is_good() -> None:
    (bundle,) = sent().bundles
    for good, expected in (("1.3.0", 1), (bundle.enforced, 0)):
        samples = parsed(monitoring.metrics_text(sent(bundles=[msgspec.structs.replace(bundle, good=good)])))
        assert value(samples, "bundle_on_trial", bundle=bundle.name) == expected


def test_metrics_describe_run_and_host() -> None:
    samples = parsed(monitoring.metrics_text(sent()))
    assert value(samples, "last_run_timestamp_seconds") == pytest.approx(FINISHED, abs=1e9)
    assert value(samples, "last_run_duration_seconds") == 1.5
    assert value(samples, "last_run_phase_duration_seconds", phase="refresh") == 0.25
    assert value(samples, "last_run_exit_status") == 6
    assert value(samples, "last_run_problems") == 0
    assert value(samples, "last_run_applied") == 1
    assert value(samples, "bundle_info", bundle="web", version="1.4.0") == 1
    assert value(samples, "bundle_quarantined", bundle="web") == 1
    assert value(samples, "bundle_given_up", bundle="web") == 0
    assert value(samples, "bundle_on_trial", bundle="web") == 1
    assert value(samples, "restless_resources") == 1
    assert value(samples, "restless_resource_changes", bundle="web", resource="file#/b") == 4


def test_times_are_those_of_the_events_in_seconds() -> None:
    samples = parsed(monitoring.metrics_text(sent()))
    last = value(samples, "last_run_timestamp_seconds")
    assert last is not None
    ago = {
        name: last - (value(samples, f"{name}_timestamp_seconds", **labels) or 0)
        for name, labels in (
            ("last_good_run", {}),
            ("metadata_expiry", {}),
            ("bundle_enforced_since", {"bundle": "web"}),
        )
    }
    assert ago == {"last_good_run": 1801.5, "metadata_expiry": -86398.5, "bundle_enforced_since": 144001.5}


def test_every_state_and_used_type_has_a_count() -> None:
    samples = parsed(monitoring.metrics_text(sent()))
    states = {"stable": 1, "changed": 1, "refreshed": 0, "failed": 1, "skipped": 0, "would_change": 1}
    assert {state: value(samples, "resources", bundle="web", state=state) for state in states} == states
    by_type = {labels: count for (name, labels), count in samples.items() if name.endswith("_by_type")}
    assert {(dict(labels)["type"], dict(labels)["state"]): count for labels, count in by_type.items()} == {
        ("file", "stable"): 1,
        ("file", "changed"): 1,
        ("exec", "failed"): 1,
        ("exec", "would_change"): 1,
    }


def test_hold_reason_comes_from_a_fixed_set() -> None:
    text = monitoring.metrics_text(sent())
    held = {reason: value(parsed(text), "bundle_held", bundle="web", reason=reason) for reason in HoldReason}
    assert held == {"rollout": 0, "quarantine": 1, "rejected": 0, "unavailable": 0}
    assert "why" not in text


def test_unknown_values_are_omitted() -> None:
    """A value of zero would mean 1970 for a host whose first run failed early."""
    document = sent(metadata_expire="", bundles=[PublishedBundle(name="web")])
    document.report.last_good = ""
    document.report.bundles = []
    names = {name for name, _ in parsed(monitoring.metrics_text(document))}
    assert "puller_last_run_timestamp_seconds" in names
    assert not names & {
        "puller_last_good_run_timestamp_seconds",
        "puller_metadata_expiry_timestamp_seconds",
        "puller_bundle_enforced_since_timestamp_seconds",
        "puller_bundle_info",
    }


def test_twenty_restless_resources_are_named_and_all_are_counted() -> None:
    many = [
        RestlessResource(bundle="web", reference=f"file#/{number}", runs=5, changes=3 + number // 90)
        for number in range(100)
    ]
    samples = parsed(monitoring.metrics_text(sent(restless=many)))
    assert value(samples, "restless_resources") == 100
    named = [labels for name, labels in samples if name == "puller_restless_resource_changes"]
    assert len(named) == 20
    assert value(samples, "restless_resource_changes", bundle="web", resource="file#/99") == 4


@given(st.text(max_size=150))
def test_no_name_makes_another_sample(name: str) -> None:
    """Special characters in a resource's name stay in one label of one sample."""
    restless = [RestlessResource(bundle="web", reference=f"file#{name}", runs=5, changes=5)]
    text = monitoring.metrics_text(sent(restless=restless))
    usual = monitoring.metrics_text(sent())
    assert len(text.split("\n")) == len(usual.split("\n"))
    assert (
        value(parsed(text), "restless_resource_changes", bundle="web", resource=visible(f"file#{name}")) == 5
    )


def test_invalid_and_long_names_are_written(tmp_path: Path) -> None:
    restless = [RestlessResource(bundle="web", reference="file#\udcff" + "x" * 1000, runs=5, changes=5)]
    monitoring.write_metrics(sent(restless=restless), tmp_path / "puller.prom")
    text = (tmp_path / "puller.prom").read_text()
    assert '"file#\\\\udcff' in text
    assert max(map(len, text.splitlines())) < 400
    assert parsed(text)


def test_the_file_is_for_everybody_to_read(tmp_path: Path) -> None:
    monitoring.write_metrics(sent(), tmp_path / "puller.prom")
    assert (tmp_path / "puller.prom").read_text() == monitoring.metrics_text(sent())
    assert (tmp_path / "puller.prom").stat().st_mode & 0o777 == 0o644


def test_the_page_has_every_metric_with_its_labels() -> None:
    rows = re.findall(r"^\| `(puller_\w+)` \| ([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    labels: dict[str, set[str]] = {}
    for name, found in parsed(monitoring.metrics_text(sent())):
        labels.setdefault(name, set()).update(label for label, _ in found)
    assert {name: set(re.findall(r"`(\w+)`", told)) for name, told in rows} == labels
    assert [name for name, _ in rows] == [*monitoring.HELP]


@pytest.mark.promtool
def test_prometheus_accepts_the_metrics_file() -> None:
    restless = [RestlessResource(bundle="web", reference='file#/\udcff\\n"\n\x1b', runs=5, changes=5)]
    program = shutil.which("promtool")
    assert program, "promtool is not installed (Debian: apt-get install prometheus)"
    done = subprocess.run(
        [program, "check", "metrics"],
        input=monitoring.metrics_text(sent(restless=restless)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
