"""One run on a host, from the lock to the report; ``Agent.run`` reads as the list of its steps.

* What the site or the network does can stop an update, never what is enforced: on any problem the last good bundle is
  applied as before, the problem is reported, and the exit status says so.
* A new bundle becomes current only after its manifest is understood on this host, and good only after it has passed.
* While the operator holds this host, or outside of its maintenance windows, everything goes on but the applying.
* A noop run keeps what it downloads in a private place: nothing of the state is different after it.
"""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bundles.deadline import Deadline
from bundles.store.store import Store
from puller.config.configuration import BundleChoice, Configuration
from puller.engine.engine import Settings
from puller.errors import ConfigurationError, ResourceError, file_problem
from puller.exit_status import ExitStatus
from puller.manifest.manifest import Inputs
from puller.reporting import metrics
from puller.reporting.exit_codes import status_of
from puller.reporting.history import find_unfinished, save_report, save_status
from puller.reporting.log import Log
from puller.reporting.report import BundleReport, Report
from puller.reporting.run_problems import RunProblems, sentence_of
from puller.run.application import Means
from puller.run.enforcement import Enforcement
from puller.run.host import Host
from puller.run.policy.holds import Holds
from puller.run.policy.selection import Chooser
from puller.run.site import Offer, RefreshedSite, SiteView, copy_trust, unchanged
from puller.run.trials import Trials
from puller.state.directories import Directories
from puller.state.lock import only_run
from puller.system.signals import Stopped, StopRequests
from puller.version import __version__


