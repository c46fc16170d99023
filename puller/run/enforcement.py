"""Bringing this host to one bundle: candidates, trial, health, and the rollback.

* The newest candidate that can be had, is understood and is not in quarantine is applied.
* A bundle that has not passed yet is on trial (``puller.run.trials``). Health checks that it has broken, two attempts
  in a row that were cut short, or as many with failed resources as its author or the operator allows (by default any
  number) give it up: it goes into quarantine, and the last good bundle is applied again.
* Nothing is given up without a bundle to roll back to: the first one on a host stays, whatever its checks say.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from bundles.errors import BundleError, StoreError
from bundles.store.store import Installed, Store
from puller.engine.apply import Applied, apply_manifest
from puller.engine.engine import Settings
from puller.errors import PullerError
from puller.exit_status import ExitStatus
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.manifest.source import MANIFEST
from puller.reporting.log import Log
from puller.reporting.report import BundleReport, Event, Health, State, Summary, told_failures
from puller.reporting.run_problems import RunProblems, sentence_of
from puller.resources.remote import fetch_url
from puller.run.policy.quarantine import Quarantine
from puller.run.rollback import find_rollback_target
from puller.run.trials import Trial, Trials
from puller.state.directories import Directories
from puller.system.local import LocalSystem
from puller.system.signals import StopRequests

_MOST_CUT_SHORT = 2
"""Attempts in a row: one can be anybody's power cut."""


class Means(msgspec.Struct, frozen=True):
    """What bundles are enforced with, the same for all of a run."""

    store: Store
    directories: Directories
    inputs: Inputs
    settings: Settings
    stops: StopRequests
    log: Log
    problems: RunProblems
    trials: Trials
    quarantine: Quarantine
    detailed_exitcodes: bool = False


class Offer(Protocol):
    """What the site has for this host."""

    def obtained(self, current: Installed | None) -> Installed | None:
        """The bundle that this host should run, unpacked; ``None`` when what is here stays, with the reason noted."""


