"""The answers about a fleet: plain values, put together from the store, each for one question.

Times are UTC. A state is a word of ``puller.fleet.conditions``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from foundation.differences import Difference
from foundation.problems import Problem
from puller.reporting.report import State


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host in a list."""

    name: str
    state: str
    why: str = ""
    heard: datetime | None = None
    """When its last report arrived."""
    system: str = ""
    """``Debian 12``; empty when its facts do not say it."""
    bundles: Mapping[str, str] = field(default_factory=dict)
    """The version of each bundle that is enforced."""


@dataclass(frozen=True, slots=True)
class Series:
    """Counts of hosts over time, by name; each holds from its time to the next one."""

    times: Sequence[datetime] = ()
    counts: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version of a bundle, and how many hosts it is enforced on."""

    version: str
    hosts: int
    states: Mapping[str, int]
    """Of those hosts, by state."""
    gave_up: int = 0
    """Hosts that have it in quarantine."""
    waiting: int = 0
    """Hosts that it is published for, and that do not have it yet."""
    first: datetime | None = None
    """When the first host had it."""


@dataclass(frozen=True, slots=True)
class BundleView:
    """A bundle in the fleet."""

    name: str
    versions: Sequence[VersionRow]
    history: Series


@dataclass(frozen=True, slots=True)
class ReleaseView:
    """A version of a bundle, and what became of it."""

    row: VersionRow
    bundle: str
    published_for: int
    """Hosts whose channel names it."""
    history: Series
    """Of the hosts that have it, by state."""
    hosts: Mapping[str, Sequence[HostRow]]
    """Those that it is enforced on, that gave it up or wait for it, by what became of it there."""
    failures: "Sequence[FailureView]" = ()


@dataclass(frozen=True, slots=True)
class FailureView:
    """An error that several hosts have."""

    key: str
    """Identifies it, in names of files, too."""
    bundle: str
    reference: str
    """The resource; empty for a problem of the run."""
    problem: Problem
    """Without the values of one host."""
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
    reference: str
    state: str
    problems: Sequence[Problem] = ()
    sentences: Sequence[str] = ()
    """The reason for which it was skipped, and notes."""
    differences: Sequence[Difference] = ()

    @property
    def is_planned(self) -> bool:
        """Whether the differences are those of a change that failed. The store keeps a sentence about it."""
        return self.state == State.FAILED and bool(self.sentences)

    @property
    def diff(self) -> str:
        """The diffs of all differences."""
        return "".join(difference.diff for difference in self.differences)


@dataclass(frozen=True, slots=True)
class RunView:
    """A run of a host."""

    run: str
    finished: datetime
    exit_status: int
    outcome: str
    """``in order``, or what there is to say."""
    counts: Mapping[str, int] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    events: Sequence[EventView] = ()


@dataclass(frozen=True, slots=True)
class StandingView:
    """A bundle on a host."""

    name: str
    channel: str = ""
    enforced: str = ""
    since: datetime | None = None
    published: str = ""
    waits_until: str = ""
    good: str = ""
    held: str = ""
    pin: str = ""
    quarantined: Sequence[str] = ()


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
    """A host, whole."""

    row: HostRow
    agent: str = ""
    """The version of Puller."""
    expires: datetime | None = None
    """When the first of the site's metadata on it expire."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    bundles: Sequence[StandingView] = ()
    runs: Sequence[RunView] = ()
    """The newest first."""
    restless: Sequence[RestlessView] = ()
    notes: Sequence[str] = ()
    """What is to be known of its reports: parts left out, a clock that is wrong."""


@dataclass(frozen=True, slots=True)
class ResourceView:
    """A resource in the fleet: what changed or failed, and where."""

    reference: str
    bundles: Sequence[str]
    changes: int
    failures: int
    hosts: Sequence[HostRow]
    """Where it has changed or failed."""
    restless: RestlessView | None = None
    recent: Sequence[tuple[str, datetime, EventView]] = ()
    """The newest events, each with its host and time."""


@dataclass(frozen=True, slots=True)
class FleetView:
    """The fleet at a glance."""

    made: datetime
    heard: datetime | None
    """When the last report arrived."""
    states: Mapping[str, int]
    history: Series
    bundles: Sequence[BundleView]
    failures: Sequence[FailureView]
    silent: Sequence[HostRow]
    expiring: Sequence[tuple[HostRow, datetime]]
    """Hosts whose metadata expire soon, or have expired."""
    restless: Sequence[RestlessView]
    refused: int = 0
    """Documents that arrived and were not understood."""

    @property
    def hosts(self) -> int:
        """All that were ever heard of, and not forgotten."""
        return sum(self.states.values())