class Agent(msgspec.Struct):
    """What a run works with, handed in."""

    configuration: Configuration
    directories: Directories
    host: Host
    log: Log
    stops: StopRequests
    settings: Settings
    detailed_exitcodes: bool = False
    offline: bool = False
    """Enforce what is here, without asking the site."""
    _paused: str = ""
    """Why nothing is applied by this run."""
    _problems: RunProblems | None = None
    _fetching: Deadline | None = None

    def run(self) -> Report:
        """Pull, verify, apply, report.

        Raises ``BusyError``, and ``ConfigurationError`` for directories of its own; the rest is in the report.
        """
        started = datetime.now(UTC)
        reports: list[BundleReport] = []
        with self._exclusively(), self._place_for_downloads() as downloads:
            try:
                holds = self._holds(started)
                chooser = Chooser(lambda: self.host.name, started, holds.pins, holds.quarantine)
                site = None if self.offline else self._refresh(downloads, chooser)
                means = self._means(holds)
                for choice in self.configuration.bundles:
                    report = BundleReport(name=choice.name)
                    reports.append(report)
                    offer = self._offer(choice, site, chooser, downloads, report)
                    self._attend(Enforcement.of(means, report, choice.give_up_after), offer)
            except Stopped as stop:
                self.problems.error(str(stop), stop.exit_status)
            except ConfigurationError as error:  # data of this host: without them nothing may be applied
                self.problems.caught(error)
            except OSError as error:  # so is what it remembers
                self.problems.error(sentence_of(error), ExitStatus.CONFIGURATION)
            with self.stops.deferred():
                return self._conclude(started, reports)

    @property
    def problems(self) -> RunProblems:
        """What has gone wrong so far."""
        if self._problems is None:
            self._problems = RunProblems(self.log)
        return self._problems

    @property
    def fetching(self) -> Deadline:
        """When this run stops fetching and enforces what it has: metadata, site data and bundles have one limit."""
        if self._fetching is None:
            self._fetching = Deadline(self.configuration.http.total_timeout, self.stops.check)
        return self._fetching

    # The steps

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """The lock, and directories to work in; a dry run writes nothing, and may run beside another."""
        if self.settings.noop:
            yield
            return
        with only_run(self.directories.run):
            try:
                notes = self.directories.make()
            except OSError as error:
                raise ConfigurationError(file_problem(error, "cannot be made")) from error
            for note in notes:
                self.problems.warn(note)
            if unfinished := find_unfinished(self.directories):
                self.problems.warn(f"the run that began {unfinished} did not come to its end")
            self._tell("running")
            yield

    def _tell(self, state: str) -> None:
        """What ``puller status`` says of this run; that it cannot be said is no reason not to do it."""
        try:
            save_status(self.directories, state)
        except OSError as error:
            self.problems.warn(sentence_of(error))

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

    def _holds(self, now: datetime) -> Holds:
        """What this host's operator has said; whether anything is applied by this run follows from it."""
        holds = Holds.load(
            self.configuration, self.directories, now, self.problems.warn, noop=self.settings.noop
        )
        if paused := holds.why_not_applying(now):
            self._paused = paused
            self.log.notice(f"nothing is applied: {paused}")
            self.problems.count(ExitStatus.HELD)
        return holds

    def _refresh(self, downloads: Directories, chooser: Chooser) -> SiteView | None:
        """What the site publishes, verified; ``None`` when it could not be had, with the reason noted.

        Whatever goes wrong here, be it a bug: what is here already is enforced.
        """
        try:
            site: SiteView | None = unchanged(self.configuration, self.directories, chooser, self.fetching)
            if site is None:
                site = RefreshedSite.refreshed(self.configuration, downloads, self.fetching)
        except Exception as error:  # noqa: BLE001  see above
            self.problems.caught(error)
            return None
        for note in site.notes:
            self.problems.warn(note)
        return site

    def _means(self, holds: Holds) -> Means:
        return Means(
            store=Store(self.directories.bundles),
            directories=self.directories,
            inputs=self._inputs(),
            settings=self.settings,
            stops=self.stops,
            log=self.log,
            problems=self.problems,
            trials=Trials(self.directories, self.problems.warn, noop=self.settings.noop),
            quarantine=holds.quarantine,
            detailed_exitcodes=self.detailed_exitcodes,
        )

    def _inputs(self) -> Inputs:
        """Facts and data of this host; a problem with site data is noted, and stops nothing."""

        def warn(sentence: str, error: Exception) -> None:
            status = ExitStatus.FETCH_FAILED if isinstance(error, MemoryError) else status_of(error)
            self.problems.error(sentence, status or ExitStatus.BUG)

        return self.host.inputs(self.directories.data, warn, deadline=self.fetching, noop=self.settings.noop)

    def _offer(
        self,
        choice: BundleChoice,
        site: SiteView | None,
        chooser: Chooser,
        downloads: Directories,
        report: BundleReport,
    ) -> Offer | None:
        if site is None:
            return None
        store = Store(self.directories.bundles)
        return Offer(site, chooser, choice, downloads, store, report, self.problems)

    def _attend(self, enforcement: Enforcement, offer: Offer | None) -> None:
        """Enforce one bundle, or wait while nothing is to be applied."""
        if self.stops.reason:  # during a bundle before this one, which was brought to its end
            self.problems.warn(f"{enforcement.report.name}: not applied: {self.stops.reason}")
            enforcement.wait(None, self.stops.reason)
        elif self._paused:
            enforcement.wait(offer, self._paused)
        else:
            enforcement.enforce(offer)

    def _conclude(self, started: datetime, bundles: list[BundleReport]) -> Report:
        for problem in self.host.facts.problems:
            self.problems.warn(str(problem))
        self.problems.count(self.stops.exit_status)
        report = Report(
            run=started.strftime("%Y%m%dT%H%M%S.%fZ"),
            started=started.isoformat(timespec="milliseconds"),
            finished=datetime.now(UTC).isoformat(timespec="milliseconds"),
            host=self.host.name,
            puller=__version__,
            noop=self.settings.noop,
            exit_status=self.problems.exit_status,
            paused=self._paused,
            problems=self.problems.sentences,
            bundles=bundles,
        )
        if not self.settings.noop:
            self._keep(report)
        return report

    def _keep(self, report: Report) -> None:
        """The report on disk and the metrics; a disk that is full now is no reason to hide what was done."""
        self._save(report)
        self._tell("idle")
        if textfile := self.configuration.reports.textfile:
            try:
                metrics.write(report, Path(textfile))
            except (OSError, ResourceError) as error:
                self._note_unkept("metrics", report, error)
                self._save(report)

    def _save(self, report: Report) -> None:
        try:
            save_report(report, self.directories, self.configuration.reports.keep)
        except OSError as error:
            self._note_unkept("report", report, error)

    def _note_unkept(self, what: str, report: Report, error: OSError | ResourceError) -> None:
        why = sentence_of(error) if isinstance(error, OSError) else str(error)
        self.problems.error(f"the {what} cannot be kept: {why}", ExitStatus.CONFIGURATION)
        report.exit_status = self.problems.exit_status
