"""Bundles of this host read, made current, and what became of their resources.

* A manifest that is not valid on this host, cannot be read, or contradicts that of an earlier bundle keeps no other
  bundle from being enforced.
* ``current`` names the bundle that the machine is being brought to: the link is changed before the first resource is,
  so that after a crash the next run knows what was begun.
* What became of the resources is put into the report of the bundle; whether it may stay is decided elsewhere.
"""

import contextlib
from collections.abc import Callable, Collection, Sequence

import msgspec

from bundles.errors import BundleError, StoreError
from bundles.store.contents import Installed
from bundles.store.store import Store
from foundation.problems import Problem, ProblemCode
from puller.engine.engine import Settings
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.manifest.source import MANIFEST
from puller.reporting.fields import MessageId
from puller.reporting.phases import Phases
from puller.reporting.report import BundleReport, Event, State, Summary
from puller.reporting.run_problems import RunProblems
from puller.run.left.leftovers import Leftovers
from puller.run.policy.quarantine import Quarantine
from puller.run.trials import Trials
from puller.state.directories import Directories
from puller.system.signals import StopRequests
from puller.values.reference import Reference


class Means(msgspec.Struct, frozen=True):
    """All that bundles are enforced with, one for every bundle of a run."""

    store: Store
    directories: Directories
    inputs: Inputs
    settings: Settings
    stops: StopRequests
    problems: RunProblems
    trials: Trials
    quarantine: Quarantine
    leftovers: Leftovers
    phases: Phases

    def current(self, name: str) -> Installed | None:
        """The bundle of this name that is enforced; ``None`` also where it is damaged."""
        return _sound(self.store.current, name)

    def good(self, name: str) -> Installed | None:
        """The last bundle of this name that has passed; ``None`` also where it is damaged."""
        return _sound(self.store.good, name)

    def is_quarantined(self, bundle: Installed) -> bool:
        """Whether this host does not try a bundle again."""
        return self.quarantine.find(bundle.sha256) is not None


def _sound(find: Callable[[str], Installed | None], name: str) -> Installed | None:
    with contextlib.suppress(StoreError):
        return find(name)
    return None


def read_manifest(bundle: Installed, inputs: Inputs, known: Collection[Reference] = ()) -> Manifest:
    """The manifest of a bundle, as it is on this host, which may refer to resources of others that are ``known``.

    Raises ``PullerError`` when it is not valid here.
    """
    # Messages name it by its version: its place in the store is a digest, which tells people nothing.
    return load_manifest(bundle.path / MANIFEST, f"{bundle.name}-{bundle.version}/{MANIFEST}", inputs, known)


class Application(msgspec.Struct, frozen=True):
    """The application of bundles of one name, in one run; ``report`` is told what comes of it."""

    means: Means
    report: BundleReport

    def activate(self, bundle: Installed) -> None:
        """Make a bundle the current one; raises ``BundleError``, ``OSError``."""
        current = self.means.current(bundle.name)
        if self.means.settings.noop or (current is not None and current.sha256 == bundle.sha256):
            return
        try:
            self.means.store.activate(bundle.name, bundle.sha256)
        except BundleError as error:
            if current is not None or self.means.good(bundle.name) != bundle:
                raise
            self.means.problems.caught(error)  # the link is damaged and the disk full; this is what there is
            return
        was = f", was {current.version}" if current else ""
        self.means.problems.log.notice(
            f"{bundle} is now enforced{was}", kind=MessageId.BUNDLE_ENFORCED, bundle=bundle.name
        )

    def tell(self, bundle: Installed, events: Sequence[Event]) -> None:
        """Report the resources of a bundle after it was applied; what this run did to them before is not forgotten."""
        report = self.report
        before = report.events if report.sha256 == bundle.sha256 else []
        report.version, report.sha256, report.outcome = bundle.version, bundle.sha256, "applied"
        if events and not any(event.reached for event in events):
            report.outcome = f"not applied: {events[0].skip_reason}"
            code = ProblemCode.STOPPED if self.means.stops.reason else ProblemCode.RUN_WARNING
            self.means.problems.warn(Problem(code=code, message=f"{bundle.name}: {report.outcome}"))
        report.events = _with_earlier(events, before)
        report.summary = Summary.of(report.events, sum(event.duration for event in events))
        self.means.problems.log.notice(
            f"{bundle}: {report.summary}", kind=MessageId.BUNDLE_APPLIED, bundle=bundle.name
        )
        self.means.problems.summaries.append(report.summary)

    def tell_remaining(self, sha256: str, sentences: list[str]) -> None:
        """Report what a bundle that was on trial has done and nobody can undo, and note it beside its quarantine."""
        if not sentences:
            return
        self.report.not_undone = sentences
        self.means.problems.warn(f"{self.report.name}: cannot be undone: {'; '.join(sentences)}")
        with self.means.problems.remembering():
            self.means.quarantine.add_remaining(sha256, sentences)

    def tell_unapplied(self, bundle: Installed | None, why: str = "") -> None:
        """Report that nothing was applied, while ``bundle`` is what is enforced."""
        if bundle is not None:
            self.report.version, self.report.sha256 = bundle.version, bundle.sha256
        self.report.outcome = f"not applied: {why}" if why else "not applied"


def _with_earlier(events: Sequence[Event], before: Sequence[Event]) -> list[Event]:
    """The last events, but where nothing was left to do since an earlier one of this run."""
    earlier = {event.reference: event for event in before if event.changed}
    return [earlier.get(event.reference, event) if event.state is State.STABLE else event for event in events]
