"""Bringing this host to one bundle: its candidates, its trial, and what is decided about it.

* The newest candidate that can be had, is understood, fits with the bundles before it and is not in quarantine is
  enforced.
* A bundle that has not passed yet is on trial (``puller.run.trials``). One that fails its trial is given up: it goes
  into quarantine, and the last good bundle is applied again.
* Nothing is given up without a bundle to roll back to: the first one on a host stays, whatever its checks say.

All bundles of a host are applied together: ``puller.run.reconciliation`` is the list of the steps.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from bundles.errors import BundleError
from bundles.store.contents import Installed
from foundation.problems import Problem, ProblemCode, problems_of
from puller.errors import PullerError
from puller.exit_status import ExitStatus
from puller.manifest.declaration import Declaration
from puller.manifest.host_catalog import HostCatalog
from puller.manifest.manifest import Manifest
from puller.reporting.report import BundleReport, Event, HeldBecause
from puller.run.application import Application, Means, read_manifest
from puller.run.attempts import Attempts
from puller.run.left.declared import whole_paths
from puller.run.left.leftovers import InForce
from puller.run.rollback import Rollback
from puller.run.site import Offer
from puller.run.trials import Trial
from puller.values.reference import Reference

_MOST_CUT_SHORT = 2
"""Attempts in a row: one can be anybody's power cut."""


class Choice(msgspec.Struct, frozen=True):
    """The bundle of one name that is enforced in this run."""

    bundle: Installed
    manifest: Manifest
    """As it is on this host."""
    number: int
    """That of its manifest in the catalog of the host."""


