"""One bundle in one run: the record of what happened to it, and the effects of each decision about it.

* ``puller.run.policy.decision`` decides, and ``puller.run.agent`` calls the steps in order.
* A manifest that is invalid on this host, cannot be read, or contradicts an earlier bundle affects only its own bundle.
* ``current`` is changed before the first resource. After a crash, the next run continues with it.
* An attempt is on record before the first change, and its end after the last one. An attempt without an end was cut
  short.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from bundles.errors import BundleError, StoreError
from bundles.format.release import TrialRule, requirement_of
from bundles.store.contents import Installed
from bundles.store.store import Store
from foundation.problems import Problem, ProblemCode, problems_of
from foundation.quantities import counted
from foundation.times import iso_text, parse_moment
from puller.config.configuration import BundleChoice
from puller.engine.engine import Settings
from puller.errors import PullerError
from puller.exit_status import ExitStatus
from puller.manifest.declaration import Declaration
from puller.manifest.graph.host_catalog import HostCatalog
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import MANIFEST, Inputs, Manifest
from puller.reporting.report import (
    BundleReport,
    Event,
    Health,
    HoldReason,
    State,
    Summary,
    failure_texts,
)
from puller.reporting.run_log import RunProblems
from puller.reporting.sinks import MessageId
from puller.run.judging import (
    Outcome,
    find_failure,
    find_failure_between_runs,
    has_failed,
    have_health_checks,
    health_before,
    is_broken,
    restarts_of,
)
from puller.run.leftovers.declared_resources import whole_paths
from puller.run.leftovers.leftovers import InForce, Leftovers
from puller.run.policy.decision import Decision, Offer, Result, Situation, Step, Usability, Version, decide
from puller.run.policy.holds import Quarantine
from puller.run.policy.operator_requests import find_fallback_bundle
from puller.run.trials import Trial, Trials, restarted
from puller.state import Directories
from puller.system.local import LocalSystem
from puller.system.processes import StopRequests
from puller.values.common_properties import Reference


class RunContext(msgspec.Struct, frozen=True):
    """Everything that the steps of a run work with."""

    store: Store
    directories: Directories
    inputs: Inputs
    settings: Settings
    stops: StopRequests
    problems: RunProblems
    trials: Trials
    quarantine: Quarantine
    leftovers: Leftovers
    is_verified: bool = False
    """Whether this run has verified the signatures of the site."""

    def find_current(self, name: str) -> Installed | None:
        """Return the current version. ``None`` also if it is damaged."""
        return _find_intact(self.store.current, name)

    def find_good(self, name: str) -> Installed | None:
        """Return the last version that passed. ``None`` also if it is damaged."""
        return _find_intact(self.store.good, name)

    def find_previous(self, name: str) -> Installed | None:
        """Return the version before the current one. ``None`` also if it is damaged."""
        return _find_intact(self.store.previous, name)

    def is_quarantined(self, bundle: Installed) -> bool:
        """Return whether this host does not try a version again."""
        return self.quarantine.find(bundle.sha256) is not None


def _find_intact(find: Callable[[str], Installed | None], name: str) -> Installed | None:
    with contextlib.suppress(StoreError):
        return find(name)
    return None


def read_manifest(bundle: Installed, inputs: Inputs, known: Collection[Reference] = ()) -> Manifest:
    """Return the manifest of a bundle on this host. It may refer to the ``known`` resources of other bundles.

    Raise ``PullerError`` if it is not valid on this host.
    """
    # Messages contain the version, because the directory in the store is named by a digest.
    return load_manifest(bundle.path / MANIFEST, f"{bundle.name}-{bundle.version}/{MANIFEST}", inputs, known)


class Chosen(msgspec.Struct, frozen=True):
    """The version that is applied in this run."""

    bundle: Installed
    manifest: Manifest
    number: int
    """The place of its manifest in the catalog of the host."""


class Attempt(msgspec.Struct, frozen=True):
    """An attempt on record."""

    bundle: Installed
    trial: Trial | None
    """``None``: the version had passed before, or the trial could not be recorded."""


class BundleRun(msgspec.Struct):
    """The record of one bundle in this run. ``report`` is the part that is persisted."""

    context: RunContext
    choice: BundleChoice
    report: BundleReport
    current: Installed | None = None
    """The version before this run. If it is damaged, the version to return to."""
    good: Installed | None = None
    """The last version that passed before this run."""
    offer: Installed | None = None
    """The version that the site offers, unpacked."""
    is_pinned: bool = False
    """Whether a pin selects the offer."""
    offered: Offer | None = None
    """The offer as the site signed it. ``None`` in a run without the site."""
    chosen: Chosen | None = None
    refused: dict[str, str] = {}
    """Versions that are not tried again in this run, by SHA-256, with the reason."""
    rejected: list[tuple[Installed, Exception]] = []
    """Invalid and conflicting versions of the last choice."""
    reported: set[str] = set()
    """Rejected versions that were reported, by SHA-256."""
    attempt: Attempt | None = None
    outcomes: list[Outcome] | None = None
    """All resources that the bundle declares, shares, refreshes or has undone. ``None``: it was not applied."""
    failure: str = ""
    """Why the applied version has failed its trial."""
    returned_to: Installed | None = None
    """The version that replaces a version which failed its trial in this run."""
    is_left_out: bool = False
    """Whether a partial run leaves the bundle out. A rollback of another bundle then keeps its version."""

    @property
    def name(self) -> str:
        """The name of the bundle."""
        return self.report.name

    @property
    def trial(self) -> Trial | None:
        """The trial of the version that was begun."""
        return self.attempt.trial if self.attempt is not None else None

    # Choose, unpack

    def find_current(self) -> None:
        """Set the version that is enforced before this run. Report damage to it."""
        try:
            self.current = self.context.store.current(self.name)
        except BundleError as error:
            for problem in problems_of(error):
                self.context.problems.warn(problem)
            self.current = self.find_fallback()

    def report_offer(self, offer: Offer) -> None:
        """Report an offer that has to wait."""
        self.is_pinned, self.offered = offer.is_pinned, offer
        if offer.waits_until:
            self.report.waits_until = iso_text(offer.waits_until)
        if offer.held:
            self.report.held, self.report.held_because = offer.held, offer.held_because
            sentence = f"held: {offer.held}"
            self.context.problems.log.notice(sentence, kind=MessageId.BUNDLE_HELD, bundle=self.name)
            self.context.problems.count(ExitStatus.HELD)

    def report_unavailable(self, error: Exception) -> None:
        """Report an offer that cannot be fetched, verified or unpacked."""
        self.report.held = self.context.problems.caught(error)
        self.report.held_because = HoldReason.UNAVAILABLE

    # Prepare

    def choose(self, before: HostCatalog) -> HostCatalog:
        """Choose the version to apply. Return the catalog with its manifest. Without a version, return ``before``.

        1. Ask for the next step.
        2. Read the manifest of a version, or give up a version, and ask again.
        3. Join the manifest of the chosen version with those of the bundles before it. If they conflict, ask again.
        """
        self.chosen, self.rejected = None, []
        self.good = self.context.find_good(self.name)
        previous = self.context.find_previous(self.name) if self._needs_previous() else None
        usability = dict.fromkeys(self.refused, Usability.UNUSABLE)
        manifests: dict[str, Manifest] = {}
        while True:
            # 1.
            decision = decide(self._situation(previous, usability))
            bundle = self._bundle_of(decision, previous)
            if bundle is None:
                return before
            try:
                # 2.
                if decision.step is Step.READ:
                    usability[bundle.sha256] = Usability.INVALID
                    manifests[bundle.sha256] = read_manifest(bundle, self.context.inputs, before.references())
                    usability[bundle.sha256] = Usability.FITS
                elif decision.step is Step.GIVE_UP:
                    usability[bundle.sha256] = Usability.UNUSABLE  # also if it cannot be quarantined
                    self._give_up_interrupted(bundle)
                # 3.
                else:
                    usability[bundle.sha256] = Usability.CONFLICTS
                    self._report_interruption(bundle)
                    catalog = before.joined(manifests[bundle.sha256])
                    self.chosen = Chosen(bundle, manifests[bundle.sha256], len(before.manifests))
                    return catalog
            except Exception as error:  # noqa: BLE001  an unreadable version must not stop the others
                self.rejected.append((bundle, error))

    def _situation(self, previous: Installed | None, usability: dict[str, Usability]) -> Situation:
        """Return the situation before a version is applied."""

        def version(bundle: Installed | None) -> Version | None:
            if bundle is None:
                return None
            return Version(
                bundle.sha256,
                usability.get(bundle.sha256, Usability.UNREAD),
                self.context.is_quarantined(bundle),
                self._interruptions(bundle)[0],
            )

        offer = None if self.is_left_out else version(self.offer)
        return Situation(
            pinned=offer if self.is_pinned else None,
            published=None if self.is_pinned else offer,
            current=version(self.current),
            good=version(self.good),
            previous=version(previous),
            returned_to=version(self.returned_to),
            gave_up=self.report.given_up is not None,
        )

    def _needs_previous(self) -> bool:
        """Return whether the previous version can matter. Reading it costs a walk through its files."""
        if self.current is not None and self.context.is_quarantined(self.current):
            return True
        return any(
            bundle and self._interruptions(bundle)[0] for bundle in (self.offer, self.current, self.good)
        )

    def _bundle_of(self, decision: Decision, previous: Installed | None) -> Installed | None:
        bundles = (self.returned_to, self.offer, self.current, self.good, previous)
        sha256 = decision.version.sha256 if decision.version is not None else ""
        return next((bundle for bundle in bundles if bundle is not None and bundle.sha256 == sha256), None)

    def _interruptions(self, bundle: Installed) -> tuple[int, str]:
        if self.attempt is not None and self.attempt.bundle == bundle:
            return 0, ""
        return self.context.trials.find_interruptions(bundle)

    def _report_interruption(self, bundle: Installed) -> None:
        times, how = self._interruptions(bundle)
        if times:
            detail = f"the last run was interrupted while it applied this version ({how})"
            self.context.problems.warn(f"{bundle}: {detail}, trying again")

    def _give_up_interrupted(self, bundle: Installed) -> None:
        times, how = self._interruptions(bundle)
        reason = (
            f"{times} consecutive runs were interrupted while they applied this version, "
            f"most recently because {how}"
        )
        self.give_up(
            bundle, reason, BundleReport(name=bundle.name, version=bundle.version, sha256=bundle.sha256)
        )

    def report_rejected(self) -> None:
        """Report the versions that were rejected, and the lack of any other version."""
        problems = self.context.problems
        for bundle, error in self.rejected:
            if bundle.sha256 in self.reported:
                continue
            self.reported.add(bundle.sha256)
            if isinstance(error, PullerError):
                self.report.held = f"{bundle} is rejected: {error.problems[0]}"
                self.report.held_because = HoldReason.REJECTED
                title = f"{bundle} is rejected"
                problems.errors(error.problems, error.exit_status, f"{title}:\n{error}", title)
            else:
                self.report_unavailable(error)
        for reason in self.refused.values():
            self.report.held, self.report.held_because = reason, HoldReason.REJECTED
        if self.chosen is None:
            self._report_nothing()

    def _report_nothing(self) -> None:
        if self.is_left_out or (self.returned_to is not None and self.returned_to.sha256 in self.refused):
            return
        if self.returned_to is not None:
            errors = (error for bundle, error in self.rejected if bundle == self.returned_to)
            error = next(errors, None)
            self._report_no_rollback(problems_of(error)[0] if error is not None else "it is not usable")
            return
        status = ExitStatus.HEALTH_FAILED_TWICE if self.report.given_up else ExitStatus.NOTHING_TO_ENFORCE
        self.report.outcome = "nothing to enforce"
        message = f"{self.name}: this host has no usable version of this bundle"
        self.context.problems.error(Problem(code=ProblemCode.NOTHING_TO_ENFORCE, message=message), status)

    def begin(
        self,
        bundle: Installed,
        concerns: Sequence[Declaration],
        enforced: Callable[[], Iterable[Declaration]],
    ) -> None:
        """Put the attempt at a version on record, then make the version current. Raise ``BundleError``, ``OSError``.

        ``concerns`` are the resources that the version is judged by, ``enforced`` returns those before this run.
        """
        attempt = self.attempt
        if attempt is not None and attempt.bundle != bundle and not self.report.given_up:
            self._end_attempt(attempt.bundle)
        if attempt is None or attempt.bundle != bundle:
            # The version that replaces another one was tried in an earlier run.
            is_tried = self.returned_to is not None
            trial = None if is_tried else self._begin_trial(bundle, concerns, enforced)
            self.attempt, self.failure = Attempt(bundle, trial), ""
        self._activate(bundle)

    def _begin_trial(
        self,
        bundle: Installed,
        concerns: Sequence[Declaration],
        enforced: Callable[[], Iterable[Declaration]],
    ) -> Trial | None:
        """Begin or continue the trial of a version that has not passed.

        The first attempt keeps the results of the health checks before the change. An error of the disk is raised only
        if the version is not current yet.
        """
        if self.good is not None and self.good.sha256 == bundle.sha256:
            with self.context.problems.remembering():
                self.context.trials.close_other(bundle)
            return None
        if self.context.settings.noop:  # a dry run begins no trial, but predicts the end of an earlier one
            return self.context.trials.find(bundle)
        try:
            trial = self.context.trials.find(bundle)
            health = trial.health if trial else self._health_before(bundle, concerns, enforced)
            return self.context.trials.begin(bundle, health, self._rule_of_release(bundle))
        except OSError as error:
            current = self.context.find_current(bundle.name)
            if current is None or current.sha256 != bundle.sha256:
                raise
            self.context.problems.caught(error)
            return None

    def _health_before(
        self,
        bundle: Installed,
        concerns: Sequence[Declaration],
        enforced: Callable[[], Iterable[Declaration]],
    ) -> dict[str, Health]:
        if not have_health_checks(concerns) or not (before := list(enforced())):
            return {}
        self.context.problems.log.notice(f"{bundle}: running the health checks before the change")
        return health_before(before, concerns, LocalSystem())

    def _activate(self, bundle: Installed) -> None:
        """Make a version the current one. Raise ``BundleError``, ``OSError``."""
        context = self.context
        current = context.find_current(bundle.name)
        before = current.version if current is not None else ""
        is_rollback = self.report.given_up is not None
        remark = "rolled back" if is_rollback else "signatures good" if context.is_verified else ""
        context.problems.log.begin(bundle.name, bundle.version, before=before, remark=remark)
        if context.settings.noop or (current is not None and current.sha256 == bundle.sha256):
            return
        try:
            context.store.activate(bundle.name, bundle.sha256)
        except BundleError as error:
            if current is not None or context.find_good(bundle.name) != bundle:
                raise
            # The link is damaged and the disk is full. This is the only version of the host.
            context.problems.caught(error)
            return
        was = f", was {current.version}" if current else ""
        sentence = f"{bundle} is now enforced{was}"
        context.problems.log.notice(sentence, kind=MessageId.BUNDLE_ENFORCED, bundle=bundle.name)

    def refuse(self, bundle: Installed, error: Exception) -> None:
        """Do not try a version again in this run, because it could not be begun."""
        if self.returned_to is not None:
            self._report_no_rollback(error)
        self.refused[bundle.sha256] = self.context.problems.caught(error)
        self._end_attempt(bundle)
        self.attempt = None

    def in_force(self, bundle: Installed, known: Callable[[], Collection[Reference]]) -> InForce:
        """Describe the chosen version for reversals.

        For a version on trial, the description has the paths that the fallback restores by itself. The fallback must
        have passed. Otherwise objects of a person, which were there before it, have to come back.
        """
        if not self._is_unproven(bundle):
            return InForce(bundle.version, bundle.sha256, is_back=self.returned_to is not None)
        paths: frozenset[str] = frozenset()
        fallback = self.find_fallback(except_for=bundle.sha256)
        if fallback is not None and fallback == self.good:
            with contextlib.suppress(PullerError):
                paths = whole_paths(read_manifest(fallback, self.context.inputs, known()).declarations)
        return InForce(bundle.version, bundle.sha256, False, paths, fallback.sha256 if fallback else "")

    def _is_unproven(self, bundle: Installed) -> bool:
        """Return whether a version has not passed, also if its trial could not be recorded."""
        if self.trial is not None:
            return True
        return not self.context.settings.noop and self.returned_to is None and self.good != bundle

    # Apply

    def report_applied(self, bundle: Installed, events: Sequence[Event]) -> None:
        """Report the resources of a version that was applied, with earlier changes of this run to the same version."""
        report, problems = self.report, self.context.problems
        earlier = report.events if report.sha256 == bundle.sha256 else []
        report.version, report.sha256, report.outcome = bundle.version, bundle.sha256, "applied"
        if events and not any(event.reached for event in events):
            report.outcome = f"not applied: {events[0].skip_reason}"
            code = ProblemCode.STOPPED if self.context.stops.reason else ProblemCode.RUN_WARNING
            problems.warn(Problem(code=code, message=f"{bundle.name}: {report.outcome}"))
        report.events = _with_earlier(events, earlier)
        report.summary = Summary.of(report.events, sum(event.duration for event in events))
        problems.log.notice(f"{bundle}: {report.summary}", kind=MessageId.BUNDLE_APPLIED, bundle=bundle.name)
        problems.summaries.append(report.summary)

    def report_irreversible(self, sha256: str, sentences: list[str]) -> None:
        """Report changes of a trial that cannot be undone, and add them to its quarantine."""
        if not sentences:
            return
        self.report.not_undone = sentences
        self.context.problems.warn(f"{self.name}: cannot be undone: {', '.join(sentences)}")
        with self.context.problems.remembering():
            self.context.quarantine.add_remaining(sha256, sentences)

    def report_unapplied(self, bundle: Installed | None, why: str = "") -> None:
        """Report that nothing was applied. ``bundle`` is the version that is enforced."""
        if bundle is not None:
            self.report.version, self.report.sha256 = bundle.version, bundle.sha256
        self.report.outcome = f"not applied: {why}" if why else "not applied"

    # Judge

    def judge_between_runs(self, chosen: Chosen, concerns: Sequence[Declaration]) -> bool:
        """Look at a version on trial that was in order after its last run. Return whether to roll it back.

        Without another version, the run goes on, and the time in order begins again.
        """
        trial = self._trial_between_runs()
        if trial is None:
            return False
        self.failure = trial.failure or self._find_failure_between_runs(trial, concerns)
        if not self.failure:
            return False
        bundle = chosen.bundle
        self.failure = f"the trial has failed between two runs: {self.failure}"
        self.outcomes = []
        if self._decide_applied(chosen).step is Step.ROLL_BACK:
            self.report_unapplied(bundle, "given up before it was applied again")
            return True
        self._report_no_fallback(bundle)
        self.failure, self.outcomes = "", None
        self.attempt = Attempt(bundle, restarted(trial))
        with self.context.problems.remembering():
            self.context.trials.restart(bundle)
        return False

    def note_failure_between_runs(self, chosen: Chosen, concerns: Sequence[Declaration]) -> None:
        """Record a failure that a partial run may repair. The next complete run gives the version up."""
        trial = self._trial_between_runs()
        if trial is None or trial.failure or not (why := self._find_failure_between_runs(trial, concerns)):
            return
        detail = f"has failed between two runs: {why}. The next complete run gives it up"
        self.context.problems.warn(f"{chosen.bundle}: the trial {detail}")
        with self.context.problems.remembering():
            self.context.trials.note_failure(chosen.bundle, why)

    def _trial_between_runs(self) -> Trial | None:
        """Return the trial of a version that was in order after its last run, and that this run has not changed yet."""
        trial = self.trial
        is_applied = self.outcomes is not None  # in this run, before the rollback of another bundle
        if trial is None or not trial.in_order or is_applied or self.report.given_up is not None:
            return None
        return trial

    def _find_failure_between_runs(self, trial: Trial, concerns: Sequence[Declaration]) -> str:
        trials = self.context.trials
        restarts, is_new_boot = trials.restarts(trial), not trials.is_of_this_boot(trial)
        return find_failure_between_runs(
            concerns, trial.health, restarts, LocalSystem(), is_new_boot=is_new_boot
        )

    def judge(self, chosen: Chosen) -> Decision:
        """Ask the health checks of a version on trial. Return whether it is kept, stays or is replaced."""
        is_applied = self.outcomes is not None and not self.context.stops.reason
        if is_applied and self.trial is not None and self.report.given_up is None and not self.failure:
            self.failure = self._broken_health(self.trial) or self._repeated_failure(
                self.trial, chosen.manifest
            )
            decision = self._decide_applied(chosen)
            if self.failure and decision.step is not Step.ROLL_BACK:
                self._report_no_fallback(chosen.bundle)
            return decision
        return self._decide_applied(chosen)

    def _report_no_fallback(self, bundle: Installed) -> None:
        detail = f"{bundle}: {self.failure}. No other version is available for a rollback"
        self.context.problems.warn(Problem(code=ProblemCode.ROLLBACK_FAILS, message=detail))

    def _decide_applied(self, chosen: Chosen) -> Decision:
        """Return the decision about the applied version."""
        result = self._result(chosen)
        previous = self.context.find_previous(self.name) if result is Result.BROKEN else None
        situation = msgspec.structs.replace(
            self._situation(previous, {}),
            applied=Version(chosen.bundle.sha256, Usability.FITS),
            result=result,
            on_trial=self.trial is not None,
        )
        return decide(situation)

    def _result(self, chosen: Chosen) -> Result:
        if self.outcomes is None or self.context.stops.reason:
            return Result.UNDECIDED
        if self.failure:
            return Result.BROKEN
        if self._is_partial:
            return Result.PARTIAL
        if has_failed(self.outcomes):
            return Result.FAILED
        trial = self._continued(chosen)
        return Result.SUCCEEDED if trial is None or trial.is_over(datetime.now(UTC)) else Result.IN_ORDER

    def _continued(self, chosen: Chosen) -> Trial | None:
        """Return the trial of the applied version after a run in order. ``None`` if the version has passed before."""
        bundle = chosen.bundle
        if not self._is_unproven(bundle):
            return None
        moment = self.context.trials.moment()
        has_checks = have_health_checks(declaration for declaration, _ in self.outcomes or ())
        rules = (self.choice.trial, self._rule_of_release(bundle), chosen.manifest.trial)
        required = requirement_of(*rules, has_health_checks=has_checks)
        trial = self.context.trials.find(bundle) or Trial(
            bundle.version, bundle.sha256, iso_text(moment.now), {}
        )
        trial = trial.continued(required, moment)
        return msgspec.structs.replace(trial, awaits_boot=self._awaits_boot(trial))

    def _rule_of_release(self, bundle: Installed) -> TrialRule | None:
        """Return the rule that the publisher has signed for the release. A pin or a run without the site keeps it."""
        offered = self.offered
        release = offered.release if offered is not None and offered.sha256 == bundle.sha256 else None
        if release is not None and release.trial is not None:
            return release.trial
        trial = self.context.trials.find(bundle)
        return trial.release_rule if trial is not None else None

    def _awaits_boot(self, trial: Trial) -> bool:
        """Return whether the version cannot pass before the machine has restarted."""
        plan = self.context.settings.reboots
        if plan is None:
            return False
        references = [str(declaration.reference) for declaration, _ in self.outcomes or ()]
        return plan.delays_trial(references, parse_moment(trial.since))

    @property
    def _is_partial(self) -> bool:
        """Whether only a part was applied. A rollback applies everything."""
        return bool(self.context.settings.only) and self.report.given_up is None

    def _broken_health(self, trial: Trial) -> str:
        """Return why health checks give up the version. Empty if they do not."""
        outcomes = self.outcomes or ()
        if not have_health_checks(declaration for declaration, _ in outcomes):
            return ""
        return find_failure(outcomes, trial.health, LocalSystem())

    def _repeated_failure(self, trial: Trial, manifest: Manifest) -> str:
        """Return why failed resources give up the version. Empty if they do not.

        The fallback must have passed on this host. Any other version may fail for the same reason.
        """
        outcomes, limit = self.outcomes or (), self.choice.give_up_after
        if limit is None:
            limit = manifest.give_up_after
        good = self.good
        if not limit or not has_failed(outcomes) or good is None or self.context.is_quarantined(good):
            return ""
        runs = trial.failed + 1
        if runs < limit:
            failed = counted(runs, "consecutive run")
            sentence = f"resources failed in {failed}, and the limit is {limit}"
            self.context.problems.log.notice(f"{self.name} {self.report.version}: {sentence}")
            return ""
        failures = "; ".join(failure_texts((event for _, event in outcomes), most=3))
        times = f" in {runs} consecutive runs, most recently:" if runs > 1 else ":"
        return f"resources failed{times} {failures}"

    # Keep or roll back

    def find_fallback(self, *, except_for: str = "") -> Installed | None:
        """Return the version to return to from the one with the SHA-256 ``except_for``."""
        return find_fallback_bundle(
            self.context.store, self.context.quarantine, self.name, except_for=except_for
        )

    def roll_back(self, chosen: Chosen) -> None:
        """Give up the applied version. Its fallback is chosen next."""
        self.returned_to = self.find_fallback(except_for=chosen.bundle.sha256)
        self.give_up(chosen.bundle, self.failure, msgspec.structs.replace(self.report))
        self.failure = ""

    def give_up(self, bundle: Installed, reason: str, given_up: BundleReport) -> None:
        """Quarantine a version, then close its trial. ``given_up`` is its report."""
        given_up.outcome = f"given up: {reason}"
        self.report.given_up = given_up
        self.report.held = f"{bundle} is quarantined: {reason}"
        self.report.held_because = HoldReason.QUARANTINE
        if self.context.settings.noop:
            sentence = f"{self.name}: {bundle.version} would be given up: {reason}"
            self.context.problems.warn(Problem(code=ProblemCode.ROLLED_BACK, message=sentence))
        else:
            sentence = f"{bundle.version} is given up: {reason}"
            kind = MessageId.BUNDLE_GIVEN_UP
            self._report_error(sentence, ExitStatus.HEALTH_FAILED, kind, code=ProblemCode.ROLLED_BACK)
        failed = failure_texts(given_up.events)
        with self.context.problems.remembering():
            self.context.quarantine.add(bundle.name, bundle.version, bundle.sha256, reason, failed)
        with self.context.problems.remembering():
            self.context.trials.close(bundle.name)

    def conclude(self, chosen: Chosen) -> None:
        """Keep the applied version, or end its attempt."""
        bundle, decision = chosen.bundle, self._decide_applied(chosen)
        if self.report.given_up is not None and (self.outcomes is None or is_broken(self.outcomes)):
            sentence = f"rolled back to {bundle.version}, but resources or health checks still fail"
            self._report_error(sentence, ExitStatus.HEALTH_FAILED_TWICE)
        if decision.step is Step.KEEP:
            self._keep(bundle)
            return
        result = self._result(chosen)
        is_failed = result in (Result.FAILED, Result.BROKEN) and not self._is_partial
        in_order = self._continued(chosen) if result is Result.IN_ORDER else None
        if in_order is not None:
            services = restarts_of([declaration for declaration, _ in self.outcomes or ()])
            in_order = msgspec.structs.replace(in_order, restarts=services)
        self._end_attempt(bundle, failed=is_failed, in_order=in_order)
        trial = self.context.trials.find(bundle)
        self.report.trial = trial.report() if trial is not None else None
        if result is Result.IN_ORDER:
            sentence = f"{bundle} is {self.report.trial}"
            self.context.problems.log.notice(sentence, kind=MessageId.BUNDLE_APPLIED, bundle=bundle.name)

    def _keep(self, bundle: Installed) -> None:
        """Make a version the last good one, then close its trial.

        If a crash came between these steps in the other order, the next run would begin a new trial. It would take the
        results of the health checks after the change for those before. After an error, such as a full disk, the trial
        goes on, and its copies stay.
        """
        context, is_kept = self.context, False
        with context.problems.remembering():
            context.store.mark_good(bundle.name, bundle.sha256)
            context.trials.close(bundle.name)
            context.leftovers.passed(bundle.name)
            is_kept = True
        if not is_kept:  # otherwise the next run would take the attempt for interrupted
            self._end_attempt(bundle)

    def _end_attempt(self, bundle: Installed, *, failed: bool = False, in_order: Trial | None = None) -> None:
        """Put the end of the attempt on record. The trial goes on."""
        with self.context.problems.remembering():
            self.context.trials.end(bundle, failed=failed, in_order=in_order)

    def _report_no_rollback(self, why: object) -> None:
        if self.returned_to is not None:
            sentence = f"cannot roll back to {self.returned_to.version}: {why}"
            self._report_error(sentence, ExitStatus.HEALTH_FAILED_TWICE)

    def _report_error(
        self,
        sentence: str,
        status: ExitStatus,
        kind: MessageId = MessageId.PROBLEM,
        *,
        code: ProblemCode = ProblemCode.ROLLBACK_FAILS,
    ) -> None:
        problem = Problem(code=code, message=f"{self.name}: {sentence}")
        self.context.problems.error(problem, status, kind=kind, bundle=self.name)

    # Retire

    def prune(self) -> None:
        """Remove the versions that are not needed.

        The offer stays, also if it is rejected or has to wait. Otherwise every run would download it again.
        """
        if not self.context.settings.noop:
            offer = self.offer.sha256 if self.offer else ""
            with self.context.problems.remembering():
                self.context.store.prune(self.name, except_for=offer)


def _with_earlier(events: Sequence[Event], before: Sequence[Event]) -> list[Event]:
    """Return the last events. A resource that an earlier pass of this run has changed keeps that event."""
    earlier = {event.reference: event for event in before if event.changed}
    return [earlier.get(event.reference, event) if event.state is State.STABLE else event for event in events]
