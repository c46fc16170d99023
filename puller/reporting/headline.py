"""The first line of ``puller status``: whether the host is in sync, when the next run starts, and what to do.

* *In sync* requires a last run that applied all bundles completely. Anything else is *out of sync* or *unknown*.
* The first matching rule decides: damage, the absence of a run, the operator's hold, failed resources, updates.
* This module does no I/O.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from foundation.formatting import text_in_one_line
from foundation.problems import Problem, ProblemCode
from foundation.quantities import counted
from foundation.times import minute_text, parse_moment
from puller.exit_status import ExitStatus
from puller.reporting.report import BundleReport, HoldReason, Report, State, failure_texts
from puller.system.systemd_units import AGENT_TIMER, StoppedService, Timer

_RUN = "`puller run`"
_SEE_PROBLEMS = "see the problems below"
_DOCTOR = "`puller doctor`"
_MOST_SERVICES = 3


class Sync(StrEnum):
    """Whether a host is in the state that its bundles declare."""

    IN_SYNC = "in sync"
    OUT_OF_SYNC = "out of sync"
    HELD = "held"
    """The operator or a maintenance window prevents changes, so drift is not corrected."""
    RUNNING = "a run is in progress"
    UNKNOWN = "unknown"


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a host."""

    report: Report | None
    running_since: str = ""
    unreadable: str = ""
    """Why the last report cannot be read."""
    cut_short: bool = False
    """Whether the last run has stopped without a record of its end."""
    is_disabled: bool = False
    not_applying: str = ""
    """Why runs apply nothing at this moment."""
    damaged: list[str] = []
    """Problems of enforced bundles."""
    stopped: list[StoppedService] = []
    """Services that stopped after the last run had left them running."""
    restless: list[str] = []
    """References of the resources that change in run after run."""
    timer: Timer | None = None
    """``None``: systemd does not answer."""
    of_user: bool = False
    """Whether the agent, and its timer, are those of an ordinary user."""


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a host in one line."""

    sync: Sync
    because: str = ""
    next_run: str = ""
    """UTC in ISO 8601. Empty if unknown."""
    next_run_text: str = ""
    todo: str = ""
    """The next step for a person. Empty if there is nothing to do."""

    def __str__(self) -> str:
        link = {Sync.IN_SYNC: ", but ", Sync.RUNNING: " "}.get(self.sync, ": ")
        state = f"{self.sync}{link}{self.because}" if self.because else str(self.sync)
        todo = f"to do: {self.todo}" if self.todo else "nothing to do"
        return "; ".join(filter(None, (state, self.next_run_text, todo)))


class _Finding(msgspec.Struct, frozen=True):
    sync: Sync
    because: str = ""
    todo: str = ""


_OF_STATUS = {
    ExitStatus.SIGNATURE: (
        "signatures of the site are invalid",
        "report it to the publisher (`puller site verify`)",
    ),
    ExitStatus.ROLLBACK: (
        "the site offers older metadata",
        "report it to the publisher (`puller site verify`)",
    ),
    ExitStatus.EXPIRED: ("the metadata of the site have expired", "the publisher runs `puller site refresh`"),
    ExitStatus.FETCH_FAILED: ("the site cannot be reached", "check the network and the address of the site"),
    ExitStatus.REJECTED: ("a release is rejected", "correct it and publish a new version"),
    ExitStatus.HEALTH_FAILED: ("a release was rolled back", "correct it and publish a new version"),
    ExitStatus.FELL_BACK: ("the installed agent does not start", "reinstall the agent"),
    ExitStatus.CONFIGURATION: ("the configuration has problems", "`puller config check`"),
}
"""The last run has applied the enforced versions, but an update has failed."""


def headline(records: Records) -> Headline:
    """Return the line for the records of a host."""
    finding = _find(records)
    next_run, text, missing_timer = _next_run(records)
    return Headline(
        sync=finding.sync,
        because=finding.because,
        next_run=next_run,
        next_run_text=text,
        todo=" and ".join(filter(None, (finding.todo, missing_timer))),
    )


def _next_run(records: Records) -> tuple[str, str, str]:
    """Return the start of the next run, its text, and what to do without a timer."""
    timer = records.timer
    if timer is None:
        return "", "", ""
    if not timer.is_active:
        manager = "--user " if records.of_user else ""
        return (
            "",
            f"no next run, {AGENT_TIMER} is not active",
            f"`systemctl {manager}enable --now {AGENT_TIMER}`",
        )
    if timer.next_start is None:
        return "", f"next run by {AGENT_TIMER}", ""
    text = minute_text(timer.next_start)
    return timer.next_start.isoformat(), f"next run {text}", ""


def _find(records: Records) -> _Finding:
    if records.running_since:
        return _Finding(Sync.RUNNING, f"since {minute_text(parse_moment(records.running_since))}")
    if records.damaged:
        return _Finding(Sync.OUT_OF_SYNC, records.damaged[0], _RUN)
    report = records.report
    if report is None:
        return _Finding(Sync.UNKNOWN, records.unreadable or "no run has finished yet", _RUN)
    if records.cut_short:
        return _Finding(Sync.UNKNOWN, "the last run was interrupted", _RUN)
    if records.not_applying:
        todo = "`puller enable` to apply again" if records.is_disabled else ""
        return _Finding(Sync.HELD, records.not_applying, todo)
    finding = _of_report(report)
    if records.stopped and finding.sync is Sync.IN_SYNC:
        return _Finding(Sync.OUT_OF_SYNC, stopped_sentence(records.stopped), journal_command(records.stopped))
    if records.restless and finding == _Finding(Sync.IN_SYNC):
        return _Finding(
            Sync.IN_SYNC,
            f"{records.restless[0]} changes in every run",
            f"`puller explain {records.restless[0]}`",
        )
    return finding


def services_to_run(report: Report) -> list[str]:
    """Return the services of systemd that the last run has left running. Requires all events of the report."""
    return [
        event.name
        for bundle in report.bundles
        if bundle.outcome == "applied"
        for event in bundle.events
        if event.type == "service" and event.provider == "systemd" and event.final_ensure == "running"
    ]


def stopped_sentence(services: Sequence[StoppedService]) -> str:
    """Return which services stopped, and why."""
    reasons = ", ".join(f"service#{service.name} {service.reason}" for service in services[:_MOST_SERVICES])
    suffix = f" and {len(services) - _MOST_SERVICES} more" if len(services) > _MOST_SERVICES else ""
    return f"{reasons}{suffix} after the last run"


def journal_command(services: Sequence[StoppedService]) -> str:
    """Return the command that shows why services stopped."""
    units = " ".join(f"-u {service.name}" for service in services[:_MOST_SERVICES])
    return f"`journalctl -e {units}`"


def next_step(report: Report) -> str:
    """Return what a person should do after a run, with commands in backticks. Empty if there is nothing to do."""
    return _of_report(report).todo


def cause(report: Report) -> tuple[str, str]:
    """Return the first problem of a run, and the next step if it is known. Both are empty without problems."""
    failures = [text for bundle in report.bundles for text in failure_texts(bundle.events, 1)]
    texts = [*failures, *map(str, report.problems)]
    if not texts:
        return "", ""
    todo = _of_report(report).todo
    return " ".join(texts[0].split()), "" if todo in (_RUN, _SEE_PROBLEMS, _DOCTOR) else todo


def _of_report(report: Report) -> _Finding:
    failed = [
        event.reference
        for bundle in report.bundles
        for event in bundle.events
        if event.state is State.FAILED or event.unmet_requirements
    ]
    if failed:
        others = f" and {counted(len(failed) - 1, 'other')}" if len(failed) > 1 else ""
        return _Finding(Sync.OUT_OF_SYNC, f"{failed[0]}{others} failed", f"`puller explain {failed[0]}`")
    status = report.exit_status
    if status == ExitStatus.HEALTH_FAILED_TWICE:
        return _Finding(Sync.OUT_OF_SYNC, "a release was given up, and its rollback failed", _SEE_PROBLEMS)
    if report.paused:  # the hold has ended since
        return _Finding(Sync.UNKNOWN, "the last run applied nothing", _RUN)
    if report.only:
        return _Finding(Sync.UNKNOWN, "the last run was partial", _RUN)
    unapplied = next((bundle for bundle in report.bundles if bundle.outcome != "applied"), None)
    if unapplied is not None:
        outcome = unapplied.outcome or "not applied"
        return _Finding(Sync.OUT_OF_SYNC, f"{unapplied.name}: {outcome}", _SEE_PROBLEMS)
    if status == ExitStatus.CONFIGURATION and (problem := _problem_of_machine(report)):
        return _Finding(Sync.IN_SYNC, text_in_one_line(problem), _DOCTOR)
    if status in _OF_STATUS:
        because, todo = _OF_STATUS[ExitStatus(status)]
        return _Finding(Sync.IN_SYNC, because, todo)
    held = next((bundle for bundle in report.bundles if bundle.held), None)
    if held is not None:
        return _Finding(
            Sync.IN_SYNC, f"{held.name} {held.published} is held".replace("  ", " "), _after_hold(held)
        )
    if status not in (ExitStatus.OK, ExitStatus.CHANGED):
        return _Finding(Sync.UNKNOWN, f"the last run ended with exit status {status}", _RUN)
    return _Finding(Sync.IN_SYNC)


def _problem_of_machine(report: Report) -> Problem | None:
    """Return the first problem, unless the configuration is invalid. A full disk has the same exit status."""
    if any(problem.code == ProblemCode.INVALID_CONFIGURATION for problem in report.problems):
        return None
    return next(iter(report.problems), None)


def _after_hold(bundle: BundleReport) -> str:
    """Return what to do about a held release. A rollout that waits needs nobody."""
    if bundle.held_because is HoldReason.ROLLOUT:
        return ""
    if bundle.held_because is HoldReason.QUARANTINE:
        return f"correct the bundle and publish a new version, or `puller quarantine clear {bundle.name}`"
    return "correct the bundle and publish a new version"