class Enforcement(msgspec.Struct):
    """The enforcement of the bundle ``report.name`` in one run; what is done is put into ``report``."""

    means: Means
    report: BundleReport
    application: Application
    attempts: Attempts
    rollback: Rollback
    current: Installed | None = None
    """The bundle that was enforced before this run."""
    published: Installed | None = None
    """The site's offer."""
    choice: Choice | None = None
    refused: dict[str, str] = {}
    """Why candidates are not tried in this run, by their SHA-256."""
    rejected: list[tuple[Installed, Exception]] = []
    """The candidates that were not understood, or do not fit, when the last choice was made."""
    told: set[str] = set()
    """The rejected candidates of which that was said, by their SHA-256."""
    trial: Trial | None = None
    """``None`` when the bundle had passed before."""
    begun: Installed | None = None
    """The bundle of which an attempt is on record."""
    outcomes: list[tuple[Declaration, Event]] | None = None
    """All resources that the bundle has a part in, and what became of them; ``None`` when it was not applied."""
    back: Installed | None = None
    """The bundle to roll back to, after what was applied in this run was given up."""
    is_left_out: bool = False
    """Whether a partial run was asked for nothing of it: the rollback of another one takes up no release of it."""
    stays: bool = False
    """Whether it failed its trial and is not given up, for want of another one."""

    @classmethod
    def of(cls, means: Means, report: BundleReport, give_up_after: int | None) -> "Enforcement":
        """``give_up_after`` is what this host's operator says in the place of the manifest."""
        attempts = Attempts(means, report, give_up_after)
        return cls(means, report, Application(means, report), attempts, Rollback(means, report, attempts))

    # Before anything is applied

    def obtain(self, offer: Offer | None) -> None:
        """Have what the site offers, and know what is enforced now."""
        self.current = self._current()
        self.published = offer.obtained(self.current) if offer is not None else None

    def wait(self, offer: Offer | None, why: str) -> None:
        """Apply nothing; only have what will be needed when that is over."""
        self.obtain(offer)
        if self.current is not None:
            self.report.version, self.report.sha256 = self.current.version, self.current.sha256
        self.report.outcome = f"not applied: {why}"
        if offer is not None:  # else it is not known what will be needed
            self.prune()

    def choose(self, before: HostCatalog) -> HostCatalog:
        """Choose the best candidate that fits; gives the catalog with it, or ``before`` itself when there is none."""
        self.choice, self.rejected = None, []
        known = before.references()
        for bundle in self._candidates():
            try:
                manifest = read_manifest(bundle, self.means.inputs, known)
                if not self._is_fit(bundle):
                    continue
                catalog = before.joined(manifest)
            except Exception as error:  # noqa: BLE001  one that cannot be read keeps no other from being enforced
                self.rejected.append((bundle, error))
            else:
                self.choice = Choice(bundle, manifest, len(before.manifests))
                return catalog
        return before

    def _current(self) -> Installed | None:
        """The bundle that is enforced; when that is damaged, the one to roll back to, with the damage noted."""
        try:
            return self.means.store.current(self.report.name)
        except BundleError as error:
            for problem in problems_of(error):
                self.means.problems.warn(problem)
        return self.rollback.target()

    def _candidates(self) -> Iterator[Installed]:
        """All that could be applied, the best first: published, current, last good.

        After what was applied in this run is given up, it is the one to roll back to alone. Asked for one by one,
        because the attempt at one may put it into quarantine.
        """
        if self.back is not None:
            if self.back.sha256 not in self.refused:
                yield self.back
            return
        seen: set[str] = set()
        published = None if self.is_left_out else self.published
        for bundle in (published, self.current, self.means.good(self.report.name)):
            if bundle is None or bundle.sha256 in seen or self.means.is_quarantined(bundle):
                continue
            seen.add(bundle.sha256)
            if bundle.sha256 not in self.refused:
                yield bundle
        # What is current was given up, by this run or by one that a crash has cut short.
        if self.current is not None and self.means.is_quarantined(self.current):
            back = self.rollback.target(except_for=self.current.sha256)
            if back is not None and back.sha256 not in seen:
                yield back

    def _is_fit(self, bundle: Installed) -> bool:
        """Whether a bundle may be applied, given how earlier attempts ended; one that may not goes into quarantine."""
        times, how = (0, "") if bundle == self.begun else self.attempts.cut_short(bundle)
        if not times:
            return True
        if times < _MOST_CUT_SHORT or self.rollback.target(except_for=bundle.sha256) is None:
            what = f"the last run was cut short while it applied it ({how})"
            self.means.problems.warn(f"{bundle}: {what}; trying it again")
            return True
        reason = f"{times} runs in a row were cut short while they applied it, at last because {how}"
        given_up = BundleReport(name=bundle.name, version=bundle.version, sha256=bundle.sha256)
        self.rollback.give_up(bundle, reason, given_up)
        return False

    def tell_rejected(self) -> None:
        """Say why candidates were not chosen, and that there is none when it is so."""
        problems = self.means.problems
        for bundle, error in self.rejected:
            if bundle.sha256 in self.told:
                continue
            self.told.add(bundle.sha256)
            if isinstance(error, PullerError):
                self.report.held = f"{bundle} is rejected: {error.problems[0]}"
                self.report.held_because = HeldBecause.REJECTED
                problems.errors(error.problems, error.exit_status, f"{bundle} is rejected:\n{error}")
            else:
                self.report.held = problems.caught(error)
                self.report.held_because = HeldBecause.UNAVAILABLE
        for why in self.refused.values():
            self.report.held, self.report.held_because = why, HeldBecause.REJECTED
        if self.choice is None:
            self._tell_nothing()

    def _tell_nothing(self) -> None:
        if self.is_left_out or (self.back is not None and self.back.sha256 in self.refused):
            return
        if self.back is not None:
            what = f"{self.back.name}: {self.back.version} is not understood any more"
            self.rollback.cannot(self.back, what)
            return
        status = ExitStatus.HEALTH_FAILED_TWICE if self.report.given_up else ExitStatus.NOTHING_TO_ENFORCE
        self.report.outcome = "nothing to enforce"
        message = f"{self.report.name}: there is no usable bundle on this host"
        self.means.problems.error(Problem(code=ProblemCode.NOTHING_TO_ENFORCE, message=message), status)

    def begin(
        self,
        bundle: Installed,
        concerns: Sequence[Declaration],
        enforced: Callable[[], Iterable[Declaration]],
    ) -> None:
        """Put the attempt at what was chosen on record, and make it current; raises ``BundleError``, ``OSError``."""
        if self.begun is not None and self.begun != bundle and not self.report.given_up:
            self.attempts.end(self.begun)
        if self.begun != bundle:
            # What is rolled back to has been tried before, and is not tried anew.
            is_back = self.back is not None
            self.trial = None if is_back else self.attempts.begin(bundle, concerns, enforced)
            self.begun = bundle
        self.application.activate(bundle)

    def in_force(self, bundle: Installed, known: Callable[[], Collection[Reference]]) -> InForce:
        """The chosen bundle; on trial, with the paths that the one to roll back to makes whole by itself."""
        if self.trial is None and not self._is_unproven(bundle):
            return InForce(bundle.version, bundle.sha256, is_back=self.back is not None)
        whole: frozenset[str] = frozenset()
        back = self.rollback.target(except_for=bundle.sha256)
        if back is not None:
            with contextlib.suppress(PullerError):
                whole = whole_paths(read_manifest(back, self.means.inputs, known()).declarations)
        return InForce(bundle.version, bundle.sha256, False, whole, back.sha256 if back is not None else "")

    def _is_unproven(self, bundle: Installed) -> bool:
        """Whether it should be on trial: also where that could not be put on record."""
        is_asked = not self.means.settings.noop and self.back is None
        return is_asked and self.means.good(bundle.name) != bundle

    def refuse(self, bundle: Installed, error: Exception) -> None:
        """Do not try what was chosen in this run: it could not be begun."""
        if self.back is not None:
            self.rollback.cannot(bundle, error)
        self.refused[bundle.sha256] = self.means.problems.caught(error)
        self.attempts.end(bundle)
        self.begun = None

    # After it was applied

    def gives_up(self, choice: Choice) -> bool:
        """Whether what was applied has failed its trial and is given up; it is in quarantine then."""
        if self._is_undecided or self.trial is None or self.stays:
            return False
        failure = self.attempts.failure(choice.manifest, self.outcomes or (), self.trial)
        if not failure:
            return False
        self.back = self.rollback.roll_back(choice.bundle, failure)
        self.stays = self.back is None
        return not self.stays

    @property
    def _is_undecided(self) -> bool:
        """Whether the application neither proves nor disproves anything."""
        return self.outcomes is None or bool(self.means.stops.reason) or self.report.given_up is not None

    def conclude(self, bundle: Installed) -> None:
        """Decide about what is enforced at last: it passes, or stays on trial."""
        if self.report.given_up is not None:
            self.rollback.conclude(bundle, self.outcomes)
        elif self._is_undecided or self.outcomes is None or self.means.settings.only:
            self.attempts.end(bundle)  # a part of it proves nothing of the whole either
        else:
            self.attempts.settle(bundle, self.outcomes)

    def prune(self) -> None:
        """Remove the bundles that nobody needs.

        What the site has stays, also where it is rejected or has to wait, or every run would download it again.
        """
        if not self.means.settings.noop:
            published = self.published.sha256 if self.published else ""
            with self.means.problems.remembering():
                self.means.store.prune(self.report.name, except_for=published)
