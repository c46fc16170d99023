"""The report of a run, as stored on the host, and the document that a host sends to its fleet after a run.

The report has an event for each resource, a summary and the duration of each phase:

* Every resource of a manifest has exactly one event, even if the run never reached it.
* Values are plain and serialisable. They contain no secrets.

The sent document has a JSON Schema:

* It contains everything that the fleet stores about a host. The newest document replaces all earlier ones.
* Later versions may add fields and problem codes. A reader ignores unknown fields and treats unknown codes as text.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

from foundation.differences import Difference, without_diffs
from foundation.problems import Problem, ProblemCode
from foundation.quantities import counted
from foundation.times import minute_text, parse_moment
from puller.exit_status import ExitStatus
from puller.values.export_types import Value
from puller.values.maintenance import PendingReboot


class State(StrEnum):
    """The end of a resource in a run."""

    STABLE = "stable"
    CHANGED = "changed"
    REFRESHED = "refreshed"
    FAILED = "failed"
    SKIPPED = "skipped"
    WOULD_CHANGE = "would change"


class HoldReason(StrEnum):
    """Reasons why a host does not run the published release."""

    ROLLOUT = "rollout"
    """The rollout has not reached this host, or is halted."""
    QUARANTINE = "quarantine"
    """This host has given up the release."""
    REJECTED = "rejected"
    """The release is invalid on this host, or conflicts with another bundle."""
    UNAVAILABLE = "unavailable"
    """The release could not be fetched, verified, unpacked or read."""


class Health(StrEnum):
    """The result of a health check, by the exit codes of Nagios plugins."""

    OK = "OK"
    WARNING = "WARNING"
    CRITICAL = "CRITICAL"
    UNKNOWN = "UNKNOWN"

    @property
    def in_order(self) -> bool:
        """Whether the check is OK or has only a warning."""
        return self in (Health.OK, Health.WARNING)


class HealthResult(msgspec.Struct, omit_defaults=True):
    """One health check in a run, with its output."""

    name: str
    status: Health
    tries: int
    outcome: str = ""
    """``exit status 2 (CRITICAL)``, or another result such as ``timed out``."""
    output: str = ""
    """Standard output of the command, or the findings of another kind. ``error_output`` is its standard error."""
    error_output: str = ""

    def __str__(self) -> str:
        """Return a sentence with the end of both outputs. Secrets must already be masked in them."""
        ends = [end for text in (self.output, self.error_output) if (end := _end_of(text))]
        return f"health check {self.name}: {self.outcome}: {'; '.join(ends) or 'no output'}"


_LINES_TOLD, _LONGEST_END = 3, 200  # of each output of a health check; lines and characters
_MOST_FAILURES, _LONGEST_FAILURE = 10, 600  # resources and characters


def _end_of(text: str) -> str:
    line = " ".join(" ".join(text.strip().splitlines()[-_LINES_TOLD:]).split())
    return line if len(line) <= _LONGEST_END else f"…{from_a_word(line, _LONGEST_END)}"


def from_a_word(line: str, most: int) -> str:
    """Return the end of a line, of at most ``most`` characters, starting at a word.

    A word longer than half of the end is cut.
    """
    end = line[-most:]
    cut, _, remainder = end.partition(" ")
    is_whole = line[-most - 1 : -most] in ("", " ")
    return end if is_whole or len(cut) > most // 2 else remainder


def _beginning_of(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_FAILURE else f"{line[:_LONGEST_FAILURE]}…"


class Event(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The end of one resource in a run, and why. ``duration`` is in seconds."""

    type: str
    name: str
    state: State
    alias: str = ""
    provider: str = ""
    item: str = ""
    """The item of a loop: ``for name, vhost in data.vhosts: name is 'shop'``. A failure adds file and line in front."""
    requested_ensure: str = ""
    final_ensure: str = ""
    duration: float = 0.0
    noop: bool = False
    noop_message: str = ""
    """A sentence about the predicted change."""
    skip_reason: str = ""
    reached: bool = True
    """False if the run stopped before this resource."""
    unmet_requirements: list[str] = []
    problems: list[Problem] = []
    """The reasons for a failure."""
    differences: list[Difference] = []
    """Differences between the current and the desired state. A dry run and the real run have the same differences."""
    is_planned: bool = False
    """Whether the differences were only planned, because the change failed or was refused."""
    notes: list[str] = []
    """Remarks that are not failures, one sentence each."""
    children: dict[str, int] = {}
    """For a child manifest: the number of its resources in each state."""
    applied: list[str] = []
    """For a child manifest: one sentence for each place that applies it, with the alias and the data."""
    health_checks: list[HealthResult] = []
    recurring: bool = False
    """Whether the resource acts in every run regardless of the current state."""
    reversal: bool = False
    """Whether the run reverses a leftover or a change of a trial release. No bundle declares such a resource."""

    @property
    def reference(self) -> str:
        """``type#name``."""
        return f"{self.type}#{self.name}"

    @property
    def errors(self) -> list[str]:
        """The problems as text."""
        return [str(problem) for problem in self.problems]

    @property
    def diff(self) -> str:
        """The diffs of all differences."""
        return "".join(difference.diff for difference in self.differences)

    def without_diffs(self) -> "Event":
        """Return the event without diffs."""
        if not self.diff:
            return self
        return msgspec.structs.replace(self, differences=without_diffs(self.differences))

    @property
    def is_predicted(self) -> bool:
        """Whether the differences were not made: in a dry run, or because the change failed."""
        return self.is_planned or self.state is State.WOULD_CHANGE

    @property
    def changed(self) -> bool:
        """Whether the resource changed the machine, also by a refresh."""
        return self.state in (State.CHANGED, State.REFRESHED)


