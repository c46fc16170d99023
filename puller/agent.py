"""One run on a host, from the lock to the report; ``Agent.run`` reads as the list of its steps.

* What the site or the network does can stop an update, never what is enforced: on any trouble the last good bundle is
  applied as before, the trouble is reported, and the exit status says so.
* A new bundle becomes current only after its manifest is understood on this host.
* A noop run keeps what it downloads in a private place: nothing of the state is different after it.
"""

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bundles.errors import BundleError, StoreError
from bundles.store import Installed, Store
from puller import metrics
from puller.applying import apply_manifest
from puller.config import BundleChoice, Configuration
from puller.engine import Settings
from puller.errors import ConfigurationError, PullerError
from puller.exit_status import ExitStatus, worst
from puller.failures import status_of
from puller.fetching import fetch_url
from puller.host import Host
from puller.lock import only_run
from puller.log import Log
from puller.manifest.loader import Inputs, Manifest, load_manifest
from puller.manifest.source import MANIFEST
from puller.pulling import Published, Site, choose, copy_trust, unchanged
from puller.report import BundleReport, Report, Summary
from puller.signals import Stopped, StopRequests
from puller.state import Directories, save_report, save_status
from puller.system import reason
from puller.version import __version__

if TYPE_CHECKING:
    from puller.sitedata import Trouble


