"""The reboots of one run: which are due, which one the run requests, and the restart at its end.

* Resources only request a restart. The run restarts the machine after its last step (``restart``).
* All decisions of a pass use one time and one look at the machine, so that a dry run and a real run agree.
* A restart that did not happen is known by the identity of the boot: an unscheduled request is made again, and a
  scheduled one was cancelled by an administrator.

The record of reboots between runs: reasons, the current request, and the reasons of earlier restarts.

* A request is recorded before the machine restarts. The identity of the boot shows whether it did.
* After the restart, the reasons of the request count as tried. A reason that has remained is never tried again.
* A change of a subscribed resource is a reason until the next boot, whoever restarts the machine.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from foundation.times import iso_text, minute_text
from puller.errors import ResourceError
from puller.resources.reboots.machine import Machine, Reason, Scheduled
from puller.resources.reboots.schedule import Rules, Times, find_time, is_near
from puller.state import Directories, StateFile
from puller.values.maintenance import PendingReboot, RebootState, Window

_LOSS = "the reasons of reboots are determined again"
_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The restart that a run has requested."""

    keys: list[str]
    """The keys of its reasons."""
    at: _Moment
    is_scheduled: bool = False
    """Whether systemd has accepted it."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document on disk."""

    format: Literal[1] = 1
    boot: str = ""
    """The identity of the boot that it describes."""
    request: Request | None = None
    since: dict[str, _Moment] = {}
    """The first time at which a run noticed each reason, by key."""
    subscribed: dict[str, str] = {}
    """Reasons by subscription since the boot: the text, by the name of the resource."""
    tried: dict[str, _Moment] = {}
    """The reasons of the last restarts, by key, with the time of the request."""
    pending: list[PendingReboot] = []

    def after_boot(self, boot: str) -> "Record":
        """Return the record for the current boot."""
        if self.boot == boot:
            return self
        tried = dict(self.tried)
        if self.request is not None:
            tried |= dict.fromkeys(self.request.keys, self.request.at)
        return msgspec.structs.replace(self, boot=boot, request=None, subscribed={}, tried=tried, pending=[])


class Records:
    """The record of this machine. With ``noop`` nothing is written. Methods raise ``OSError``."""

    def __init__(
        self, state_directory: Path | None, warn: Callable[[str], None] = lambda text: None, *, noop: bool
    ) -> None:
        directory = state_directory or Directories.of_user().state
        self._file = StateFile(Directories(directory, directory).reboots, Record, _LOSS)
        self._noop = noop
        self._warn = warn
        self._saved: Record | None = None

    def load(self) -> Record:
        """Return the record as it was saved last, perhaps by an earlier boot."""
        if self._saved is None:
            self._saved = self._file.load(self._warn, noop=self._noop) or Record()
        return self._saved

    def reload(self) -> None:
        """Read the record from disk again, because another run may have replaced it."""
        self._saved = None

    def save(self, record: Record) -> None:
        """Replace the record. A record without content needs no file."""
        if record == self.load():
            return
        if not self._noop:
            if record == Record(boot=record.boot):
                self._file.remove()
            else:
                self._file.save(record)
        self._saved = record


class DueReboot(msgspec.Struct, frozen=True):
    """A reboot that a resource requires."""

    resource: str
    """``reboot#NAME``."""
    reasons: Sequence[Reason]
    rules: Rules
    min_uptime: timedelta
    message: str


class Verdict(msgspec.Struct, frozen=True):
    """The decision about a reboot."""

    state: RebootState
    at: datetime | None = None
    waits_for: str = ""


class _Pass(msgspec.Struct):
    """The knowledge of one pass over the catalog."""

    now: datetime
    scheduled: Scheduled | None
    pending: dict[str, PendingReboot] = {}
    """By resource."""
    seen: dict[str, set[str]] = {}
    """The keys of all reasons, by resource."""
    requested: dict[str, tuple[DueReboot, datetime]] = {}
    obstacle: str | None = None


