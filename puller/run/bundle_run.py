"""One bundle in one run: the record of what happened to it, and the effects of each decision about it.

* ``puller.run.policy.decision`` decides, and ``puller.run.agent`` calls the steps in order. ``puller.run.judging`` has
  the steps after a version was applied.
* A manifest that is invalid on this host, cannot be read, or contradicts an earlier bundle affects only its own bundle.
* ``current`` is changed before the first resource. After a crash, the next run continues with it.
* An attempt is on record before the first change, and its end after the last one. An attempt without an end was cut
  short.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from bundles.errors import BundleError
from bundles.format.release import TrialRule
from bundles.store.contents import Installed
from bundles.store.store import Store
from foundation.problems import Problem, ProblemCode, problems_of
from foundation.times import iso_text
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
from puller.run.leftovers.leftovers import Leftovers
from puller.run.policy.decision import Offer, Result, Situation, Step, Usability, Version, decide
from puller.run.policy.holds import Quarantine
from puller.run.policy.operator_requests import find_fallback_bundle, find_intact
from puller.run.site_refresh import BundleSource
from puller.run.trials import Trial, Trials
from puller.state import Directories
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

    def is_quarantined(self, installed: Installed) -> bool:
        """Return whether this host does not try a version again."""
        return self.quarantine.find(installed.sha256) is not None


def read_manifest(installed: Installed, inputs: Inputs, known: Collection[Reference] = ()) -> Manifest:
    """Return the manifest of a bundle on this host. It may refer to the ``known`` resources of other bundles.

    Raise ``PullerError`` if it is not valid on this host.
    """
    # Messages contain the version, because the directory in the store is named by a digest.
    return load_manifest(
        installed.path / MANIFEST, f"{installed.name}-{installed.version}/{MANIFEST}", inputs, known
    )


Outcome = tuple[Declaration, Event]
"""A resource, and its event in this run."""


class Chosen(msgspec.Struct, frozen=True):
    """The version that is applied in this run."""

    installed: Installed
    manifest: Manifest
    number: int
    """The place of its manifest in the catalog of the host."""


class Verdict(msgspec.Struct, frozen=True):
    """The judgement of an applied version."""

    result: Result
    step: Step
    failure: str = ""
    """Why the version has failed its trial."""
    trial: Trial | None = None
    """The trial after this attempt, if everything is in order."""


class Attempt(msgspec.Struct):
    """An attempt at a version in this run, and its outcome. The version is already on record."""

    installed: Installed
    trial: Trial | None
    """``None``: the version had passed before, or the trial could not be recorded."""
    outcomes: list[Outcome] | None = None
    """All resources that the bundle declares, shares, refreshes or has undone. ``None``: it was not applied."""
    verdict: Verdict | None = None
    """``None``: it was not judged."""


class BundleRun(msgspec.Struct):
    """The record of one bundle in this run. ``report`` is the part that is persisted."""

    context: RunContext
    choice: BundleChoice
    report: BundleReport
    current: Installed | None = None
    """The version before this run. If it is damaged, the version to return to."""
    good: Installed | None = None
    """The last version that passed before this run."""
    offer: Offer = Offer()
    """The offer as the site signed it. Empty in a run without the site."""
    offered: Installed | None = None
    """The offered version, unpacked."""
    chosen: Chosen | None = None
    refused: dict[str, str] = {}
    """Versions that are not tried again in this run, by SHA-256, with the reason."""
    rejected: list[tuple[Installed, Exception]] = []
    """Invalid and conflicting versions of the last choice."""
    reported: set[str] = set()
    """Rejected versions that were reported, by SHA-256."""
    attempt: Attempt | None = None
    """The last attempt of this run."""
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

    # Choose and unpack

    def fetch(self, source: BundleSource | None) -> None:
        """Choose the release of the bundle and unpack it. After any error, the versions of the host are used."""
        try:
            self.current = self.context.store.current(self.name)
        except BundleError as error:
            for problem in problems_of(error):
                self.context.problems.warn(problem)
            self.current = self.find_fallback()
        if source is None:
            return
        try:
            # 5. Choose
            self.report.published = source.published(self.choice)
            self.offer = source.choose(self.choice, self.current)
            self._report_offer()
            # 6. Unpack
            self.offered = source.unpack(self.choice, self.offer, self.current)
        except Exception as error:  # noqa: BLE001  see above
            self._report_unavailable(error)

    def _report_offer(self) -> None:
        """Report an offer that has to wait."""
        offer = self.offer
        if offer.waits_until:
            self.report.waits_until = iso_text(offer.waits_until)
        if offer.held:
            self.report.held, self.report.held_because = offer.held, offer.held_because
            sentence = f"held: {offer.held}"
            self.context.problems.log.notice(sentence, kind=MessageId.BUNDLE_HELD, bundle=self.name)
            self.context.problems.count(ExitStatus.HELD)

    def _report_unavailable(self, error: Exception) -> None:
        """Report a version that cannot be fetched, verified, unpacked or read."""
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
        self.good = find_intact(self.context.store.good, self.name)
        previous = self._find_previous() if self._needs_previous() else None
        known = (self.returned_to, self.offered, self.current, self.good, previous)
        by_sha256 = {installed.sha256: installed for installed in known if installed is not None}
        usability = dict.fromkeys(self.refused, Usability.UNUSABLE)
        manifests: dict[str, Manifest] = {}
        while True:
            # 1.
            decision = decide(self._situation(previous, usability))
            if decision.version is None:
                return before
            sha256 = decision.version.sha256
            installed = by_sha256[sha256]
            try:
                # 2.
                if decision.step is Step.READ:
                    usability[sha256] = Usability.INVALID
                    manifests[sha256] = read_manifest(installed, self.context.inputs, before.references())
                    usability[sha256] = Usability.FITS
                elif decision.step is Step.GIVE_UP:
                    usability[sha256] = Usability.UNUSABLE  # also if it cannot be quarantined
                    self._give_up_interrupted(installed)
                # 3.
                else:
                    usability[sha256] = Usability.CONFLICTS
                    self._report_interruption(installed)
                    catalog = before.joined(manifests[sha256])
                    self.chosen = Chosen(installed, manifests[sha256], len(before.manifests))
                    return catalog
            except Exception as error:  # noqa: BLE001  an unreadable version must not stop the others
                self.rejected.append((installed, error))

    def _situation(self, previous: Installed | None, usability: Mapping[str, Usability]) -> Situation:
        """Return the situation before a version is applied."""

        def version(installed: Installed | None) -> Version | None:
            if installed is None:
                return None
            return Version(
                installed.sha256,
                usability.get(installed.sha256, Usability.UNREAD),
                self.context.is_quarantined(installed),
                self._interruptions(installed)[0],
            )

        offered = None if self.is_left_out else version(self.offered)
        return Situation(
            pinned=offered if self.offer.is_pinned else None,
            published=None if self.offer.is_pinned else offered,
            current=version(self.current),
            good=version(self.good),
            previous=version(previous),
            returned_to=version(self.returned_to),
            gave_up=self.report.given_up is not None,
        )

    def _find_previous(self) -> Installed | None:
        return find_intact(self.context.store.previous, self.name)

    def _needs_previous(self) -> bool:
        """Return whether the previous version can matter. Reading it costs a walk through its files."""
        if self.current is not None and self.context.is_quarantined(self.current):
            return True
        candidates = (self.offered, self.current, self.good)
        return any(installed and self._interruptions(installed)[0] for installed in candidates)

    def _interruptions(self, installed: Installed) -> tuple[int, str]:
        if self.attempt is not None and self.attempt.installed == installed:
            return 0, ""
        return self.context.trials.find_interruptions(installed)

    def _report_interruption(self, installed: Installed) -> None:
        times, how = self._interruptions(installed)
        if times:
            detail = f"the last run was interrupted while it applied this version ({how})"
            self.context.problems.warn(f"{installed}: {detail}, trying again")

    def _give_up_interrupted(self, installed: Installed) -> None:
        times, how = self._interruptions(installed)
        reason = (
            f"{times} consecutive runs were interrupted while they applied this version, "
            f"most recently because {how}"
        )
        self._give_up(
            installed,
            reason,
            BundleReport(name=installed.name, version=installed.version, sha256=installed.sha256),
        )

    def report_rejected(self) -> None:
        """Report the versions that were rejected, and the lack of any other version."""
        problems = self.context.problems
        for installed, error in self.rejected:
            if installed.sha256 in self.reported:
                continue
            self.reported.add(installed.sha256)
            if isinstance(error, PullerError):
                title = f"{installed} is rejected"
                self.report.held = f"{title}: {error.problems[0]}"
                self.report.held_because = HoldReason.REJECTED
                problems.errors(error.problems, error.exit_status, f"{title}:\n{error}", title)
            else:
                self._report_unavailable(error)
        for reason in self.refused.values():
            self.report.held, self.report.held_because = reason, HoldReason.REJECTED
        if self.chosen is None and not self.is_left_out:
            self._report_nothing()

    def _report_nothing(self) -> None:
        if self.returned_to is None:
            status = ExitStatus.HEALTH_FAILED_TWICE if self.report.given_up else ExitStatus.NOTHING_TO_ENFORCE
            self.report.outcome = "nothing to enforce"
            message = f"{self.name}: this host has no usable version of this bundle"
            problem = Problem(code=ProblemCode.NOTHING_TO_ENFORCE, message=message)
            self.context.problems.error(problem, status)
        elif self.returned_to.sha256 not in self.refused:  # otherwise it is reported already
            errors = (error for installed, error in self.rejected if installed == self.returned_to)
            error = next(errors, None)
            why = problems_of(error)[0] if error is not None else "it is not usable"
            self.report_failed_rollback(f"cannot roll back to {self.returned_to.version}: {why}")

    def begin(self, installed: Installed, health: Callable[[], dict[str, Health]]) -> None:
        """Put the attempt at a version on record, then make the version current. Raise ``BundleError``, ``OSError``.

        ``health`` runs the health checks before the change.
        """
        attempt = self.attempt
        if attempt is None or attempt.installed != installed:
            if attempt is not None and not self.report.given_up:
                self.end_attempt(attempt.installed)
            # The version that replaces another one was tried in an earlier run.
            is_tried = self.returned_to is not None
            self.attempt = Attempt(installed, None if is_tried else self._begin_trial(installed, health))
        self._activate(installed)

    def _begin_trial(self, installed: Installed, health: Callable[[], dict[str, Health]]) -> Trial | None:
        """Begin or continue the trial of a version that has not passed.

        The first attempt keeps the results of the health checks before the change. An error of the disk is raised only
        if the version is not current yet.
        """
        trials = self.context.trials
        if self.good is not None and self.good.sha256 == installed.sha256:
            with self.context.problems.remembering():
                trials.close_other(installed)
            return None
        trial = trials.find(installed)
        if self.context.settings.noop:  # a dry run begins no trial, but predicts the end of an earlier one
            return trial
        try:
            before = trial.health if trial is not None else health()
            return trials.begin(installed, before, self.rule_of_release(installed))
        except OSError as error:
            current = find_intact(self.context.store.current, self.name)
            if current is None or current.sha256 != installed.sha256:
                raise
            self.context.problems.caught(error)
            return None

    def _activate(self, installed: Installed) -> None:
        """Make a version the current one. Raise ``BundleError``, ``OSError``."""
        context = self.context
        current = find_intact(context.store.current, self.name)
        before = current.version if current is not None else ""
        is_rollback = self.report.given_up is not None
        remark = "rolled back" if is_rollback else "signatures good" if context.is_verified else ""
        context.problems.log.begin(installed.name, installed.version, before=before, remark=remark)
        if context.settings.noop or (current is not None and current.sha256 == installed.sha256):
            return
        try:
            context.store.activate(installed.name, installed.sha256)
        except BundleError as error:
            if current is not None or find_intact(context.store.good, self.name) != installed:
                raise
            # The link is damaged and the disk is full. This is the only version of the host.
            context.problems.caught(error)
            return
        was = f", was {current.version}" if current else ""
        sentence = f"{installed} is now enforced{was}"
        context.problems.log.notice(sentence, kind=MessageId.BUNDLE_ENFORCED, bundle=installed.name)

    def refuse(self, installed: Installed, error: Exception) -> None:
        """Do not try a version again in this run, because it could not be begun."""
        if self.returned_to is not None:
            self.report_failed_rollback(f"cannot roll back to {self.returned_to.version}: {error}")
        self.refused[installed.sha256] = self.context.problems.caught(error)
        self.end_attempt(installed)
        self.attempt = None

    # Apply

    def report_applied(self, installed: Installed, events: Sequence[Event], outcomes: list[Outcome]) -> None:
        """Report the resources of a version that was applied, with earlier changes of this run to the same version.

        The version is judged by ``outcomes``, which include resources of other bundles.
        """
        if self.attempt is not None:
            self.attempt.outcomes = outcomes
        report, problems = self.report, self.context.problems
        earlier = report.events if report.sha256 == installed.sha256 else []
        report.version, report.sha256, report.outcome = installed.version, installed.sha256, "applied"
        if events and not any(event.reached for event in events):
            report.outcome = f"not applied: {events[0].skip_reason}"
            code = ProblemCode.STOPPED if self.context.stops.reason else ProblemCode.RUN_WARNING
            problems.warn(Problem(code=code, message=f"{installed.name}: {report.outcome}"))
        report.events = _with_earlier(events, earlier)
        report.summary = Summary.of(report.events, sum(event.duration for event in events))
        problems.log.notice(
            f"{installed}: {report.summary}", kind=MessageId.BUNDLE_APPLIED, bundle=installed.name
        )
        problems.summaries.append(report.summary)

    def report_irreversible(self, sha256: str, sentences: list[str]) -> None:
        """Report changes of a trial that cannot be undone, and add them to its quarantine."""
        if not sentences:
            return
        self.report.not_undone = sentences
        self.context.problems.warn(f"{self.name}: cannot be undone: {', '.join(sentences)}")
        with self.context.problems.remembering():
            self.context.quarantine.add_remaining(sha256, sentences)

    def leave_out(self) -> None:
        """Keep the version, because a partial run contains none of its resources."""
        self.is_left_out = True
        self.report_unapplied(self.current, "--only selects none of its resources")

    def report_unapplied(self, installed: Installed | None, why: str = "") -> None:
        """Report that nothing was applied. ``installed`` is the version that is enforced."""
        if self.attempt is not None:
            self.attempt.outcomes = None
        if installed is not None:
            self.report.version, self.report.sha256 = installed.version, installed.sha256
        self.report.outcome = f"not applied: {why}" if why else "not applied"

    def is_unproven(self, installed: Installed) -> bool:
        """Return whether a version has not passed, also if its trial could not be recorded."""
        if self.trial is not None:
            return True
        return not self.context.settings.noop and self.returned_to is None and self.good != installed

    # Judge

    @property
    def is_partial(self) -> bool:
        """Whether only a part was applied. A rollback applies everything."""
        return bool(self.context.settings.only) and self.report.given_up is None

    def decide_applied(self, installed: Installed, result: Result) -> Step:
        """Return the next step of the applied version."""
        previous = self._find_previous() if result is Result.BROKEN else None
        situation = msgspec.structs.replace(
            self._situation(previous, {}),
            applied=Version(installed.sha256, Usability.FITS),
            result=result,
            on_trial=self.trial is not None,
        )
        return decide(situation).step

    def rule_of_release(self, installed: Installed) -> TrialRule | None:
        """Return the rule that the publisher has signed for the release. A pin or a run without the site keeps it."""
        release = self.offer.release if self.offer.sha256 == installed.sha256 else None
        if release is not None and release.trial is not None:
            return release.trial
        trial = self.context.trials.find(installed)
        return trial.release_rule if trial is not None else None

    # Keep or roll back

    def find_fallback(self, *, except_for: str = "") -> Installed | None:
        """Return the version to return to from the one with the SHA-256 ``except_for``."""
        return find_fallback_bundle(
            self.context.store, self.context.quarantine, self.name, except_for=except_for
        )

    def roll_back(self, installed: Installed, failure: str) -> None:
        """Give up a version that has failed its trial. Its fallback is chosen next."""
        self.returned_to = self.find_fallback(except_for=installed.sha256)
        self._give_up(installed, failure, msgspec.structs.replace(self.report))

    def _give_up(self, installed: Installed, reason: str, given_up: BundleReport) -> None:
        """Quarantine a version, then close its trial. ``given_up`` is its report."""
        given_up.outcome = f"given up: {reason}"
        self.report.given_up = given_up
        self.report.held = f"{installed} is quarantined: {reason}"
        self.report.held_because = HoldReason.QUARANTINE
        is_done = "would be" if self.context.settings.noop else "is"
        sentence = f"{self.name}: {installed.version} {is_done} given up: {reason}"
        problem = Problem(code=ProblemCode.ROLLED_BACK, message=sentence)
        if self.context.settings.noop:
            self.context.problems.warn(problem)
        else:
            kind = MessageId.BUNDLE_GIVEN_UP
            self.context.problems.error(problem, ExitStatus.HEALTH_FAILED, kind=kind, bundle=self.name)
        failed = failure_texts(given_up.events)
        with self.context.problems.remembering():
            self.context.quarantine.add(installed.name, installed.version, installed.sha256, reason, failed)
        with self.context.problems.remembering():
            self.context.trials.close(installed.name)

    def end_attempt(
        self, installed: Installed, *, failed: bool = False, in_order: Trial | None = None
    ) -> None:
        """Put the end of the attempt on record. The trial goes on."""
        with self.context.problems.remembering():
            self.context.trials.end(installed, failed=failed, in_order=in_order)

    def report_failed_rollback(self, sentence: str) -> None:
        """Report that the version to return to cannot be applied, or fails too."""
        problem = Problem(code=ProblemCode.ROLLBACK_FAILS, message=f"{self.name}: {sentence}")
        self.context.problems.error(problem, ExitStatus.HEALTH_FAILED_TWICE, bundle=self.name)

    # Retire

    def prune(self) -> None:
        """Remove the versions that are not needed.

        The offered version stays, also if it is rejected or has to wait. Otherwise every run would download it again.
        """
        if not self.context.settings.noop:
            offered = self.offered.sha256 if self.offered else ""
            with self.context.problems.remembering():
                self.context.store.prune(self.name, except_for=offered)


def _with_earlier(events: Sequence[Event], before: Sequence[Event]) -> list[Event]:
    """Return the last events. A resource that an earlier pass of this run has changed keeps that event."""
    earlier = {event.reference: event for event in before if event.changed}
    return [earlier.get(event.reference, event) if event.state is State.STABLE else event for event in events]