class Agent(msgspec.Struct):
    """What a run works with, handed in."""

    configuration: Configuration
    directories: Directories
    host: Host
    log: Log
    stops: StopRequests
    settings: Settings
    detailed_exitcodes: bool = False
    _statuses: list[ExitStatus] = []
    _problems: list[str] = []

    def run(self) -> Report:
        """Pull, verify, apply, report.

        Raises ``BusyError``, and ``ConfigurationError`` for directories of its own; the rest is in the report.
        """
        started = datetime.now(UTC)
        reports: list[BundleReport] = []
        with self._exclusively(), self._place_for_downloads() as downloads:
            try:
                inputs = self._inputs()
                site = self._refresh(downloads)
                for choice in self.configuration.bundles:
                    report = BundleReport(name=choice.name)
                    reports.append(report)
                    self._enforce(choice, site, inputs, downloads, report)
            except Stopped as stop:
                self._note(str(stop), stop.exit_status)
            except ConfigurationError as error:  # data of this host: without them nothing may be applied
                self._note_error(error)
            return self._conclude(started, reports)

    # The steps

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """The lock, and directories to work in; a dry run writes nothing, and may run beside another."""
        if self.settings.noop:
            yield
            return
        with only_run(self.directories.run):
            try:
                self.directories.make()
            except OSError as error:
                raise ConfigurationError(f"{error.filename}: cannot be made: {reason(error)}") from error
            save_status(self.directories, "running")
            yield

    @contextlib.contextmanager
    def _place_for_downloads(self) -> Iterator[Directories]:
        """Where metadata and bundles arrive: the state directory, or in noop a private copy of what is needed of it."""
        if not self.settings.noop:
            yield self.directories
            return
        import tempfile

        with tempfile.TemporaryDirectory(prefix="puller-noop-", ignore_cleanup_errors=True) as scratch:
            downloads = Directories(Path(scratch), self.directories.run)
            copy_trust(self.directories.trust, downloads.trust)
            yield downloads

    def _inputs(self) -> Inputs:
        """Facts and data of this host; trouble with site data is noted, and stops nothing."""

        def note(sentence: str, error: "Trouble") -> None:
            self._note(sentence, status_of(error) or ExitStatus.BUG)

        return self.host.inputs(self.directories.data, note, keep=not self.settings.noop)

    def _refresh(self, downloads: Directories) -> Published | None:
        """What the site publishes, verified; ``None`` when it could not be had, with the reason noted."""
        try:
            if (known := unchanged(self.configuration, self.directories)) is not None:
                return known
            site = Site.refreshed(self.configuration, downloads)
        except (BundleError, PullerError, OSError) as error:
            self._note_error(error)
            return None
        for note in site.notes:
            self._warn(note)
        return site

    def _enforce(
        self,
        choice: BundleChoice,
        site: Published | None,
        inputs: Inputs,
        downloads: Directories,
        report: BundleReport,
    ) -> None:
        """Bring this host to the newest version of a bundle that can be had and is understood."""
        store = Store(self.directories.bundles)
        for bundle, is_new in self._candidates(choice, site, store, downloads, report):
            if (manifest := self._understood(bundle, inputs, report)) is None:
                continue
            if is_new and not self._activated(store, bundle, report):
                continue
            report.version, report.sha256 = bundle.version, bundle.sha256
            self._apply(manifest, store, bundle, report)
            return
        report.outcome = "nothing to enforce"
        self._note(f"{choice.name}: there is no usable bundle on this host", ExitStatus.NOTHING_TO_ENFORCE)

    def _candidates(
        self,
        choice: BundleChoice,
        site: Published | None,
        store: Store,
        downloads: Directories,
        report: BundleReport,
    ) -> Iterator[tuple[Installed, bool]]:
        """What could be applied, the best first, and whether it is new: published, current, last good."""
        current = self._current(choice.name, store)
        if site is not None:
            published = self._obtained(choice, site, current, downloads, report)
            if published is not None and (current is None or published.sha256 != current.sha256):
                yield published, True
        if current is not None:
            yield current, False
        good = None
        with contextlib.suppress(StoreError):
            good = store.good(choice.name)
        if good is not None and (current is None or good.sha256 != current.sha256):
            yield good, True

    def _obtained(
        self,
        choice: BundleChoice,
        site: Published,
        current: Installed | None,
        downloads: Directories,
        report: BundleReport,
    ) -> Installed | None:
        """The published version, downloaded and unpacked if it is not here yet; ``None`` with the reason noted."""
        try:
            release = choose(site.index, choice)
            if current is not None and site.digest(release) == current.sha256:
                return current
            if not isinstance(
                site, Site
            ):  # a glance said that there is nothing new, and then the store changed
                raise StoreError(choice.name, "was changed by somebody else during this run")
            self.log.notice(f"{release}: fetching it from the site")
            return site.install(release, Store(downloads.bundles), downloads)
        except (BundleError, PullerError, OSError) as error:
            report.held = str(error)
            self._note_error(error)
            return None

    def _current(self, name: str, store: Store) -> Installed | None:
        try:
            return store.current(name)
        except BundleError as error:
            self._warn(f"{error}; going back to the last good bundle")
        try:
            return store.good(name) if self.settings.noop else store.recover(name)
        except BundleError as error:
            self._note_error(error)
            return None

    def _understood(self, bundle: Installed, inputs: Inputs, report: BundleReport) -> Manifest | None:
        """The manifest of a bundle; ``None`` with the reason noted when it is not valid on this host."""
        try:
            return load_manifest(bundle.path / MANIFEST, f"{bundle.name}-{bundle.version}/{MANIFEST}", inputs)
        except PullerError as error:
            report.held = f"{bundle.name} {bundle.version} is rejected: {str(error).splitlines()[0]}"
            self._note(f"{bundle.name} {bundle.version} is rejected:\n{error}", error.exit_status)
            return None

    def _activated(self, store: Store, bundle: Installed, report: BundleReport) -> bool:
        if self.settings.noop:
            return True
        try:
            before = self._current(bundle.name, store)
            store.activate(bundle.name, bundle.sha256)
        except (BundleError, OSError) as error:
            report.held = str(error)
            self._note_error(error)
            return False
        was = f", was {before.version}" if before else ""
        self.log.warn(f"{bundle.name} {bundle.version} is now enforced{was}")
        return True

    def _apply(self, manifest: Manifest, store: Store, bundle: Installed, report: BundleReport) -> None:
        started = time.perf_counter()
        try:
            applied = apply_manifest(
                manifest,
                self.settings,
                self.stops,
                owed=self.directories.owed,
                scope=bundle.name,
                fetch=fetch_url,
            )
        except OSError as error:
            self._note_error(error)
            report.outcome = "not applied"
            return
        for note in [*manifest.warnings, *applied.notes]:
            self._warn(note)
        report.outcome = "applied"
        report.events = applied.events
        report.summary = Summary.of(applied.events, time.perf_counter() - started)
        self.log.notice(f"{bundle.name} {bundle.version}: {report.summary}")
        self._statuses.append(report.summary.exit_status(detailed=self.detailed_exitcodes))
        if not self.settings.noop and not self.stops.reason:
            self._remember(store, bundle, report)

    def _remember(self, store: Store, bundle: Installed, report: BundleReport) -> None:
        """A bundle that was applied without failures is the one to return to; what nobody needs is removed."""
        try:
            if not report.summary.failed and not report.summary.unmet:
                store.mark_good(bundle.name, bundle.sha256)
            if not report.held:  # one that is rejected stays, or every run would download it again
                store.prune(bundle.name)
        except (BundleError, OSError) as error:
            self._warn(str(error))

    def _conclude(self, started: datetime, bundles: list[BundleReport]) -> Report:
        for problem in self.host.facts.problems:
            self._warn(str(problem))
        self._statuses.append(self.stops.exit_status)
        report = Report(
            run=started.strftime("%Y%m%dT%H%M%S.%fZ"),
            started=started.isoformat(timespec="milliseconds"),
            finished=datetime.now(UTC).isoformat(timespec="milliseconds"),
            host=self.host.name,
            puller=__version__,
            noop=self.settings.noop,
            exit_status=worst(*self._statuses),
            problems=self._problems,
            bundles=bundles,
        )
        if not self.settings.noop:
            self._keep(report)
        return report

    def _keep(self, report: Report) -> None:
        """The report on disk and the metrics; a disk that is full now is no reason to hide what was done."""
        try:
            save_report(report, self.directories, self.configuration.reports.keep)
            save_status(self.directories, "idle")
            if textfile := self.configuration.reports.textfile:
                metrics.write(report, Path(textfile))
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            self._note(f"the report cannot be kept: {where}{reason(error)}", ExitStatus.CONFIGURATION)
            report.exit_status = worst(*self._statuses)

    # Trouble

    def _note_error(self, error: BundleError | PullerError | OSError) -> None:
        if isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            self._note(where + reason(error), ExitStatus.FETCH_FAILED)
        else:
            self._note(str(error), status_of(error) or ExitStatus.BUG)

    def _note(self, sentence: str, status: ExitStatus) -> None:
        """Something went wrong outside of the resources."""
        self.log.error(sentence)
        self._problems.append(sentence)
        self._statuses.append(status)

    def _warn(self, sentence: str) -> None:
        self.log.warn(sentence)
        self._problems.append(sentence)
