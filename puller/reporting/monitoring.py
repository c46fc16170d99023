"""A host for monitoring: metrics after a run, and the judgement of the host by its own records.

Metrics have the text format that Prometheus' node exporter collects from files:

* Times are those of the events, in seconds since 1970. They stay correct if the file is no longer updated, and ``time()
  - metric`` is the age of an event.
* Labels have few values: reasons are a closed set, and the number of named restless resources is limited.
* docs/monitoring.md has the table.

The judgement follows the rules of ``puller status --check``:

* OK requires a run that ended recently. A host whose timer is off or whose clock is wrong is not OK.
* CRITICAL: this machine may differ from the published state, or is under attack. WARNING: the machine is unchanged but
  needs attention. A host held by its operator or by a rollout is OK.
* It reads no file and no clock. Callers pass ``now``.
"""

import os
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from bundles.filesystem.atomic import naming, remove_leftovers, replace_file
from foundation.times import minute_text, parse_moment
from puller.exit_status import ExitStatus
from puller.reporting.report import Health, HoldReason, Report, SentReport, failure_texts
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
    "puller_bundle_on_trial": "1 if this version has not passed its trial on this host.",
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


def write_metrics(sent: SentReport, path: Path) -> None:
    """Replace the metrics file, readable by all. Raises ``OSError``.

    The directory may belong to another user, the collector's, so links on the way are judged as for managed files:
    raises ``ResourceError``.
    """
    directory, name = os.path.split(os.path.abspath(path))
    with naming(path), open_safely(directory) as descriptor:
        remove_leftovers(descriptor)
        replace_file(descriptor, name, [metrics_text(sent).encode()], mode=0o644)


def metrics_text(sent: SentReport) -> str:
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
            yield "puller_bundle_on_trial", own, int(bundle.good != bundle.enforced)
        yield "puller_bundle_quarantined", own, len(bundle.quarantined)


def _of_outcomes(report: Report) -> Iterator[_Sample]:
    for bundle in report.bundles:
        own = {"bundle": bundle.name}
        for reason in HoldReason:
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


_HEALTH_OF = {
    ExitStatus.OK: Health.OK,
    ExitStatus.CHANGED: Health.OK,
    ExitStatus.HELD: Health.OK,
    ExitStatus.HEALTH_FAILED: Health.WARNING,
    ExitStatus.REJECTED: Health.WARNING,
    ExitStatus.FETCH_FAILED: Health.WARNING,
    ExitStatus.FELL_BACK: Health.WARNING,
    ExitStatus.INTERRUPTED: Health.WARNING,
    ExitStatus.TERMINATED: Health.WARNING,
}
"""Health by exit status of a run. All other statuses are CRITICAL."""
_SERIOUSNESS = (Health.CRITICAL, Health.UNKNOWN, Health.WARNING, Health.OK)
_EXIT_CODES = {Health.OK: 0, Health.WARNING: 1, Health.CRITICAL: 2, Health.UNKNOWN: 3}
_CLOCKS_DIFFER = timedelta(minutes=5)


class Finding(msgspec.Struct, frozen=True):
    """One observation about a host, as a sentence."""

    health: Health
    sentence: str


class Verdict(msgspec.Struct, frozen=True):
    """All findings of a host. The most serious finding decides."""

    findings: list[Finding]
    figures: dict[str, str] = {}
    """Performance data of Nagios plugins, by label."""

    @property
    def health(self) -> Health:
        """The health of the most serious finding."""
        return min((finding.health for finding in self.findings), key=_SERIOUSNESS.index)

    @property
    def exit_code(self) -> int:
        """The exit code of a Nagios plugin: 0 to 3."""
        return _EXIT_CODES[self.health]

    def __str__(self) -> str:
        """Return the line of a Nagios plugin, most serious finding first."""
        ordered = sorted(self.findings, key=lambda finding: _SERIOUSNESS.index(finding.health))
        # In a plugin's line, a bar starts the performance data.
        text = "; ".join(" ".join(finding.sentence.split()) for finding in ordered).replace("|", "¦")
        figures = " ".join(f"{label}={value}" for label, value in self.figures.items())
        return f"PULLER {self.health} - {text}" + (f" | {figures}" if figures else "")