def failure_texts(events: Iterable[Event], most: int = _MOST_FAILURES) -> list[str]:
    """Return a short sentence for each failed resource. The last sentence counts the omitted resources."""
    failed = [event for event in events if event.state is State.FAILED]
    reported = [_beginning_of(f"{_named(event)}: {', '.join(event.errors)}") for event in failed[:most]]
    return [*reported, f"and {len(failed) - most} more"] if len(failed) > most else reported


def partial_sentence(applied: int, declared: int) -> str:
    """Return the sentence about a run that was limited by ``--only``."""
    return (
        f"this was a partial run of {applied} of {counted(declared, 'resource')}. The others were not checked"
    )


def _named(event: Event) -> str:
    return f"{event.reference} ({event.item})" if event.item else event.reference


class Summary(msgspec.Struct, kw_only=True):
    """The number of resources in each state. Every resource counts once. ``duration`` is in seconds."""

    resources: int = 0
    stable: int = 0
    changed: int = 0
    refreshed: int = 0
    failed: int = 0
    skipped: int = 0
    would_change: int = 0
    unmet: int = 0
    """Skipped resources with unmet requirements."""
    reversals: int = 0
    """Reversed leftovers and changes of trial releases. They are not resources of the bundle."""
    health_checks: dict[str, int] = {}
    """Health results by name."""
    duration: float = 0.0

    @classmethod
    def of(cls, events: Iterable[Event], duration: float) -> "Summary":
        """Count the events of a run."""
        summary = cls(duration=duration)
        states: dict[str, int] = {}
        for event in events:
            if event.reversal and (event.changed or event.state is State.STABLE):
                summary.reversals += event.changed
                continue
            summary.resources += not event.reversal
            states[event.state] = states.get(event.state, 0) + 1
            if event.unmet_requirements:
                summary.unmet += 1
            for check in event.health_checks:
                summary.health_checks[check.status] = summary.health_checks.get(check.status, 0) + 1
        for state, count in states.items():
            setattr(summary, state.replace(" ", "_"), count)
        return summary

    @property
    def changes(self) -> int:
        """The number of resources, leftovers and changes of trials that the run changed."""
        return self.changed + self.refreshed + self.reversals

    def exit_status(self, *, detailed: bool, noop: bool = False) -> ExitStatus:
        """Return the exit status of a run that depends only on its resources.

        With ``detailed``, the predicted changes of a dry run count like changes.
        """
        changes = self.changes > 0 or (detailed and noop and self.would_change > 0)
        if self.failed or self.unmet:
            return ExitStatus.CHANGED_AND_FAILED if changes else ExitStatus.FAILED
        return ExitStatus.CHANGED if changes and detailed else ExitStatus.OK

    def __str__(self) -> str:
        counts = [counted(self.resources, "resource"), f"{self.stable} stable", f"{self.changed} changed"]
        others = {name: getattr(self, name) for name in ("refreshed", "would_change", "failed", "skipped")}
        counts += [f"{count} {name.replace('_', ' ')}" for name, count in others.items() if count]
        counts += [f"{self.reversals} reverted"] if self.reversals else []
        counts += [f"{count} health {name}" for name, count in sorted(self.health_checks.items())]
        return f"{', '.join(counts)} in {self.duration:.2f} s"


