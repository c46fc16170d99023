"""How a host is, in one word: the only place where that is decided.

The first that holds:

| word | a host |
| --- | --- |
| silent | of which nothing was heard for a time: nobody knows how it is |
| failed | whose last run failed, wholly or in part |
| gave-up | that has given up the version that is published for it, and enforces another one |
| held | that enforces another version than the published one for any other reason, or whose last run was partial |
| paused | on which nothing is applied: disabled, or outside of its maintenance windows |
| waiting | that enforces an earlier version in order, until the rollout reaches it |
| in-order | that enforces what is published, and whose last run had nothing to complain of |

Of a host that enforces no bundle, or of which a part was not looked at, nobody can say that it is in order.
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
"""Characters of a reason."""


class Condition(StrEnum):
    """The words, the worst first."""

    FAILED = "failed"
    GAVE_UP = "gave-up"
    HELD = "held"
    SILENT = "silent"
    PAUSED = "paused"
    WAITING = "waiting"
    IN_ORDER = "in-order"

    @property
    def label(self) -> str:
        """As it is written for people."""
        return _LABELS[self]

    @property
    def is_well(self) -> bool:
        """Whether nobody has to look after it."""
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
    """How a host was when it sent this, and why; whether it has been silent since is not known here."""
    report = sent.report
    if report.exit_status not in _FINE and report.exit_status not in _GIVEN_UP:
        return Condition.FAILED, _short(_failure(report))
    if any(bundle.summary.failed + bundle.summary.unmet for bundle in report.bundles):
        return Condition.FAILED, _short(_failure(report))
    if gave_up := _given_up(sent):
        return Condition.GAVE_UP, _short(gave_up)
    if report.exit_status in _GIVEN_UP:  # by a report from which the reason was left out
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
    """Return how each bundle of a host is: another bundle that fails says nothing about it.

    If no bundle explains why the host is not well, as when its site is away, all bundles are like the host.
    """
    host, _ = condition_of(sent)
    found = {standing.name: condition_of(_narrowed(sent, standing))[0] for standing in sent.bundles}
    is_explained = any(not condition.is_well for condition in found.values())
    return found if host.is_well or is_explained else dict.fromkeys(found, host)


def _narrowed(sent: SentReport, standing: PublishedBundle) -> SentReport:
    """Return what the report says about one bundle. The exit status is that of all of them."""
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