class Enforcement(msgspec.Struct):
    """Of the bundle ``report.name``, in one run; what is done is put into ``report``."""

    means: Means
    report: BundleReport
    give_up_after: int | None = None
    """What this host's operator says in the place of the manifest."""
    _obtained: str = ""
    """SHA-256 of what the site has for this host."""

    def enforce(self, offer: Offer | None) -> None:
        """Apply the best candidate; a problem with one is noted and leads to the next."""
        if not self._has_enforced(offer):
            status = ExitStatus.HEALTH_FAILED_TWICE if self.report.given_up else ExitStatus.NOTHING_TO_ENFORCE
            self.report.outcome = "nothing to enforce"
            self._error("there is no usable bundle on this host", status)
        self._prune()

    def wait(self, offer: Offer | None, why: str) -> None:
        """Apply nothing; only have what will be needed when that is over."""
        current = self._current()
        if current is not None:
            self.report.version, self.report.sha256 = current.version, current.sha256
        self._obtain(offer, current)
        self.report.outcome = f"not applied: {why}"
        if offer is not None:  # else it is not known what will be needed
            self._prune()

    # Which bundle

    def _has_enforced(self, offer: Offer | None) -> bool:
        for bundle in self._candidates(offer):
            manifest = self._understood(bundle)
            if manifest is None or not self._is_fit(bundle):
                continue
            self.means.stops.check()
            with self.means.stops.deferred():  # a run that is asked to stop leaves no attempt without an end
                if self._is_brought_in(bundle, manifest):
                    return True
        return False

    def _current(self) -> Installed | None:
        """What is enforced now; when that is damaged, what there is to roll back to instead, with the damage noted."""
        try:
            return self.means.store.current(self.report.name)
        except BundleError as error:
            self.means.problems.warn(str(error))
        return self._rollback_target()

    def _rollback_target(self, except_for: str = "") -> Installed | None:
        return find_rollback_target(
            self.means.store, self.means.quarantine, self.report.name, except_for=except_for
        )

    def _obtain(self, offer: Offer | None, current: Installed | None) -> Installed | None:
        """What the site has for this host, unpacked."""
        published = offer.obtained(current) if offer is not None else None
        self._obtained = published.sha256 if published else ""
        return published

    def _candidates(self, offer: Offer | None) -> Iterator[Installed]:
        """What could be applied, the best first: published, current, last good."""
        current = self._current()
        published = self._obtain(offer, current)
        seen: set[str] = set()
        for bundle in (published, current, self._linked("good")):
            if bundle is None or bundle.sha256 in seen or self._is_quarantined(bundle):
                continue
            seen.add(bundle.sha256)
            yield bundle
        if current is not None and self._is_quarantined(current):  # a rollback that a crash has cut short
            back = self._rollback_target(except_for=current.sha256)
            if back is not None and back.sha256 not in seen:
                yield back

    def _linked(self, link: str) -> Installed | None:
        with contextlib.suppress(StoreError):
            found: Installed | None = getattr(self.means.store, link)(self.report.name)
            return found
        return None

    def _is_quarantined(self, bundle: Installed) -> bool:
        return self.means.quarantine.find(bundle.sha256) is not None

    def _understood(self, bundle: Installed) -> Manifest | None:
        """The manifest of a bundle; ``None`` with the reason noted when it is not valid on this host."""
        try:
            return self._manifest(bundle)
        except PullerError as error:
            self.report.held = f"{_named(bundle)} is rejected: {str(error).splitlines()[0]}"
            self.means.problems.error(f"{_named(bundle)} is rejected:\n{error}", error.exit_status)
            return None
        except Exception as error:  # noqa: BLE001  one that cannot be read keeps no other from being enforced
            self._hold(error)
            return None

    def _manifest(self, bundle: Installed) -> Manifest:
        name = f"{bundle.name}-{bundle.version}/{MANIFEST}"
        return load_manifest(bundle.path / MANIFEST, name, self.means.inputs)

    def _hold(self, error: Exception) -> None:
        self.report.held = self.means.problems.caught(error)

    # Trial

    def _is_brought_in(self, bundle: Installed, manifest: Manifest) -> bool:
        """Make it current and apply it; false with the reason noted when that cannot even begin."""
        try:
            trial = self._begun(bundle, manifest)
            self._activate(bundle)
        except (BundleError, OSError) as error:
            self._hold(error)
            self._end(bundle)
            return False
        self._apply(bundle, manifest, trial)
        return True

    def _is_fit(self, bundle: Installed) -> bool:
        """Whether a bundle may be applied, given how earlier attempts ended; one that may not goes into quarantine."""
        trial = self.means.trials.find(bundle)
        if trial is None or not (how := trial.interruption(self.means.trials.boot)):
            return True
        times = trial.cut_short + 1
        what = f"{_named(bundle)}: the last run was cut short while it applied it ({how})"
        if times < _MOST_CUT_SHORT or self._rollback_target(except_for=bundle.sha256) is None:
            self.means.problems.warn(f"{what}; trying it again")
            return True
        reason = f"{times} runs in a row were cut short while they applied it, at last because {how}"
        self._give_up(
            bundle, reason, BundleReport(name=bundle.name, version=bundle.version, sha256=bundle.sha256)
        )
        return False

    def _begun(self, bundle: Installed, manifest: Manifest) -> Trial | None:
        """The trial of a bundle that has not passed yet, on record before anything is changed.

        Raises ``OSError`` when it cannot be recorded, unless the bundle is enforced already.
        """
        good, current = self._linked("good"), self._linked("current")
        if self.means.settings.noop or (good is not None and good.sha256 == bundle.sha256):
            return None
        try:
            known = self.means.trials.find(bundle)
            before = known.health if known else self._health_before(current, bundle, manifest)
            return self.means.trials.begin(bundle, before)
        except OSError as error:
            if current is None or current.sha256 != bundle.sha256:
                raise
            self.means.problems.caught(error)
            return None

    def _health_before(
        self, current: Installed | None, bundle: Installed, manifest: Manifest
    ) -> dict[str, Health]:
        if current is None or not _has_health_checks(manifest):
            return {}
        from puller.run.health_gate import health_before

        try:
            enforced = manifest if current.sha256 == bundle.sha256 else self._manifest(current)
        except PullerError:  # it was understood when it was applied; facts change
            return {}
        self.means.log.notice(f"{_named(bundle)}: asking the health checks before the change")
        return health_before(enforced, manifest, LocalSystem())

    def _activate(self, bundle: Installed) -> None:
        current = self._linked("current")
        if self.means.settings.noop or (current is not None and current.sha256 == bundle.sha256):
            return
        try:
            self.means.store.activate(bundle.name, bundle.sha256)
        except BundleError as error:
            if current is not None or self._linked("good") != bundle:
                raise
            self.means.problems.caught(error)  # the link is damaged and the disk full; this is what there is
            return
        was = f", was {current.version}" if current else ""
        self.means.log.notice(f"{_named(bundle)} is now enforced{was}")

    # Applying

    def _apply(self, bundle: Installed, manifest: Manifest, trial: Trial | None) -> None:
        applied = self._applied(bundle, manifest)
        if self.means.settings.noop:
            return
        if self.report.given_up:
            self._conclude_return(bundle, applied)
        elif applied is None or self.means.stops.reason:
            self._end(bundle)
        elif trial and (
            failure := self._failure(manifest, applied, trial) or self._worn_out(manifest, trial)
        ):
            self._roll_back(bundle, failure)
        else:
            self._settle(bundle)

    def _applied(self, bundle: Installed, manifest: Manifest) -> Applied | None:
        """What became of the resources; ``None`` with the reason noted when none could be applied."""
        report, problems, started = self.report, self.means.problems, time.perf_counter()
        report.version, report.sha256 = bundle.version, bundle.sha256
        try:
            applied = apply_manifest(
                manifest,
                self.means.settings,
                self.means.stops,
                pending=self.means.directories.pending_refreshes,
                scope=bundle.name,
                fetch=fetch_url,
            )
        except OSError as error:
            problems.caught(error)
            report.outcome = "not applied"
            return None
        for note in [*manifest.warnings, *applied.notes]:
            problems.warn(note)
        report.outcome, report.events = "applied", applied.events
        report.summary = Summary.of(applied.events, time.perf_counter() - started)
        self.means.log.notice(f"{_named(bundle)}: {report.summary}")
        problems.count(report.summary.exit_status(detailed=self.means.detailed_exitcodes))
        return applied

    def _failure(self, manifest: Manifest, applied: Applied, trial: Trial) -> str:
        """Why a bundle on trial is given up; empty when it is kept."""
        if not _has_health_checks(manifest):
            return ""
        from puller.run.health_gate import find_failure

        return find_failure(manifest, applied.events, trial.health, LocalSystem())

    def _worn_out(self, manifest: Manifest, trial: Trial) -> str:
        """Why a bundle on trial is given up after so many runs; empty when it is not.

        Only a bundle that has passed here is worth rolling back to for that: another may fail for the same reason.
        """
        limit = manifest.give_up_after if self.give_up_after is None else self.give_up_after
        good = self._linked("good")
        if not limit or not self._is_failed or good is None or self._is_quarantined(good):
            return ""
        runs = trial.failed + 1
        if runs < limit:
            left = f"{runs} of {limit} runs in a row after which it is given up"
            self.means.log.notice(f"{self.report.name} {self.report.version}: resources failed in {left}")
            return ""
        told = "; ".join(told_failures(self.report.events, most=3))
        return (
            f"resources failed in {runs} runs in a row, at last {told}"
            if runs > 1
            else f"resources failed: {told}"
        )

    @property
    def _is_failed(self) -> bool:
        return bool(self.report.summary.failed or self.report.summary.unmet)

    def _settle(self, bundle: Installed) -> None:
        """A bundle that was applied without failures is the one to roll back to."""
        if self._is_failed:
            self._end(bundle, failed=True)
            return
        self._record(lambda: self.means.store.mark_good(bundle.name, bundle.sha256))
        self._record(lambda: self.means.trials.close(bundle.name))

    def _end(self, bundle: Installed, *, failed: bool = False) -> None:
        """Nothing was cut short; the bundle stays on trial if it is."""
        self._record(lambda: self.means.trials.end(bundle, failed=failed))

    def _prune(self) -> None:
        """Remove the bundles that nobody needs.

        What the site has stays, also where it is rejected or has to wait, or every run would download it again.
        """
        if not self.means.settings.noop:
            self._record(lambda: self.means.store.prune(self.report.name, except_for=self._obtained))

    def _record(self, save: Callable[[], object]) -> None:
        """What is remembered of something done; that it cannot be is no reason to hide what was done."""
        try:
            save()
        except OSError as error:
            self.means.problems.warn(sentence_of(error))
        except BundleError as error:
            self.means.problems.warn(str(error))

    # The rollback

    def _roll_back(self, bundle: Installed, failure: str) -> None:
        """Give up a bundle that was applied, and apply the last good one again."""
        back = self._rollback_target(except_for=bundle.sha256)
        if back is None:
            self.means.problems.warn(
                f"{_named(bundle)}: {failure}; there is no other bundle on this host to roll back to"
            )
            self._settle(bundle)
            return
        self._give_up(bundle, failure, msgspec.structs.replace(self.report))
        manifest = self._understood(back)
        try:
            if manifest is None:
                raise StoreError(back.name, f"{back.version} is not understood any more")
            self._activate(back)
        except (BundleError, OSError) as error:
            self._error(f"cannot roll back to {back.version}: {error}", ExitStatus.HEALTH_FAILED_TWICE)
            return
        self._conclude_return(back, self._applied(back, manifest))

    def _conclude_return(self, back: Installed, applied: Applied | None) -> None:
        if applied is None or _has_failed(applied.events):
            self._error(f"rolled back to {back.version}, and not all is well", ExitStatus.HEALTH_FAILED_TWICE)
        if applied is None or self.means.stops.reason:
            self._end(back)
        else:
            self._settle(back)

    def _give_up(self, bundle: Installed, reason: str, given_up: BundleReport) -> None:
        given_up.outcome = f"given up: {reason}"
        self.report.given_up = given_up
        self.report.held = f"{_named(bundle)} is in quarantine: {reason}"
        self._error(f"{bundle.version} is given up: {reason}", ExitStatus.HEALTH_FAILED)
        failed = told_failures(given_up.events)
        self._record(
            lambda: self.means.quarantine.add(bundle.name, bundle.version, bundle.sha256, reason, failed)
        )
        self._record(lambda: self.means.trials.close(bundle.name))

    def _error(self, sentence: str, status: ExitStatus) -> None:
        self.means.problems.error(f"{self.report.name}: {sentence}", status)


def _named(bundle: Installed) -> str:
    return f"{bundle.name} {bundle.version}"


def _has_health_checks(manifest: Manifest) -> bool:
    return any(declaration.properties.health_checks for declaration in manifest.declarations)


def _has_failed(events: list[Event]) -> bool:
    """Whether the last good bundle is not what it was: a health check that fails may have failed all along."""
    return any(
        (event.state is State.FAILED and not event.health_checks)
        or any(not result.status.in_order for result in event.health_checks)
        for event in events
    )