class InOrder(msgspec.Struct, kw_only=True):
    """The unchanged resources of a bundle, which a report only counts. A separate file lists them."""

    resources: int
    sha256: str
    """SHA-256 of the list of unchanged resources (``puller.reporting.in_order``)."""
    others_at: list[int]
    """The indexes of the events in the report, among all events of the bundle."""


class TrialReport(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The trial of a version that this run has applied, and that has not passed. Times are UTC in ISO 8601."""

    since: str
    until: str = ""
    """The earliest time at which it can pass. Empty if its last run had failures."""
    runs: int = 1
    """The number of runs in order that it needs, beginning with the next run."""
    awaits_boot: bool = False
    """Whether it cannot pass before the machine has restarted."""

    def __str__(self) -> str:
        if not self.until:
            return "on trial until its resources and health checks are in order"
        if self.awaits_boot:
            return "on trial until a run in order after the next boot"
        runs = "a run" if self.runs == 1 else f"{self.runs} runs in order, the last one"
        return f"on trial until {runs} after {minute_text(parse_moment(self.until))}"


class BundleReport(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One bundle in a run."""

    name: str
    version: str = ""
    sha256: str = ""
    outcome: str = ""
    """``applied``, or the reason why the bundle was not applied."""
    held: str = ""
    """Why the host does not run the published release. Usually empty."""
    held_because: HoldReason | None = None
    """The reason for the hold in one word."""
    published: str = ""
    """The version that the channel names. Empty if it is missing or unknown."""
    waits_until: str = ""
    """The time at which a growing rollout will reach this host, UTC in ISO 8601. Empty if it is unknown or past."""
    given_up: "BundleReport | None" = None
    """The report of the release that this run gave up, with the reason in ``outcome``."""
    not_undone: list[str] = []
    """Irreversible changes of a release that this host gave up, one sentence each."""
    trial: TrialReport | None = None
    """The trial of ``version``. ``None`` if it has passed."""
    summary: Summary = msgspec.field(default_factory=Summary)
    events: list[Event] = []
    """One event for each resource. A stored report omits the resources of ``in_order``."""
    in_order: InOrder | None = None

    def without_diffs(self) -> "BundleReport":
        """Return the report without diffs."""
        given_up = self.given_up.without_diffs() if self.given_up is not None else None
        events = [event.without_diffs() for event in self.events]
        return msgspec.structs.replace(self, given_up=given_up, events=events)


class Report(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="format", tag=4):
    """One run, as stored in the state directory. The format comes first. Times are UTC in ISO 8601."""

    run: str
    """Identity of the run. Identities sort by time."""
    started: str
    finished: str
    host: str
    puller: str
    """Version of the agent."""
    noop: bool = False
    exit_status: int
    paused: str = ""
    """Why the run applied nothing: disabled, or outside of the maintenance windows."""
    only: list[str] = []
    """The references that select resources for a partial run (``--only``). Empty for a complete run."""
    problems: list[Problem] = []
    """Problems outside of resources: fetching, verifying, unpacking, reading."""
    unprotected: list[str] = []
    """Missing protections of the processes for the network, one sentence each."""
    phases: dict[str, float] = {}
    """Duration of each phase of the run, in seconds."""
    last_good: str = ""
    """The end of the last run that applied everything without a problem. It can be the end of this run."""
    reboots: list[PendingReboot] = []
    """The reboots that resources require and that have not happened."""
    bundles: list[BundleReport] = []

    def without_diffs(self) -> "Report":
        """Return the report without diffs."""
        return msgspec.structs.replace(self, bundles=[bundle.without_diffs() for bundle in self.bundles])


# Phases of a run and their durations in seconds.


class Phase(StrEnum):
    """A part of a run. Work outside of all phases takes a few milliseconds."""

    REFRESH = "refresh"
    """Puller updates the site's metadata."""
    FETCH = "fetch"
    """Puller downloads, verifies and unpacks bundles."""
    RESOLVE = "resolve"
    """Puller reads manifests with facts and data, and combines all bundles into one catalog."""
    APPLY = "apply"
    """Puller applies resources and runs their health checks. A rollback repeats both."""


class Phases:
    """A stopwatch for the phases of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, phase: Phase) -> Iterator[None]:
        """Add the duration of the block to a phase, also if the block raises."""
        began = time.perf_counter()
        try:
            yield
        finally:
            taken = time.perf_counter() - began
            self.seconds[phase] = round(self.seconds.get(phase, 0.0) + taken, 4)


class RestlessResource(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A resource that changes in run after run."""

    bundle: str
    reference: str
    """``type#name``."""
    runs: int
    """The number of examined runs: the newest runs that applied the resource."""
    changes: int
    """The number of examined runs that changed the resource."""
    differences: list[Difference] = []
    """Differences of these changes, newest first, without duplicates and diffs."""


class PublishedBundle(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A bundle on a host, after a run. Times are UTC in ISO 8601. An empty text is a missing or unknown value."""

    name: str
    channel: str = ""
    pin: str = ""
    published: str = ""
    """The version that the channel names."""
    waits_until: str = ""
    """The time at which the rollout reaches this host, if it is known."""
    enforced: str = ""
    enforced_since: str = ""
    good: str = ""
    """The last version that passed its health checks."""
    held: str = ""
    """Why the host does not run the published release. Usually empty."""
    quarantined: list[str] = []
    """Versions that this host has given up."""
    exports: dict[str, Value] = {}
    """The exported values of the bundle, by name. The manifest declares their types."""


FactPath = tuple[Any, ...]
"""The keys that lead to a fact: ``("os", "family")``."""


class SentFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts of a host that a document contains, and their limits."""

    facts: dict[str, Any] = {}
    """Nested as in expressions."""
    absent_facts: list[str] = []
    """Dotted names of facts that bundles have read and that the host lacks."""
    whole_facts: list[str] = []
    """Dotted names of mappings that are complete in ``facts``. Other mappings may have more keys on the host."""

    def knows(self, path: FactPath) -> bool:
        """Return whether a missing fact at ``path`` is known to be missing on the host."""
        return _has_prefix(path, self.absent_facts) or _has_prefix(path[:-1], self.whole_facts)

    def has_all_of(self, path: FactPath) -> bool:
        """Return whether the mapping at ``path`` is complete, or known to be missing."""
        return _has_prefix(path, self.whole_facts) or _has_prefix(path, self.absent_facts)


def dotted(path: Iterable[Any]) -> str:
    """Return the name of a path, such as ``os.family``."""
    return ".".join(map(str, path))


def _has_prefix(path: FactPath, names: Iterable[str]) -> bool:
    prefixes = {dotted(path[:length]) for length in range(1, len(path) + 1)}
    return not prefixes.isdisjoint(names)


class SentReport(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="format", tag=3):
    """The document about a host after a run. The format comes first."""

    host: str
    """The name of the host, as in rollouts: ``host_name`` of the configuration, or the fully qualified name."""
    sent: str
    """The time of the document, UTC in ISO 8601."""
    facts: dict[str, Any] = {}
    """The facts listed in the configuration, the names of the host, and the facts that its bundles have read, nested as
    in expressions.
    """
    absent_facts: list[str] = []
    """Dotted names of listed and read facts that the host lacks."""
    whole_facts: list[str] = []
    """Dotted names of mappings in ``facts`` that are complete. Other mappings may have more keys on the host."""
    metadata_expire: str = ""
    """The first expiry of the site's metadata on this host, UTC in ISO 8601."""
    recipient: str = ""
    """The public part of the host's key for encrypted files: ``age1…`` or ``ssh-ed25519 …``. Empty without a key."""
    bundles: list[PublishedBundle] = []
    restless: list[RestlessResource] = []
    left_out: str = ""
    """A sentence about the parts omitted because of the size limit."""
    report: Report
    """The run. It only counts unchanged resources."""


# JSON Schema (2020-12), generated from the types above.

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of a ``SentReport``."""
    schema = msgspec.json.schema(SentReport)
    schema["$defs"][ProblemCode.__name__] = {"title": ProblemCode.__name__, "type": "string"}
    return {"$schema": _DIALECT, "title": "A report of a host of Puller", **schema}
