"""Bringing this host to one bundle: candidates, trial, application, health, and the rollback.

* The newest candidate that can be had, is understood and is not in quarantine is applied.
* A bundle that has not passed yet is on trial (``puller.run.trials``). One that fails its trial is given up: it goes
  into quarantine, and the last good bundle is applied again.
* Nothing is given up without a bundle to roll back to: the first one on a host stays, whatever its checks say.
"""

from collections.abc import Iterator

import msgspec

from bundles.errors import BundleError
from bundles.store.contents import Installed
from puller.engine.apply import Applied
from puller.exit_status import ExitStatus
from puller.manifest.manifest import Manifest
from puller.reporting.report import BundleReport
from puller.run.application import Application, Means
from puller.run.attempts import Attempts
from puller.run.rollback import Rollback
from puller.run.site import Offer
from puller.run.trials import Trial

_MOST_CUT_SHORT = 2
"""Attempts in a row: one can be anybody's power cut."""


class Enforcement(msgspec.Struct, frozen=True):
    """The enforcement of the bundle ``report.name`` in one run; what is done is put into ``report``.

    1. Candidates, the best first (``puller.run.site``, ``puller.run.rollback``): the site's offer, what is current, the
       last good one; none that is in quarantine.
    2. The manifest of the candidate is understood on this host (``puller.manifest``), else the next one is tried.
    3. Earlier attempts at it (``puller.run.attempts``): after two in a row that were cut short it goes to step 8.
    4. The trial is put on record, with what the health checks say before the change (``puller.run.trials``).
    5. It becomes current, and is applied (``puller.run.application``, ``puller.engine``).
    6. Health gate (``puller.run.health_gate``): what it has broken, and resources that failed in too many runs.
    7. It passes, and is the one to roll back to; or stays on trial; or is given up, when there is another one.
    8. Quarantine: given up by its digest, before anything else changes (``puller.run.policy.quarantine``).
    9. Rollback: the last good one becomes current and is applied (``puller.run.rollback``).
    10. Bundles that nobody needs any more are removed (``bundles.store``).
    """

    means: Means
    report: BundleReport
    application: Application
    attempts: Attempts
    rollback: Rollback

    @classmethod
    def of(cls, means: Means, report: BundleReport, give_up_after: int | None) -> "Enforcement":
        """``give_up_after`` is what this host's operator says in the place of the manifest."""
        application = Application(means, report)
        attempts = Attempts(means, report, give_up_after)
        return cls(means, report, application, attempts, Rollback(means, report, application, attempts))

    def enforce(self, offer: Offer | None) -> None:
        """Apply the best candidate; a problem with one is noted and leads to the next."""
        # 1. Candidates
        current = self._current()
        published = offer.obtained(current) if offer is not None else None
        # 2. to 9., for one after the other
        if not any(self._is_enforced(bundle) for bundle in self._candidates(published, current)):
            status = ExitStatus.HEALTH_FAILED_TWICE if self.report.given_up else ExitStatus.NOTHING_TO_ENFORCE
            self.report.outcome = "nothing to enforce"
            self.means.problems.error(f"{self.report.name}: there is no usable bundle on this host", status)
        # 10. Prune
        self._prune(published)

    def wait(self, offer: Offer | None, why: str) -> None:
        """Apply nothing; only have what will be needed when that is over."""
        current = self._current()
        if current is not None:
            self.report.version, self.report.sha256 = current.version, current.sha256
        published = offer.obtained(current) if offer is not None else None
        self.report.outcome = f"not applied: {why}"
        if offer is not None:  # else it is not known what will be needed
            self._prune(published)

    def _current(self) -> Installed | None:
        """The bundle that is enforced; when that is damaged, the one to roll back to, with the damage noted."""
        try:
            return self.means.store.current(self.report.name)
        except BundleError as error:
            self.means.problems.warn(str(error))
        return self.rollback.target()

    def _candidates(self, published: Installed | None, current: Installed | None) -> Iterator[Installed]:
        """All that could be applied, the best first: published, current, last good.

        Asked for one by one, because the attempt at one may put it into quarantine.
        """
        seen: set[str] = set()
        for bundle in (published, current, self.means.good(self.report.name)):
            if bundle is None or bundle.sha256 in seen or self.means.is_quarantined(bundle):
                continue
            seen.add(bundle.sha256)
            yield bundle
        # A rollback that a crash has cut short: what is current was given up.
        if current is not None and self.means.is_quarantined(current):
            back = self.rollback.target(except_for=current.sha256)
            if back is not None and back.sha256 not in seen:
                yield back

    def _is_enforced(self, bundle: Installed) -> bool:
        """Enforce one candidate; false with the reason noted when it cannot be."""
        # 2. Understood here?
        manifest = self.application.understood(bundle)
        # 3. Earlier attempts
        if manifest is None or not self._is_fit(bundle):
            return False
        self.means.stops.check()
        with self.means.stops.deferred():  # a run that is asked to stop leaves no attempt without an end
            # 4. On trial
            try:
                trial = self.attempts.begin(bundle, manifest)
                # 5. Current, and applied
                self.application.activate(bundle)
            except (BundleError, OSError) as error:
                self.report.held = self.means.problems.caught(error)
                self.attempts.end(bundle)
                return False
            applied = self.application.apply(bundle, manifest)
            if not self.means.settings.noop:
                self._conclude(bundle, manifest, trial, applied)
            return True

    def _is_fit(self, bundle: Installed) -> bool:
        """Whether a bundle may be applied, given how earlier attempts ended; one that may not goes into quarantine."""
        times, how = self.attempts.cut_short(bundle)
        if not times:
            return True
        if times < _MOST_CUT_SHORT or self.rollback.target(except_for=bundle.sha256) is None:
            what = f"the last run was cut short while it applied it ({how})"
            self.means.problems.warn(f"{bundle}: {what}; trying it again")
            return True
        reason = f"{times} runs in a row were cut short while they applied it, at last because {how}"
        given_up = BundleReport(name=bundle.name, version=bundle.version, sha256=bundle.sha256)
        self.rollback.give_up(bundle, reason, given_up)  # 8.; step 9 is the next candidate
        return False

    def _conclude(
        self, bundle: Installed, manifest: Manifest, trial: Trial | None, applied: Applied | None
    ) -> None:
        """Decide about a bundle that was applied; ``trial`` is ``None`` when it had passed before."""
        if self.report.given_up:  # in step 3: this one was applied in its place
            self.rollback.conclude(bundle, applied)
        elif applied is None or self.means.stops.reason:  # neither proves nor disproves anything
            self.attempts.end(bundle)
        # 6. Health gate
        elif trial and (failure := self.attempts.failure(manifest, applied, trial)):
            # 7. to 9. Given up, if it can be
            self.rollback.roll_back(bundle, failure)
        else:
            # 7. Passed, or still on trial
            self.attempts.settle(bundle)

    def _prune(self, published: Installed | None) -> None:
        """Remove the bundles that nobody needs.

        What the site has stays, also where it is rejected or has to wait, or every run would download it again.
        """
        if not self.means.settings.noop:
            with self.means.problems.remembering():
                self.means.store.prune(self.report.name, except_for=published.sha256 if published else "")