class RebootPlan:
    """The plan of one run.

    ``withheld`` is what a reboot waits for if this command never restarts the machine.
    """

    def __init__(
        self,
        machine: Machine,
        records: Records,
        clock: Callable[[], datetime],
        *,
        host: Callable[[], str] = lambda: "",
        windows: tuple[Window, ...] = (),
        withheld: str = "",
    ) -> None:
        self.machine, self.records, self.clock = machine, records, clock
        self.find_host, self.windows = host, windows
        self.withheld = withheld
        self._pass: _Pass | None = None

    def begin(self) -> None:
        """Forget the decisions of an earlier pass. A rollback applies another catalog."""
        self._pass = None

    @cached_property
    def boot(self) -> str:
        """The identity of this boot."""
        return self.machine.boot

    @property
    def record(self) -> Record:
        """The record for this boot. Raise ``OSError``."""
        return self.records.load().after_boot(self.boot)

    @property
    def now(self) -> datetime:
        """The time of all decisions of this pass."""
        return self._current.now

    @property
    def _current(self) -> _Pass:
        if self._pass is None:
            self._pass = _Pass(self.clock(), self.machine.find_scheduled())
        return self._pass

    # Reasons

    def has_remained(self, reason: Reason) -> bool:
        """Return whether the machine was restarted for a reason before, and the reason is still there."""
        return reason.key in self.record.tried

    def subscription(self, resource: str) -> Reason | None:
        """Return the recorded reason of a resource by its subscriptions."""
        text = self.record.subscribed.get(resource)
        return Reason(f"subscribe {resource}", text) if text is not None else None

    def record_subscription(self, resource: str, text: str) -> None:
        """Record that a subscribed resource has changed. Raise ``OSError``."""
        record = self.record
        subscribed = {**record.subscribed, resource: text}
        self.records.save(msgspec.structs.replace(record, subscribed=subscribed))

    # Decisions

    def decide(self, due: DueReboot) -> Verdict:
        """Return the decision about the reasons of a resource, and keep it for the report. Raise ``OSError``.

        1. Reasons that remained after a restart are never tried again. If no other reason is left, the reboot fails.
        2. A request of this run, and a restart that systemd has scheduled, are enough for all resources.
        3. A shutdown of somebody else goes first.
        4. Otherwise find the time. Near it, the run requests the restart, unless other work prevents it.
        """
        verdict = self._decide(due)
        since = min((self._since(reason) for reason in due.reasons), default=self.now)
        current = self._current
        current.seen[due.resource] = {reason.key for reason in due.reasons}
        current.pending[due.resource] = PendingReboot(
            resource=due.resource,
            reasons=[reason.text for reason in due.reasons],
            since=iso_text(since),
            state=verdict.state,
            at=iso_text(verdict.at) if verdict.at is not None else "",
            waits_for=verdict.waits_for,
        )
        return verdict

    def _decide(self, due: DueReboot) -> Verdict:
        # 1. Reasons
        if all(map(self.has_remained, due.reasons)):
            tried = self.record.tried
            last = max(tried[reason.key] for reason in due.reasons)
            return Verdict(RebootState.FAILED, None, f"the reboot of {minute_text(last)} did not help")
        # 2. Restarts on their way
        current, request = self._current, self.record.request
        if due.resource in current.requested:
            return Verdict(RebootState.REQUESTED, current.requested[due.resource][1])
        is_ours = request is not None and request.is_scheduled
        if (scheduled := current.scheduled) is not None:
            if is_ours and scheduled.mode == "reboot":
                return Verdict(RebootState.SCHEDULED, scheduled.at)
            # 3. Somebody else
            sentence = f"for the {scheduled.mode or 'shutdown'} of {minute_text(scheduled.at)}"
            return Verdict(RebootState.WAITING, None, f"{sentence}, which somebody has scheduled")
        # 4. Time
        return self._find_time(due, request.at if request is not None and is_ours else None)

    def _find_time(self, due: DueReboot, cancelled: datetime | None) -> Verdict:
        now, waiting = self.now, RebootState.WAITING if cancelled is None else RebootState.CANCELLED
        earliest = self.machine.booted_at(now) + due.min_uptime
        at = find_time(due.rules, Times(now, earliest, cancelled))
        if self.withheld:
            return Verdict(waiting, at, self.withheld)
        if at is None:
            return Verdict(waiting, None, "for a window")
        if not is_near(at, due.rules, now):
            return Verdict(waiting, at)
        if obstacle := self._obstacle:
            return Verdict(waiting, at, obstacle)
        return Verdict(RebootState.REQUESTED, at)

    @property
    def _obstacle(self) -> str:
        current = self._current
        if current.obstacle is None:
            current.obstacle = self.machine.find_obstacle()
        return current.obstacle

    def _since(self, reason: Reason) -> datetime:
        return self.record.since.get(reason.key, self.now)

    def pending(self, resource: str) -> PendingReboot:
        """Return the reboot of a resource that this pass has decided about."""
        return self._current.pending[resource]

    def settle(self, resource: str) -> None:
        """Record that a resource requires no reboot now."""
        self._current.pending.pop(resource, None)
        self._current.seen[resource] = set()

    # Requests

    def request(self, due: DueReboot, at: datetime) -> None:
        """Request the restart at the end of this run. Raise ``OSError``."""
        current, record = self._current, self.record
        current.requested[due.resource] = (due, at)
        keys = {reason.key for each, _ in current.requested.values() for reason in each.reasons}
        request = Request(sorted(keys), self._request_time(current.requested.values()))
        self.records.save(msgspec.structs.replace(record, request=request))

    @staticmethod
    def _request_time(requested: Iterable[tuple[DueReboot, datetime]]) -> datetime:
        """Return the time that suits all resources which request the restart: the latest."""
        return max(at for _, at in requested)

    def has_requested(self, resource: str) -> bool:
        """Return whether a resource has requested the restart in this pass."""
        return resource in self._current.requested

    @property
    def is_requested(self) -> bool:
        """Whether a resource of the applied catalog has requested the restart."""
        return self._pass is not None and bool(self._pass.requested)

    def is_current(self) -> bool:
        """Return whether no other run has decided since this run recorded its request. Raise ``OSError``.

        The caller holds the lock of a run again. Afterwards the plan has the record on disk.
        """
        own = self.record.request
        self.records.reload()
        request = self.record.request
        return request is not None and request == own and not request.is_scheduled

    def withdraw(self, why: str) -> None:
        """Give up the request of this run. The next run decides again. Raise ``OSError``."""
        record = msgspec.structs.replace(self.record, request=None)
        self._mark(record, RebootState.WAITING, None, why)
        self._current.requested.clear()

    def _mark(self, record: Record, state: RebootState, at: datetime | None, waits_for: str = "") -> None:
        """Save a record with another state of the requested reboots. Raise ``OSError``."""
        current = self._current

        def marked(item: PendingReboot) -> PendingReboot:
            if item.resource not in current.requested:
                return item
            text = iso_text(at) if at is not None else ""
            return msgspec.structs.replace(item, state=state, at=text, waits_for=waits_for)

        current.pending = {name: marked(item) for name, item in current.pending.items()}
        pending = [marked(item) for item in record.pending]
        self.records.save(msgspec.structs.replace(record, pending=pending))

    def delays_trial(self, references: Iterable[str], since: datetime) -> bool:
        """Return whether a trial must see the next boot.

        It must if this run restarts the machine, or if a resource of the version requires a reboot for a reason that
        appeared during the trial.
        """
        if self._pass is None:
            return False
        current = self._pass
        if current.requested or current.scheduled:
            return bool(current.pending)
        known = self.record.since
        return any(
            reference in current.pending
            and current.pending[reference].state is not RebootState.FAILED
            and any(known.get(key, current.now) >= since for key in current.seen[reference])
            for reference in references
        )

    # The end of a run

    def keep(self, *, is_partial: bool) -> list[PendingReboot]:
        """Record the reasons of this run, and return the pending reboots. Raise ``OSError``.

        A partial run keeps the records of other resources. Without a pass, nothing was applied, and all records stay.
        """
        current, record = self._pass, self.record
        if current is None:
            self.records.save(record)
            return record.pending
        others = [item for item in record.pending if is_partial and item.resource not in current.seen]
        pending = [*current.pending.values(), *others]
        keys = {key for keys in current.seen.values() for key in keys}
        since = {key: at for key, at in record.since.items() if is_partial or key in keys}
        tried = {key: at for key, at in record.tried.items() if is_partial or key in keys}
        subscribed = {
            name: text for name, text in record.subscribed.items() if is_partial or name in current.seen
        }
        since |= {key: current.now for key in keys if key not in since}
        self.records.save(
            msgspec.structs.replace(record, since=since, tried=tried, subscribed=subscribed, pending=pending)
        )
        return pending

    def restart(self) -> datetime:
        """Restart the machine, or let systemd schedule it. Return the time.

        The caller has ended its work and holds the lock of a run again. Raise ``ResourceError`` and ``OSError``: the
        machine is not restarted, and the next run decides again.

        1. Decide again, because time has passed: the window, and other work.
        2. Call shutdown(8).
        3. Record that systemd has accepted it. An immediate restart needs no record, because the boot changes.
        """
        requested = self._current.requested
        # 1. Decision
        self._pass = None
        verdicts = [self._decide(due) for due, _ in requested.values()]
        self._current.requested = requested
        for verdict in verdicts:
            if verdict.state is not RebootState.REQUESTED:
                raise ResourceError(
                    f"the machine is not restarted: it waits {verdict.waits_for or 'for its time'}"
                )
        now, at = self.now, max(verdict.at for verdict in verdicts if verdict.at is not None)
        message = next((due.message for due, _ in requested.values() if due.message), "")
        # 2. Restart
        self.machine.restart(at, now, message)
        # 3. Record
        if at > now:
            record = self.record
            request = record.request or Request([], at)
            request = msgspec.structs.replace(request, at=at, is_scheduled=True)
            record = msgspec.structs.replace(record, request=request)
            self._mark(record, RebootState.SCHEDULED, at)
        return at
