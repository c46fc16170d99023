"""One bundle of this host read, made current and applied.

* A manifest that is not valid on this host, or cannot be read, keeps no other bundle from being enforced.
* ``current`` names the bundle that the machine is being brought to: the link is changed before the first resource is,
  so that after a crash the next run knows what was begun.
* What became of the resources is put into the report of the bundle; whether it may stay is decided elsewhere.
"""

import contextlib
import time
from collections.abc import Callable

import msgspec

from bundles.errors import BundleError, StoreError
from bundles.store.contents import Installed
from bundles.store.store import Store
from puller.engine.apply import Applied, apply_manifest
from puller.engine.engine import Settings
from puller.errors import PullerError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.manifest.source import MANIFEST
from puller.reporting.report import BundleReport, Summary
from puller.reporting.run_problems import RunProblems
from puller.resources.remote import fetch_url
from puller.run.policy.quarantine import Quarantine
from puller.run.trials import Trials
from puller.state.directories import Directories
from puller.system.signals import StopRequests


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
    detailed_exitcodes: bool = False

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


def read_manifest(bundle: Installed, inputs: Inputs) -> Manifest:
    """The manifest of a bundle, as it is on this host; raises ``PullerError`` when it is not valid here."""
    # Messages name it by its version: its place in the store is a digest, which tells people nothing.
    return load_manifest(bundle.path / MANIFEST, f"{bundle.name}-{bundle.version}/{MANIFEST}", inputs)


class Application(msgspec.Struct, frozen=True):
    """The application of bundles of one name, in one run; ``report`` is told what comes of it."""

    means: Means
    report: BundleReport

    def understood(self, bundle: Installed) -> Manifest | None:
        """The manifest of a bundle; ``None`` with the reason noted when it is not valid on this host."""
        try:
            return read_manifest(bundle, self.means.inputs)
        except PullerError as error:
            self.report.held = f"{bundle} is rejected: {str(error).splitlines()[0]}"
            self.means.problems.error(f"{bundle} is rejected:\n{error}", error.exit_status)
        except Exception as error:  # noqa: BLE001  one that cannot be read keeps no other from being enforced
            self.report.held = self.means.problems.caught(error)
        return None

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
        self.means.problems.log.notice(f"{bundle} is now enforced{was}")

    def apply(self, bundle: Installed, manifest: Manifest) -> Applied | None:
        """Bring the machine to the bundle; ``None`` with the reason noted when nothing could be applied."""
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
        self.means.problems.log.notice(f"{bundle}: {report.summary}")
        problems.count(report.summary.exit_status(detailed=self.means.detailed_exitcodes))
        return applied
