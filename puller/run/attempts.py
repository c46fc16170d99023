"""Attempts at a bundle that is on trial: begun on record, judged, ended; and the pass that ends the trial.

* The attempt is on record before anything is changed, its end after the last change: without an end it was cut short.
* Health checks that the bundle has broken, two attempts in a row that were cut short, or as many with failed resources
  as its author or the operator allows (by default any number) are reasons to give it up.
* A bundle passes when none of its resources failed, nor any of another bundle that it shares or refreshes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from bundles.store.contents import Installed
from puller.manifest.declaration import Declaration
from puller.manifest.manifest import Manifest
from puller.reporting.report import BundleReport, Health, State, told_failures
from puller.run.application import Means
from puller.run.trials import Trial
from puller.system.local import LocalSystem

if TYPE_CHECKING:
    from puller.run.health_gate import Outcome


class Attempts(msgspec.Struct, frozen=True):
    """Attempts at bundles of one name, in one run; ``report`` tells what became of the resources."""

    means: Means
    report: BundleReport
    give_up_after: int | None = None
    """Runs with failed resources; what this host's operator says in the place of the manifest."""

    def cut_short(self, bundle: Installed) -> tuple[int, str]:
        """How many attempts in a row were cut short, and how the last one was; 0 when that one has an end."""
        trial = self.means.trials.find(bundle)
        how = trial.interruption(self.means.trials.boot) if trial is not None else ""
        return (trial.cut_short + 1, how) if trial is not None and how else (0, "")

    def begin(
        self,
        bundle: Installed,
        concerns: Sequence[Declaration],
        enforced: Callable[[], Iterable[Declaration]],
    ) -> Trial | None:
        """Put the attempt at a bundle that has not passed yet on record; ``None`` for one that needs no trial.

        The first one keeps what the health checks of all that it ``concerns`` say now, as far as they are those of what
        is ``enforced``. Raises ``OSError`` when it cannot be recorded, unless the bundle is enforced already.
        """
        good, current = self.means.good(bundle.name), self.means.current(bundle.name)
        if self.means.settings.noop or (good is not None and good.sha256 == bundle.sha256):
            return None
        try:
            known = self.means.trials.find(bundle)
            before = known.health if known else self._health_before(bundle, concerns, enforced)
            return self.means.trials.begin(bundle, before)
        except OSError as error:
            if current is None or current.sha256 != bundle.sha256:
                raise
            self.means.problems.caught(error)
            return None

    def _health_before(
        self,
        bundle: Installed,
        concerns: Sequence[Declaration],
        enforced: Callable[[], Iterable[Declaration]],
    ) -> dict[str, Health]:
        if not _have_health_checks(concerns) or not (before := list(enforced())):
            return {}
        from puller.run.health_gate import health_before

        self.means.problems.log.notice(f"{bundle}: asking the health checks before the change")
        return health_before(before, concerns, LocalSystem())

    def failure(self, manifest: Manifest, outcomes: "Sequence[Outcome]", trial: Trial) -> str:
        """Why a bundle on trial that was applied is given up; empty when it is kept."""
        return self._broken_health(outcomes, trial) or self._worn_out(manifest, outcomes, trial)

    def _broken_health(self, outcomes: "Sequence[Outcome]", trial: Trial) -> str:
        if not _have_health_checks(declaration for declaration, _ in outcomes):
            return ""
        from puller.run.health_gate import find_failure

        return find_failure(outcomes, trial.health, LocalSystem())

    def _worn_out(self, manifest: Manifest, outcomes: "Sequence[Outcome]", trial: Trial) -> str:
        """Why it is given up after so many runs with failed resources.

        Only a bundle that has passed here is worth rolling back to for that: another may fail for the same reason.
        """
        limit = manifest.give_up_after if self.give_up_after is None else self.give_up_after
        good = self.means.good(self.report.name)
        if not limit or not has_failed(outcomes) or good is None or self.means.is_quarantined(good):
            return ""
        runs = trial.failed + 1
        if runs < limit:
            left = f"{runs} of {limit} runs in a row after which it is given up"
            self.means.problems.log.notice(
                f"{self.report.name} {self.report.version}: resources failed in {left}"
            )
            return ""
        told = "; ".join(told_failures((event for _, event in outcomes), most=3))
        times = f" in {runs} runs in a row, at last" if runs > 1 else ":"
        return f"resources failed{times} {told}"

    def settle(self, bundle: Installed, outcomes: "Sequence[Outcome]") -> None:
        """A bundle that was applied without failures passes: it is the one to roll back to. Another stays on trial."""
        if has_failed(outcomes):
            self.end(bundle, failed=True)
            return
        # Good before the trial is closed: cut short the other way round, the next run would begin a trial of it anew,
        # and take what its health checks say after the change for what they said before.
        with self.means.problems.remembering():
            self.means.store.mark_good(bundle.name, bundle.sha256)
        with self.means.problems.remembering():
            self.means.trials.close(bundle.name)
        with self.means.problems.remembering():
            self.means.leftovers.passed(bundle.name)

    def end(self, bundle: Installed, *, failed: bool = False) -> None:
        """Put the end of the attempt on record: nothing was cut short. The bundle stays on trial if it is."""
        with self.means.problems.remembering():
            self.means.trials.end(bundle, failed=failed)


def has_failed(outcomes: "Sequence[Outcome]") -> bool:
    """Whether a resource failed, or was not come to because of another that did."""
    return any(event.state is State.FAILED or event.unmet_requirements for _, event in outcomes)


def _have_health_checks(declarations: Iterable[Declaration]) -> bool:
    return any(declaration.properties.health_checks for declaration in declarations)
