"""One run on a host, from the lock to the report: ``Agent.run`` is the list of its steps.

* What the site or the network does can stop an update, never what is enforced: on any problem the last good bundle is
  applied as before, the problem is reported, and the exit status says so.
* A new bundle becomes current only after its manifest is understood on this host, and good only after it has passed.
* While the operator holds this host, or outside of its maintenance windows, everything goes on but the applying.
* What is sent to the fleet is sent when the run is over: it changes nothing of it, and delays no other.
* A noop run keeps what it downloads in a private place: nothing of the state is different after it.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bundles.client.notes import RoutineNote
from bundles.confined.current import missing_protections
from bundles.deadline import Deadline
from bundles.store.store import Store
from foundation.problems import Problem, ProblemCode
from puller.config.configuration import Configuration
from puller.engine.engine import Settings
from puller.errors import ConfigurationError, ResourceError, UsageError, file_problem
from puller.exit_status import ExitStatus
from puller.manifest.manifest import Inputs
from puller.reporting.exit_codes import status_of
from puller.reporting.fields import MessageId
from puller.reporting.history import (
    find_unfinished,
    forget_end,
    keep_end,
    load_last_good,
    save_report,
    save_status,
)
from puller.reporting.phases import Phase, Phases
from puller.reporting.report import BundleReport, Report
from puller.reporting.retention import Retention, identity, is_good
from puller.reporting.run_problems import RunProblems, described, problem_of, sentence_of
from puller.run.application import Means
from puller.run.host import Host
from puller.run.left.leftovers import Leftovers
from puller.run.policy.holds import Holds
from puller.run.policy.selection import Chooser
from puller.run.reconciliation import Reconciliation
from puller.run.site import Offer, SiteView, copy_trust, refresh
from puller.run.template_cache import cached_templates
from puller.run.trials import Trials
from puller.state.directories import Directories
from puller.state.lock import only_run
from puller.system.signals import Stopped, StopRequests
from puller.version import __version__

if TYPE_CHECKING:
    from puller.delivery.delivery import Delivery
    from puller.reporting.sent_report import RestlessResource, SentReport


class Agent(msgspec.Struct, frozen=True):
    """An agent for one run; all that it works with is handed in."""

    configuration: Configuration
    directories: Directories
    host: Host
    problems: RunProblems
    """Those of this run, and the log that they are said in."""
    stops: StopRequests
    settings: Settings
    offline: bool = False
    """Enforce what is here, without asking the site."""
    fell_back: str = ""
    """What the launcher says of the agent that is installed and does not start, in whose place this is; else empty."""

    def run(self) -> Report:
        """Pull, verify, apply, report.

        1. One run at a time, with directories to work in (``puller.state``).
        2. The operator's word: disabled, maintenance windows, pins, quarantine (``puller.run.policy``).
        3. Refresh: what the site publishes, verified (``puller.run.site``, ``bundles.client``).
        4. Facts and data of this host, gathered when they are asked for (``puller.run.host``, ``puller.facts``,
           ``puller.data``).
        5. Bundles: the site's offers (``puller.run.policy.selection``, ``bundles.store``) are enforced together, or
           wait (``puller.run.reconciliation``).
        6. The report, metrics, and the exit status (``puller.reporting``).
        7. The report is sent to where the fleet is looked at (``puller.delivery``).

        Raises ``BusyError``, and ``ConfigurationError`` for directories of its own; the rest is in the report.
        """
        started = datetime.now(UTC)
        self.problems.log.belong_to(identity(started))
        try:
            return self._run(started)
        except (
            ConfigurationError
        ) as error:  # no report tells of it, and the one of an earlier run may be good
            self._keep_refused(started, error)
            raise

    def _run(self, started: datetime) -> Report:
        """See ``run``; the numbers are those of its steps."""
        paused, phases = "", Phases()
        reports: list[BundleReport] = []
        # 1. Lock
        with self._exclusively(), self._place_for_downloads() as downloads, self._cached_templates():
            with self._reported():
                if self.fell_back:
                    fallback = Problem(
                        code=ProblemCode.AGENT_FALLBACK, message=f"the agent: {self.fell_back}"
                    )
                    self.problems.error(fallback, ExitStatus.FELL_BACK)
                # 2. Operator
                noop, warn = self.settings.noop, self.problems.warn
                holds = Holds.load(self.configuration, self.directories, started, warn, noop=noop)
                paused = self._why_paused(holds, started)
                chooser = Chooser(lambda: self.host.name, started, holds.pins, holds.quarantine)
                # 3. Refresh; metadata, site data and bundles have one limit
                fetching = Deadline(self.configuration.http.total_timeout, self.stops.check)
                with phases(Phase.REFRESH):
                    site = None if self.offline else self._refresh(downloads, chooser, fetching)
                # 4. Facts and data
                with phases(Phase.RESOLVE):
                    means = self._means(holds, self._inputs(site, fetching), phases)
                # 5. Bundles
                reports += [BundleReport(name=choice.name) for choice in self.configuration.bundles]
                offers = self._offers(site, chooser, downloads, reports)
                self._attend(Reconciliation.of(means, reports, self.configuration.bundles), offers, paused)
            # 6. Report; a signal that comes now does not keep it from being written
            with self.stops.deferred():
                delivery = self._delivery()
                report = self._conclude(started, paused, reports, phases, delivery)
        # 7. Sending, when all is done: the lock is free for the next run, and a signal ends nothing but this
        self._send(delivery)
        return report

    # 1. Lock

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """The lock, and directories to work in; a dry run writes nothing, and may run beside another."""
        if self.settings.noop:
            yield
            return
        with only_run(self.directories.run):
            # Only the holder of the lock knows that what it finds half done is nobody's work in progress.
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
        """Let ``puller status`` say what this run does."""
        with self.problems.remembering():
            save_status(self.directories, state)

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

    def _cached_templates(self) -> contextlib.AbstractContextManager[None]:
        return cached_templates(self.directories.template_cache, noop=self.settings.noop)

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """Let the report tell what ends the steps within, and end nothing else by it."""
        try:
            yield
        except Stopped as stop:
            self.problems.error(Problem(code=ProblemCode.STOPPED, message=str(stop)), stop.exit_status)
        except ConfigurationError as error:  # data of this host: without them nothing may be applied
            self.problems.caught(error)
        except UsageError as error:  # a reference of --only that names nothing
            self.problems.caught(error)
        except OSError as error:  # so is what it remembers
            self.problems.error(described(error)[0], ExitStatus.CONFIGURATION)

    # 2. Operator

    def _why_paused(self, holds: Holds, now: datetime) -> str:
        """Why nothing is applied by this run; empty when it is."""
        if paused := holds.why_not_applying(now):
            self.problems.log.notice(f"nothing is applied: {paused}", kind=MessageId.RUN_PAUSED)
            self.problems.count(ExitStatus.HELD)
        return paused

    # 3. Refresh

    def _refresh(self, downloads: Directories, chooser: Chooser, fetching: Deadline) -> SiteView | None:
        """The site, verified; ``None`` when it could not be had, with the reason noted.

        Whatever goes wrong here, be it a bug: what is here already is enforced.
        """
        try:
            site = refresh(self.configuration, self.directories, downloads, chooser, fetching)
        except Exception as error:  # noqa: BLE001  see above
            self.problems.caught(error)
            return None
        for note in site.notes:
            self.problems.note(note, is_routine=isinstance(note, RoutineNote))
        return site

    # 4. Facts and data

    def _inputs(self, site: SiteView | None, fetching: Deadline) -> Inputs:
        """Facts and data of this host; a problem with site data is noted, and stops nothing."""

        def warn(sentence: str, error: Exception) -> None:
            status = ExitStatus.FETCH_FAILED if isinstance(error, MemoryError) else status_of(error)
            self.problems.error(problem_of(error, sentence), status or ExitStatus.BUG)

        signed = None if site is None else site.indexes.documents
        return self.host.inputs(
            self.directories.data, warn, signed=signed, deadline=fetching, noop=self.settings.noop
        )

    # 5. Bundles

    def _means(self, holds: Holds, inputs: Inputs, phases: Phases) -> Means:
        return Means(
            store=Store(self.directories.bundles),
            directories=self.directories,
            inputs=inputs,
            settings=self.settings,
            stops=self.stops,
            problems=self.problems,
            trials=Trials(self.directories, self.problems.warn, noop=self.settings.noop),
            quarantine=holds.quarantine,
            leftovers=self._leftovers(),
            phases=phases,
        )

    def _leftovers(self) -> Leftovers:
        packages = self.configuration.undo_packages
        return Leftovers(self.directories, self.problems.warn, noop=self.settings.noop, packages=packages)

    def _offers(
        self,
        site: SiteView | None,
        chooser: Chooser,
        downloads: Directories,
        reports: Sequence[BundleReport],
    ) -> list[Offer | None]:
        """The site's offer of each bundle."""
        store = Store(self.directories.bundles)
        return [
            None if site is None else Offer(site, chooser, choice, downloads, store, report, self.problems)
            for choice, report in zip(self.configuration.bundles, reports, strict=True)
        ]

    def _attend(self, bundles: Reconciliation, offers: Sequence[Offer | None], paused: str) -> None:
        """Enforce the bundles, or wait while nothing is to be applied."""
        if paused:
            bundles.wait(offers, paused)
        else:
            bundles.run(offers)

    # 6. Report

    def _conclude(
        self,
        started: datetime,
        paused: str,
        bundles: list[BundleReport],
        phases: Phases,
        delivery: "Delivery | None",
    ) -> Report:
        for fact_error in self.host.facts.problems:  # only now all that was asked for is gathered
            self.problems.warn(fact_error.problems[0])
        self.problems.count(self.stops.exit_status)
        report = self._report(started, paused, bundles, phases)
        if not self.settings.noop:
            report.last_good = report.finished if is_good(report) else load_last_good(self.directories)
            self._keep(report, delivery)
        self.problems.log.ended(report.exit_status)
        return report

    def _report(self, started: datetime, paused: str, bundles: list[BundleReport], phases: Phases) -> Report:
        return Report(
            run=identity(started),
            started=started.isoformat(timespec="milliseconds"),
            finished=datetime.now(UTC).isoformat(timespec="milliseconds"),
            host=self.host.name,
            puller=__version__,
            noop=self.settings.noop,
            exit_status=self.problems.exit_status,
            paused=paused,
            only=list(self.settings.only),
            problems=self.problems.problems,
            unprotected=self._unprotected(),
            bundles=bundles,
            phases=phases.seconds,
        )

    def _keep_refused(self, started: datetime, error: ConfigurationError) -> None:
        """Keep the end of a run that ended before its first step, and its metrics."""
        if self.settings.noop:
            return
        self.problems.problems += error.problems  # the command line prints them
        self.problems.count(error.exit_status)
        report = self._report(started, "", [], Phases())
        with contextlib.suppress(OSError):
            keep_end(report, self.directories)
        self._write_metrics(report, [])

    def _unprotected(self) -> list[str]:
        """Return, and log, the protections that this kernel lacks. A host works without them."""
        missing = missing_protections()
        for sentence in missing:
            self.problems.log.warn(sentence)
        return missing

    def _keep(self, report: Report, delivery: "Delivery | None") -> None:
        """The report on disk and the metrics; a disk that is full now is no reason to hide what was done."""
        self._save(report)
        self._tell("idle")
        told = len(report.problems)
        restless = self._restless(report)
        self._write_metrics(report, restless)
        if len(report.problems) > told:
            self._save(report)  # once more, with what has come up since
        if delivery:  # last: what is sent is the report that is kept
            self._prepare(delivery, report, restless)

    def _write_metrics(self, report: Report, restless: "Sequence[RestlessResource]") -> None:
        if textfile := self.configuration.reports.textfile:
            from puller.reporting import metrics

            try:
                metrics.write(self._standing(report, restless), Path(textfile))
            except (OSError, ResourceError) as error:
                self._note_unkept("metrics", report, error)

    def _standing(
        self, report: Report, restless: "Sequence[RestlessResource]", facts: Mapping[str, Any] | None = None
    ) -> "SentReport":
        from puller.run.standing import standing

        return standing(self.configuration, self.directories, report, restless, facts or {})

    def _restless(self, report: Report) -> "list[RestlessResource]":
        """The resources that change in run after run; one that was not so before is told."""
        found: list[RestlessResource] = []
        if not (
            any(bundle.summary.changes for bundle in report.bundles) or self.directories.restless.exists()
        ):
            return found  # nothing has become restless, and nothing was
        from puller.reporting.restless import MOST_SAID, sentence, update_restless

        with self.problems.remembering():
            found, new = update_restless(report, self.directories, self.problems.warn)
            for one in new[:MOST_SAID]:
                self.problems.log.warn(
                    sentence(one), kind=MessageId.RESOURCE_RESTLESS, bundle=one.bundle, resource=one.reference
                )
            if (more := len(new) - MOST_SAID) > 0:
                self.problems.log.warn(f"and {more} more are restless", kind=MessageId.RESOURCE_RESTLESS)
        return found

    def _prepare(self, delivery: "Delivery", report: Report, restless: "Sequence[RestlessResource]") -> None:
        """Put the report where it waits to be sent."""
        from puller.delivery.chosen_facts import chosen_facts

        with self._unchanged_run():
            facts = chosen_facts(self.host.facts, self.configuration.reports.facts)
            delivery.keep(self._standing(report, restless, facts))

    def _save(self, report: Report) -> None:
        try:
            save_report(report, self.directories, self._retention(), datetime.now(UTC))
            forget_end(self.directories)
        except OSError as error:
            self._note_unkept("report", report, error)
            with self.problems.remembering():
                keep_end(report, self.directories)

    def _retention(self) -> Retention:
        options = self.configuration.reports
        return Retention(
            options.keep, options.quiet_for, options.eventful_for, options.most, options.most_bytes
        )

    def _note_unkept(self, what: str, report: Report, error: OSError | ResourceError) -> None:
        message = f"the {what} cannot be kept: {sentence_of(error)}"
        self.problems.error(problem_of(error, message), ExitStatus.CONFIGURATION)
        report.exit_status = self.problems.exit_status

    # 7. Sending

    def _delivery(self) -> "Delivery | None":
        """The delivery of reports; ``None`` where nobody gets any, and nothing is imported for it."""
        if self.settings.noop or not self.configuration.reports.to:
            return None
        from puller.delivery.delivery import Delivery

        return Delivery(self.configuration, self.directories.spool, self.problems.log.warn)

    def _send(self, delivery: "Delivery | None") -> None:
        """Send what waits to be sent; a signal ends that, and the run has ended as it has."""
        if delivery is None:
            return
        with self._unchanged_run():
            try:
                delivery.send(self.stops.check)
            except Stopped as stop:
                self.problems.log.warn(f"{stop}: reports wait for the next run")

    @contextlib.contextmanager
    def _unchanged_run(self) -> Iterator[None]:
        """Whatever goes wrong within is told, and is no failure of the run."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  see above
            self.problems.log.warn(f"reports are not sent: {sentence_of(error)}")
