"""Plain values that answer questions about a fleet, built from the store, and the condition of a host in one word.

Times are UTC. Only this module decides the condition. The first matching row applies:

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from foundation.differences import Difference
from foundation.problems import Problem
from foundation.quantities import counted
from puller.exit_status import ExitStatus
from puller.reporting.report import (
    BundleReport,
    Event,
    HoldReason,
    PublishedBundle,
    Report,
    SentReport,
    State,
    Summary,
    failure_texts,
)
from puller.reporting.terminal_rows import Content, Outcome, content_of, count_outcomes
from puller.values.maintenance import PendingReboot


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host in a list."""

    name: str
    state: str
    why: str = ""
    heard: datetime | None = None
    """Arrival of its last report."""
    since: datetime | None = None
    """Begin of its state. For a silent host: its last report."""
    system: str = ""
    """Such as ``Debian 12``. Empty if unknown."""
    bundles: Mapping[str, str] = field(default_factory=dict)
    """The version of each enforced bundle."""


@dataclass(frozen=True, slots=True)
class Series:
    """Counts of hosts over time, by name. Each count holds until the next time."""

    times: Sequence[datetime] = ()
    counts: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version of a bundle, and the number of hosts that enforce it."""

    version: str
    hosts: int
    states: Mapping[str, int]
    """Number of its hosts, by state."""
    gave_up: int = 0
    """Number of hosts that have it in quarantine."""
    waiting: int = 0
    """Number of hosts for which it is published, but that do not have it yet."""
    first: datetime | None = None
    """Time at which the first host had it."""
    on_trial: int = 0
    """Number of hosts that enforce it, and on which it has not passed its trial."""


@dataclass(frozen=True, slots=True)
class BundleView:
    """A bundle in the fleet."""

    name: str
    versions: Sequence[VersionRow]
    history: Series
    rollouts: "Sequence[RolloutView]" = ()
    """The rollouts with waiting hosts."""

    @property
    def hosts(self) -> int:
        """The number of hosts that enforce a version."""
        return sum(row.hosts for row in self.versions)


@dataclass(frozen=True, slots=True)
class WaitingHost:
    """A host that waits for a rollout."""

    row: HostRow
    turn: datetime | None = None
    """The time at which the rollout reaches it, if it is known."""
    why: str = ""
    """The reason in its last report, with its place in the rollout."""


@dataclass(frozen=True, slots=True)
class RolloutView:
    """A published version that has not reached all of its hosts."""

    bundle: str
    version: str
    published_for: int
    """Number of hosts whose channel names it."""
    reached: int
    """Number of these hosts that enforce it."""
    gave_up: int
    """Number of these hosts that have it in quarantine."""
    waiting: Sequence[WaitingHost]
    """The next host first. Without pinned, failed and silent hosts."""

    @property
    def percent(self) -> int:
        """The share of hosts that took or gave up the release."""
        return (self.reached + self.gave_up) * 100 // self.published_for

    @property
    def others(self) -> int:
        """Number of hosts without it for other reasons: pinned, failed, held or silent."""
        return self.published_for - self.reached - self.gave_up - len(self.waiting)


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A current or past version of a bundle, and its results in the time that the store covers."""

    row: VersionRow
    hosts: int
    """Number of hosts that ever enforced it."""
    failed: int
    """Number of hosts that ever failed with it."""
    last: datetime | None = None
    """End of its last use. ``None``: hosts enforce it, or no host ever did."""


@dataclass(frozen=True, slots=True)
class BundleHistory:
    """A bundle, with its current and past versions."""

    bundle: BundleView
    records: Sequence[VersionRecord]
    """The newest version first, up to a readable number."""
    omitted: int
    """Number of older versions that are not in ``records``."""
    failures: "Sequence[FailureView]" = ()
    hosts: Sequence[HostRow] = ()
    """The hosts with a problem of this bundle."""