class Records(msgspec.Struct, frozen=True):
    """The records that a host has about itself."""

    report: Report | None
    running_since: datetime | None = None
    """When the current run began."""
    cut_short: bool = False
    """Whether the last run has stopped without a record of its end."""
    unreadable: str = ""
    """Why the report that should exist cannot be read."""
    damaged: list[str] = []
    """Damage of records about bundles."""
    notes: list[str] = []
    """Damage of other records."""
    enforced: dict[str, str | None] = {}
    """The enforced version of each configured bundle."""
    held: list[str] = []
    """Settings of the operator that prevent changes of this machine."""
    restless: list[str] = []
    """Sentences about restless resources."""
    unsent: list[str] = []
    """Sentences about reports that could not be sent for a long time."""


def unknown(why: str) -> Verdict:
    """Return the verdict for unreadable records."""
    return Verdict([Finding(Health.UNKNOWN, why)])


def judge(records: Records, now: datetime, oldest: timedelta) -> Verdict:
    """Return the verdict on a host. An older last run than ``oldest`` is a problem."""
    report = records.report
    findings = [Finding(Health.CRITICAL, sentence) for sentence in records.damaged]
    findings += [
        Finding(Health.WARNING, sentence) for sentence in (*records.notes, *records.restless, *records.unsent)
    ]
    if records.cut_short:
        findings.append(Finding(Health.WARNING, "the last run was interrupted"))
    if report is None:
        why = records.unreadable or "no run has finished on this host yet"
        return Verdict([*findings, Finding(Health.UNKNOWN, why)])
    finished = parse_moment(report.finished)
    findings += [
        *_of_time(finished, records.running_since, now, oldest),
        *_of_report(report),
        *_of_bundles(records),
    ]
    return Verdict(findings, _figures(report, now - finished, oldest))


def _of_time(
    finished: datetime, running_since: datetime | None, now: datetime, oldest: timedelta
) -> Iterator[Finding]:
    last = max(finished, running_since or finished)
    if last > now + _CLOCKS_DIFFER:
        yield Finding(
            Health.WARNING,
            f"the last run ended {minute_text(last)}, after the current time {minute_text(now)}",
        )
    elif now - last > oldest:
        detail = "a run is in progress" if last == running_since else "no run has finished"
        yield Finding(Health.CRITICAL, f"{detail} since {minute_text(last)}")


def _of_report(report: Report) -> Iterator[Finding]:
    failed = any(bundle.summary.failed or bundle.summary.unmet for bundle in report.bundles)
    # For people, some statuses (such as 13) are more serious than failed resources. For this machine they are not.
    health = Health.CRITICAL if failed else _HEALTH_OF.get(ExitStatus(report.exit_status), Health.CRITICAL)
    yield Finding(health, f"the last run ended with exit status {report.exit_status}")
    for bundle in report.bundles:
        yield from (Finding(health, failure) for failure in failure_texts(bundle.events, most=3))
    if report.only:
        yield Finding(
            Health.WARNING,
            f"the last run was limited to {', '.join(report.only)}, so other resources were not checked",
        )
    # Problems that need attention, although nothing failed.
    at_least = Health.WARNING if health is Health.OK else health
    yield from (Finding(at_least, str(problem)) for problem in report.problems[:3])


def _of_bundles(records: Records) -> Iterator[Finding]:
    for name, version in records.enforced.items():
        if version is None:
            yield Finding(Health.CRITICAL, f"{name}: no version is enforced")
        else:
            yield Finding(Health.OK, f"{name} {version} is enforced")
    yield from (Finding(Health.OK, sentence) for sentence in records.held)


def _figures(report: Report, age: timedelta, oldest: timedelta) -> dict[str, str]:
    summaries = [bundle.summary for bundle in report.bundles]
    return {
        "age": f"{age.total_seconds():.0f}s;;{oldest.total_seconds():.0f}",
        "exit_status": str(report.exit_status),
        "failed": str(sum(summary.failed for summary in summaries)),
        "changed": str(sum(summary.changes for summary in summaries)),
    }
