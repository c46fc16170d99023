"""The judgement of a host by its own records, for monitoring: the rules of ``puller status --check``.

* OK requires a run that ended recently. A host whose timer is off or whose clock is wrong is not OK.
* CRITICAL: this machine may differ from the published state, or is under attack. WARNING: the machine is unchanged but
  needs attention. A host held by its operator or by a rollout is OK.
* This module reads no file and no clock. Callers pass ``now``.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from foundation.timestamps import minute_text, parse_moment
from puller.exit_status import ExitStatus
from puller.reporting.report import Health, Report, failure_texts

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