@dataclass(frozen=True, slots=True)
class ReleaseView:
    """A version of a bundle, and its results."""

    row: VersionRow
    bundle: str
    published_for: int
    """Number of hosts whose channel names it."""
    history: Series
    """The hosts that have it, by state, over time."""
    hosts: Mapping[str, Sequence[HostRow]]
    """The hosts that enforce it, gave it up or wait for it, by result."""
    failures: "Sequence[FailureView]" = ()


@dataclass(frozen=True, slots=True)
class FailureView:
    """A common error of several hosts."""

    key: str
    """Identity, also in file names."""
    bundle: str
    reference: str
    """The resource. Empty for a problem of the run."""
    problem: Problem
    """The problem without the values of one host."""
    hosts: Sequence[HostRow]
    first: datetime | None = None
    last: datetime | None = None
    example: Problem | None = None
    """The problem of the host that reported last."""
    example_host: str = ""

    @property
    def message(self) -> str:
        """The problem as text."""
        return str(self.problem)


@dataclass(frozen=True, slots=True)
class EventView:
    """A resource that a run changed, or that failed or was skipped in it."""

    bundle: str
    event: Event
    version: str = ""
    """The version of the bundle. Empty for earlier runs."""

    @property
    def reference(self) -> str:
        """``type#name``."""
        return self.event.reference

    @property
    def content(self) -> Content:
        """The texts of its row, as on a terminal."""
        return content_of(self.event)


@dataclass(frozen=True, slots=True)
class RunView:
    """A run of a host."""

    run: str
    finished: datetime
    exit_status: int
    outcome: str
    """``in sync``, or a short description."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of resources, by ``State``."""
    problems: Sequence[Problem] = ()
    events: Sequence[EventView] = ()

    @property
    def outcomes(self) -> list[tuple[Outcome, int]]:
        """The number of resources for each outcome, as in the summary on a terminal."""
        summary = Summary(stable=self.counts.get(State.STABLE, 0), skipped=self.counts.get(State.SKIPPED, 0))
        return count_outcomes([item.event for item in self.events], summary)


@dataclass(frozen=True, slots=True)
class StandingView:
    """A bundle on a host."""

    name: str
    channel: str = ""
    enforced: str = ""
    since: datetime | None = None
    published: str = ""
    good: str = ""
    held: str = ""
    pin: str = ""
    quarantined: Sequence[str] = ()
    turn: datetime | None = None
    """The time at which the rollout reaches the host, if it is known."""

    @property
    def is_on_trial(self) -> bool:
        """Whether no run with the enforced version has ended without failures."""
        return bool(self.enforced) and self.good != self.enforced


@dataclass(frozen=True, slots=True)
class RestlessView:
    """A resource that changes in run after run."""

    bundle: str
    reference: str
    hosts: Sequence[str]
    differences: Sequence[Difference] = ()
    """The last changes on some hosts."""


@dataclass(frozen=True, slots=True)
class HostView:
    """A host with all details."""

    row: HostRow
    agent: str = ""
    """The version of Puller."""
    expires: datetime | None = None
    """The first expiry of the site's metadata on the host."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    bundles: Sequence[StandingView] = ()
    runs: Sequence[RunView] = ()
    """The newest run first."""
    restless: Sequence[RestlessView] = ()
    notes: Sequence[str] = ()
    """Remarks: omitted parts of its report, pending reboots, a wrong clock."""
    todo: str = ""
    """The next step for a person, with commands in backticks. Empty if there is nothing to do."""
    recipient: str = ""
    """The public part of its key for encrypted files. Empty without a key, and for earlier versions of Puller."""


@dataclass(frozen=True, slots=True)
class ResourceView:
    """A resource in the fleet: its changes and failures, and their hosts."""

    reference: str
    bundles: Sequence[str]
    changes: int
    failures: int
    hosts: Sequence[HostRow]
    """The hosts where it changed or failed."""
    restless: RestlessView | None = None
    recent: Sequence[tuple[str, datetime, EventView]] = ()
    """The newest events, each with its host and time."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Hosts that need attention for the same reason. ``puller.fleet.attention`` makes the groups."""

    condition: "Condition"
    title: str
    hosts: Sequence[HostRow]
    since: datetime | None
    todo: str
    """The next step, with commands in backticks. Empty if unknown."""
    todo_host: str = ""
    """The host for the commands. Empty: the publisher's machine."""
    failure: FailureView | None = None
    bundle: str = ""
    version: str = ""
    causes: Sequence[EventView] = ()
    """The last failures of these hosts, if ``failure`` is missing."""


