"""Plain values that answer questions about a fleet, built from the store.

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
    """Arrival of its last report."""
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


@dataclass(frozen=True, slots=True)
class BundleView:
    """A bundle in the fleet."""

    name: str
    versions: Sequence[VersionRow]
    history: Series


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
    reference: str
    state: str
    problems: Sequence[Problem] = ()
    sentences: Sequence[str] = ()
    """The reason for skipping it, and notes."""
    differences: Sequence[Difference] = ()

    @property
    def is_planned(self) -> bool:
        """Whether the change failed, so that the differences were only planned. The store keeps a sentence about
        it.
        """
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
    """``in order``, or a short description."""
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
    """Remarks about its reports: omitted parts, a wrong clock."""


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

    @property
    def hosts(self) -> int:
        """The number of known hosts."""
        return sum(self.states.values())
