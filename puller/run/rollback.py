"""The rollback from a bundle: which one to roll back to, and the order of steps that a crash may cut anywhere.

* What is given up is in quarantine before anything else changes, so that no run between the steps takes it for new.
* What is returned to was current here before, and is not in quarantine itself.
* A run rolls back from a bundle that fails its trial, and applies the other one (``Rollback``); ``puller rollback``
  leaves the applying to a run (``roll_back``).
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from bundles.errors import StoreError
from bundles.store.contents import Installed
from bundles.store.store import Store
from foundation.problems import Problem, ProblemCode
from puller.errors import UsageError
from puller.exit_status import ExitStatus
from puller.reporting.fields import MessageId
from puller.reporting.report import BundleReport, HeldBecause, State, told_failures
from puller.run.policy.quarantine import Quarantine
from puller.run.trials import Trials

if TYPE_CHECKING:
    from puller.run.application import Means
    from puller.run.attempts import Attempts
    from puller.run.health_gate import Outcome


def find_rollback_target(
    store: Store, quarantine: Quarantine, name: str, *, except_for: str = ""
) -> Installed | None:
    """The bundle to roll back to: the last good one, else the one before; not that with the SHA-256 ``except_for``."""
    for find in (store.good, store.previous):
        with suppress(StoreError):  # damaged: there is nothing in it to roll back to
            other = find(name)
            if other and other.sha256 != except_for and not quarantine.find(other.sha256):
                return other
    return None


# By the operator


def roll_back(
    store: Store, quarantine: Quarantine, trials: Trials, name: str, why: str
) -> tuple[Installed, Installed]:
    """Give up what is current for what was before; gives both.

    1. What is current, and what to roll back to; nothing is changed without both.
    2. Quarantine, so that a run after a crash does not take it for new.
    3. Its trial is closed: it will not be tried again.
    4. The other one becomes current; the next run applies it.
    5. It becomes the good one, or damage to a link would lead back to what was given up.

    Raises ``UsageError`` when there is nothing to roll back from or to, ``StoreError``, ``OSError``.
    """
    # 1. From what to what
    current = store.current(name)
    if current is None:
        raise UsageError(
            f"{name}: nothing is enforced on this host, so there is nothing to roll back from",
            code=ProblemCode.NOTHING_TO_ENFORCE,
        )
    target = find_rollback_target(store, quarantine, name, except_for=current.sha256)
    if target is None:
        raise UsageError(
            f"{name} {current.version}: there is nothing to roll back to: {_why(store, quarantine, name)}",
            code=ProblemCode.ROLLBACK_FAILS,
        )
    # 2. Quarantine
    quarantine.add(name, current.version, current.sha256, why)
    # 3. No trial
    trials.close(name)
    # 4. Current
    store.activate(name, target.sha256)
    # 5. Good
    store.mark_good(name, target.sha256)
    return current, target


def _why(store: Store, quarantine: Quarantine, name: str) -> str:
    try:
        before = store.previous(name)
    except StoreError as error:
        return str(error)
    entry = before and quarantine.find(before.sha256)
    return str(entry) if entry else "no other version was enforced here before"


# By a run


class Rollback(msgspec.Struct, frozen=True):
    """The rollback of bundles of one name, in one run; ``report`` tells why."""

    means: "Means"
    report: BundleReport
    attempts: "Attempts"

    def target(self, *, except_for: str = "") -> Installed | None:
        """See ``find_rollback_target``."""
        means = self.means
        return find_rollback_target(means.store, means.quarantine, self.report.name, except_for=except_for)

    def roll_back(self, bundle: Installed, failure: str) -> Installed | None:
        """Give up a bundle that was applied; gives the one to roll back to, or ``None``: then it stays."""
        back = self.target(except_for=bundle.sha256)
        if back is None:
            what = f"{bundle}: {failure}; there is no other bundle on this host to roll back to"
            self.means.problems.warn(Problem(code=ProblemCode.ROLLBACK_FAILS, message=what))
            return None
        self.give_up(bundle, failure, msgspec.structs.replace(self.report))
        return back

    def give_up(self, bundle: Installed, reason: str, given_up: BundleReport) -> None:
        """Never try a bundle again; ``given_up`` is its own report, which becomes part of that of the run."""
        given_up.outcome = f"given up: {reason}"
        self.report.given_up = given_up
        self.report.held = f"{bundle} is in quarantine: {reason}"
        self.report.held_because = HeldBecause.QUARANTINE
        what = f"{bundle.version} is given up: {reason}"
        kind = MessageId.BUNDLE_GIVEN_UP
        self._error(what, ExitStatus.HEALTH_FAILED, kind, code=ProblemCode.ROLLED_BACK)
        failed = told_failures(given_up.events)
        with self.means.problems.remembering():
            self.means.quarantine.add(bundle.name, bundle.version, bundle.sha256, reason, failed)
        with self.means.problems.remembering():
            self.means.trials.close(bundle.name)

    def conclude(self, back: Installed, outcomes: "Sequence[Outcome] | None") -> None:
        """Decide about the bundle that was rolled back to; ``outcomes`` is ``None`` when it could not be applied."""
        if outcomes is None or _is_broken(outcomes):
            self._error(f"rolled back to {back.version}, and not all is well", ExitStatus.HEALTH_FAILED_TWICE)
        if outcomes is None or self.means.stops.reason:
            self.attempts.end(back)
        else:
            self.attempts.settle(back, outcomes)

    def cannot(self, back: Installed, why: object) -> None:
        """Say that the bundle to roll back to cannot be enforced."""
        self._error(f"cannot roll back to {back.version}: {why}", ExitStatus.HEALTH_FAILED_TWICE)

    def _error(
        self,
        sentence: str,
        status: ExitStatus,
        kind: MessageId = MessageId.PROBLEM,
        *,
        code: ProblemCode = ProblemCode.ROLLBACK_FAILS,
    ) -> None:
        name = self.report.name
        problem = Problem(code=code, message=f"{name}: {sentence}")
        self.means.problems.error(problem, status, kind=kind, bundle=name)


def _is_broken(outcomes: "Sequence[Outcome]") -> bool:
    """Whether the last good bundle is not what it was: a health check that fails may have failed all along."""
    return any(
        (event.state is State.FAILED and not event.health_checks)
        or any(not result.status.in_order for result in event.health_checks)
        for _, event in outcomes
    )