@dataclass(frozen=True, slots=True)
class FleetView:
    """Overview of the fleet."""

    made: datetime
    heard: datetime | None
    """Arrival of the last report."""
    states: Mapping[str, int]
    history: Series
    bundles: Sequence[BundleView]
    failures: Sequence[FailureView]
    silent: Sequence[HostRow]
    expiring: Sequence[tuple[HostRow, datetime]]
    """Hosts whose metadata expire soon, or have expired."""
    restless: Sequence[RestlessView]
    refused: int = 0
    """Number of received documents that were invalid."""
    attention: Sequence[Attention] = ()
    """The most serious groups first."""
    troubled: int = 0
    """Number of hosts that need attention."""
    rebooting: Mapping[str, Sequence[PendingReboot]] = field(default_factory=dict)
    """The pending reboots of the hosts that have any, by the name of the host."""

    @property
    def hosts(self) -> int:
        """The number of known hosts."""
        return sum(self.states.values())


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
    Condition.GAVE_UP: "rolled back",
    Condition.HELD: "held",
    Condition.SILENT: "silent",
    Condition.PAUSED: "paused",
    Condition.WAITING: "waiting for the rollout",
    Condition.IN_ORDER: "in sync",
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
        if bundle.held_because in (HoldReason.REJECTED, HoldReason.UNAVAILABLE, HoldReason.QUARANTINE):
            return Condition.HELD, _short(bundle.held)
    if report.only:
        return Condition.HELD, _short(
            f"the last run was limited to {', '.join(report.only)}, so other resources were not checked"
        )
    if report.paused:
        return Condition.PAUSED, _short(report.paused)
    for standing in sent.bundles:
        if standing.pin and standing.published and standing.pin != standing.published:
            return Condition.HELD, _short(
                f"{standing.name} is pinned to {standing.pin}, and {standing.published} is published"
            )
    if not sent.bundles:
        return Condition.FAILED, "its report contains no enforced bundle"
    if unenforced := [standing.name for standing in sent.bundles if not standing.enforced]:
        return Condition.FAILED, _short(f"no version of {', '.join(unenforced)} is enforced")
    waiting = {
        bundle.name: bundle.held for bundle in report.bundles if bundle.held_because is HoldReason.ROLLOUT
    }
    for standing in sent.bundles:
        is_other = standing.published and standing.enforced != standing.published
        if is_other and standing.name not in waiting:
            return Condition.HELD, _short(
                f"{standing.name} {standing.enforced} is enforced, and {standing.published} is published"
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
    result = {standing.name: condition_of(_narrowed(sent, standing))[0] for standing in sent.bundles}
    is_explained = any(not condition.is_well for condition in result.values())
    return result if host.is_well or is_explained else dict.fromkeys(result, host)


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
            return f"{standing.name} {standing.published} is quarantined"
    return ""


def _failure(report: Report) -> str:
    if report.problems:
        return str(report.problems[0])
    for bundle in _all(report):
        if reported := failure_texts(bundle.events, most=1):
            return reported[0]
    failed = sum(bundle.summary.failed + bundle.summary.unmet for bundle in report.bundles)
    return f"{counted(failed, 'resource')} failed" if failed else f"exit status {report.exit_status}"


def _all(report: Report) -> list[BundleReport]:
    return [item for bundle in report.bundles for item in (bundle, bundle.given_up) if item is not None]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
