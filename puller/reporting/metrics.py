"""Metrics of a host after a run, in the text format that Prometheus' node exporter collects from files.

* Times are those of the events, in seconds since 1970. They stay correct if the file is no longer updated, and ``time()
  - metric`` is the age of an event.
* Labels have few values: reasons are a closed set, and the number of named restless resources is limited.
* docs/monitoring.md has the table.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bundles.filesystem.atomic import naming, remove_leftovers, replace_file
from foundation.timestamps import parse_moment
from puller.reporting.report import HeldBecause, Report
from puller.reporting.sent_report import SentReport
from puller.system.local_paths import open_safely
from puller.values.foreign_text import visible

HELP = {
    "puller_last_run_timestamp_seconds": "End of the last run.",
    "puller_last_good_run_timestamp_seconds": "End of the last run without a problem.",
    "puller_last_run_duration_seconds": "Duration of the last run.",
    "puller_last_run_phase_duration_seconds": "Duration of each phase of the last run.",
    "puller_last_run_exit_status": "Exit status of the last run (docs/exit-statuses.md).",
    "puller_last_run_problems": "Number of problems outside of resources.",
    "puller_last_run_applied": "0 if it was disabled, outside of the maintenance windows, or limited by --only.",
    "puller_metadata_expiry_timestamp_seconds": "First expiry of the metadata of the site on this host.",
    "puller_bundle_info": "Enforced version of each bundle.",
    "puller_bundle_enforced_since_timestamp_seconds": "Time since when this version is enforced.",
    "puller_bundle_quarantined": "Number of quarantined versions.",
    "puller_bundle_held": "1 with the reason if the published version is held on this host.",
    "puller_bundle_given_up": "1 if the last run rolled back a new version.",
    "puller_resources": "Resources of each bundle by state.",
    "puller_resources_by_type": "Resources of each bundle by type and state, without zero values.",
    "puller_reboot_pending_since_timestamp_seconds": "Time since when a reboot is due, by resource and state.",
    "puller_restless_resources": "Number of resources that change in every run.",
    "puller_restless_resource_changes": "Number of recent runs that changed the resource, for some restless resources.",
}
_STATES = ("stable", "changed", "refreshed", "failed", "skipped", "would_change")
_MOST_NAMED, _LONGEST = 20, 200
"""Maximum number of named restless resources, and maximum characters of a label."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

_Sample = tuple[str, dict[str, str], float]


def write(sent: SentReport, path: Path) -> None:
    """Replace the metrics file, readable by all. Raises ``OSError``.

    The directory may belong to another user, the collector's, so links on the way are judged as for managed files:
    raises ``ResourceError``.
    """
    directory, name = os.path.split(os.path.abspath(path))
    with naming(path), open_safely(directory) as descriptor:
        remove_leftovers(descriptor)
        replace_file(descriptor, name, [text(sent).encode()], mode=0o644)


def text(sent: SentReport) -> str:
    """Return all metrics of a host."""
    lines: dict[str, list[str]] = {}
    for name, labels, value in _samples(sent):
        head = [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge"]
        lines.setdefault(name, head).append(f"{name}{_labelled(labels)} {value}")
    return "".join(f"{line}\n" for of_one in lines.values() for line in of_one)


def _labelled(labels: dict[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    """Return a label value, quoted. Undecodable bytes become escapes, because the collector would reject the file."""
    return visible(value[:_LONGEST]).encode(errors="backslashreplace").decode().translate(_ESCAPES)


def _samples(sent: SentReport) -> Iterator[_Sample]:
    yield from _of_run(sent.report)
    if sent.metadata_expire:
        yield "puller_metadata_expiry_timestamp_seconds", {}, _seconds(sent.metadata_expire)
    yield from _of_enforced(sent)
    yield from _of_outcomes(sent.report)
    for reboot in sent.report.reboots[:_MOST_NAMED]:
        labels = {"resource": reboot.resource, "state": str(reboot.state)}
        yield "puller_reboot_pending_since_timestamp_seconds", labels, _seconds(reboot.since)
    yield "puller_restless_resources", {}, len(sent.restless)
    for item in sorted(sent.restless, key=lambda item: -item.changes)[:_MOST_NAMED]:
        labels = {"bundle": item.bundle, "resource": item.reference}
        yield "puller_restless_resource_changes", labels, item.changes


def _of_run(report: Report) -> Iterator[_Sample]:
    finished = _seconds(report.finished)
    yield "puller_last_run_timestamp_seconds", {}, finished
    if report.last_good:
        yield "puller_last_good_run_timestamp_seconds", {}, _seconds(report.last_good)
    yield "puller_last_run_duration_seconds", {}, round(finished - _seconds(report.started), 3)
    for phase, seconds in report.phases.items():
        yield "puller_last_run_phase_duration_seconds", {"phase": phase}, seconds
    yield "puller_last_run_exit_status", {}, int(report.exit_status)
    yield "puller_last_run_problems", {}, len(report.problems)
    yield "puller_last_run_applied", {}, int(not report.paused and not report.only)


def _of_enforced(sent: SentReport) -> Iterator[_Sample]:
    for bundle in sent.bundles:
        own = {"bundle": bundle.name}
        if bundle.enforced:
            yield "puller_bundle_info", {**own, "version": bundle.enforced}, 1
            yield "puller_bundle_enforced_since_timestamp_seconds", own, _seconds(bundle.enforced_since)
        yield "puller_bundle_quarantined", own, len(bundle.quarantined)


def _of_outcomes(report: Report) -> Iterator[_Sample]:
    for bundle in report.bundles:
        own = {"bundle": bundle.name}
        for reason in HeldBecause:
            yield "puller_bundle_held", {**own, "reason": reason}, int(bundle.held_because is reason)
        yield "puller_bundle_given_up", own, int(bundle.given_up is not None)
        for state in _STATES:
            yield "puller_resources", {**own, "state": state}, getattr(bundle.summary, state)
        counter = Counter((event.type, event.state) for event in bundle.events)
        for (kind, state), count in sorted(counter.items()):
            labels = {**own, "type": kind, "state": state.replace(" ", "_")}
            yield "puller_resources_by_type", labels, count


def _seconds(when: str) -> float:
    return parse_moment(when).timestamp()
