"""The condition of a host in one word. Only this module decides it.

The first matching row applies:

| word | a host |
| --- | --- |
| silent | sent no report for some time, so its condition is unknown |
| failed | has a last run that failed, completely or in part |
| gave-up | gave up the published version, and enforces another one |
| held | enforces another version than the published one for any other reason, or had a partial last run |
| paused | applies nothing: disabled, or outside its maintenance windows |
| waiting | enforces an earlier version without problems, until the rollout reaches it |
| in-order | enforces the published version, and its last run had no problems |

A host without an enforced bundle, or with unchecked parts, is never in order.
"""

from enum import StrEnum

import msgspec

from foundation.quantities import counted
from puller.exit_status import ExitStatus
from puller.reporting.report import BundleReport, HeldBecause, Report, told_failures
from puller.reporting.sent_report import PublishedBundle, SentReport

_FINE = (ExitStatus.OK, ExitStatus.CHANGED, ExitStatus.HELD)
_GIVEN_UP = (ExitStatus.HEALTH_FAILED, ExitStatus.HEALTH_FAILED_TWICE)
_LONGEST = 300
"""Maximum characters of a reason."""


class Condition(StrEnum):
    """The conditions, most serious first."""

    FAILED = "failed"
    GAVE_UP = "gave-up"
    HELD = "held"
    SILENT = "silent"
    PAUSED = "paused"
    WAITING = "waiting"
    IN_ORDER = "in-order"

    @property
    def label(self) -> str:
        """The text of the condition for people."""
        return _LABELS[self]

    @property
    def is_well(self) -> bool:
        """Whether the host needs no attention."""
        return self in (Condition.IN_ORDER, Condition.WAITING, Condition.PAUSED)


_LABELS = {
    Condition.FAILED: "failed",
    Condition.GAVE_UP: "gave up a release",
    Condition.HELD: "held back",
    Condition.SILENT: "not heard of",
    Condition.PAUSED: "paused",
    Condition.WAITING: "waiting for its wave",
    Condition.IN_ORDER: "in order",
}


def condition_of(sent: SentReport) -> tuple[Condition, str]:
    """Return the condition of a host when it sent this report, and the reason. Later silence is not considered."""
    report = sent.report
    if report.exit_status not in _FINE and report.exit_status not in _GIVEN_UP:
        return Condition.FAILED, _short(_failure(report))
    if any(bundle.summary.failed + bundle.summary.unmet for bundle in report.bundles):
        return Condition.FAILED, _short(_failure(report))
    if gave_up := _given_up(sent):
        return Condition.GAVE_UP, _short(gave_up)
    if report.exit_status in _GIVEN_UP:  # the report was too large and lost the reason
        return Condition.GAVE_UP, _short(_failure(report))
    for bundle in report.bundles:
        if bundle.held_because in (HeldBecause.REJECTED, HeldBecause.UNAVAILABLE, HeldBecause.QUARANTINE):
            return Condition.HELD, _short(bundle.held)
    if report.only:
        return Condition.HELD, _short(
            f"the last run was limited to {', '.join(report.only)}, and says nothing of the rest"
        )
    if report.paused:
        return Condition.PAUSED, _short(report.paused)
    for standing in sent.bundles:
        if standing.pin and standing.published and standing.pin != standing.published:
            return Condition.HELD, _short(
                f"{standing.name} is pinned to {standing.pin}, published is {standing.published}"
            )
    if not sent.bundles:
        return Condition.FAILED, "no bundle is enforced, as far as its report says"
    if unenforced := [standing.name for standing in sent.bundles if not standing.enforced]:
        return Condition.FAILED, _short(f"nothing of {', '.join(unenforced)} is enforced")
    waiting = {
        bundle.name: bundle.held for bundle in report.bundles if bundle.held_because is HeldBecause.ROLLOUT
    }
    for standing in sent.bundles:
        is_other = standing.published and standing.enforced != standing.published
        if is_other and standing.name not in waiting:
            return Condition.HELD, _short(
                f"{standing.name} {standing.enforced} is enforced, published is {standing.published}"
            )
    if report.exit_status == ExitStatus.HELD and not waiting:
        return Condition.HELD, _short("; ".join(bundle.held for bundle in report.bundles if bundle.held))
    if waiting:
        return Condition.WAITING, _short(next(iter(waiting.values())))
    return Condition.IN_ORDER, ""


def conditions_of_bundles(sent: SentReport) -> dict[str, Condition]:
    """Return the condition of each bundle of a host. A failed bundle does not affect the others.

    If no bundle explains the condition of the host, as with an unreachable site, all bundles get the host's condition.
    """
    host, _ = condition_of(sent)
    found = {standing.name: condition_of(_narrowed(sent, standing))[0] for standing in sent.bundles}
    is_explained = any(not condition.is_well for condition in found.values())
    return found if host.is_well or is_explained else dict.fromkeys(found, host)


def _narrowed(sent: SentReport, standing: PublishedBundle) -> SentReport:
    """Return the part of a report about one bundle. The exit status is reset, because it covers all bundles."""
    bundles = [bundle for bundle in sent.report.bundles if bundle.name == standing.name]
    report = msgspec.structs.replace(sent.report, bundles=bundles, exit_status=ExitStatus.OK)
    return msgspec.structs.replace(sent, report=report, bundles=[standing])


def _given_up(sent: SentReport) -> str:
    for bundle in sent.report.bundles:
        if bundle.given_up is not None:
            return f"{bundle.name} {bundle.given_up.version}: {bundle.given_up.outcome}"
    for standing in sent.bundles:
        if standing.published and standing.published in standing.quarantined:
            return f"{standing.name} {standing.published} is in quarantine"
    return ""


def _failure(report: Report) -> str:
    if report.problems:
        return str(report.problems[0])
    for bundle in _all(report):
        if told := told_failures(bundle.events, most=1):
            return told[0]
    failed = sum(bundle.summary.failed + bundle.summary.unmet for bundle in report.bundles)
    return f"{counted(failed, 'resource')} failed" if failed else f"exit status {report.exit_status}"


def _all(report: Report) -> list[BundleReport]:
    return [one for bundle in report.bundles for one in (bundle, bundle.given_up) if one is not None]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
