"""One run on a host. ``Agent.run`` lists its steps, and the methods below follow in the same order.

* A problem with the site or the network can stop an update. The last good version is applied as before, the run reports
  the problem, and its exit status shows it.
* A new version becomes current only after its manifest is valid on this host, and good only after it has passed.
* While the operator holds the host, or outside of its maintenance windows, the steps 7 to 10 are left out, and
  step 11 removes only versions that are not needed.
* Reports are sent after the run. Sending changes nothing and does not delay the next run.
* A dry run keeps downloads in a private directory. It does not change the state.
"""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bundles.confined.current import missing_protections
from bundles.deadline import Deadline
from bundles.progress import RoutineNote
from bundles.store.store import Store
from foundation.problems import Problem, ProblemCode
from foundation.times import iso_text
from puller.config.configuration import Configuration
from puller.engine.engine import Settings
from puller.errors import ConfigurationError, UsageError, file_problem
from puller.exit_status import ExitStatus
from puller.manifest.graph.host_catalog import HostCatalog
from puller.manifest.manifest import Inputs
from puller.reporting.history import find_unfinished, identity, is_good, load_last_good, save_status
from puller.reporting.report import BundleReport, Phase, Phases, Report
from puller.reporting.run_log import RunProblems, described, problem_of, sentence_of, status_of
from puller.reporting.sinks import MessageId
from puller.run.bundle_run import BundleRun, Chosen, RunContext
from puller.run.catalog import apply_versions, begin_attempts, choose_versions, chosen_bundles
from puller.run.host import Host
from puller.run.host_state import ExportedValues
from puller.run.judging import conclude, judge, judge_between_runs
from puller.run.leftovers.leftovers import Leftovers
from puller.run.policy.decision import ReleaseSelector
from puller.run.policy.holds import Holds
from puller.run.reboots import restart_machine
from puller.run.report_keeping import ReportKeeper
from puller.run.site_refresh import BundleSource, SiteView, copy_trust, refresh
from puller.run.template_cache import cached_templates
from puller.run.trials import Trials
from puller.state import Directories, only_run
from puller.system.processes import Stopped, StopRequests
from puller.values.maintenance import PendingReboot
from puller.version import __version__

if TYPE_CHECKING:
    from puller.delivery.delivery import Delivery


class RunRecord(msgspec.Struct):
    """The record of one run, the source of the report."""

    started: datetime
    paused: str = ""
    """The reason to leave out the steps 7 to 10. Usually empty."""
    bundles: list[BundleRun] = []
    """The bundles of the host, in the order of its configuration."""
    reboots: list[PendingReboot] = []
    """The reboots that resources require and that have not happened."""
    phases: Phases = msgspec.field(default_factory=Phases)


class Agent(msgspec.Struct, frozen=True):
    """An agent for one run. Everything that it works with is an argument."""

    configuration: Configuration
    directories: Directories
    host: Host
    problems: RunProblems
    """The problems of this run, and its log."""
    stops: StopRequests
    settings: Settings
    offline: bool = False
    """Apply the versions of this host, without asking the site."""
    ignores_holds: bool = False
    """Apply also during a pause and outside of the maintenance windows. Only for dry runs."""
    fell_back: str = ""
    """Why the installed agent does not start and this earlier one runs in its place. Usually empty."""

    def run(self) -> Report:
        """Pull, verify, apply and report.

        1. Lock: one run at a time, with directories to work in (``puller.state``).
        2. Holds: the operator's pause, maintenance windows, pins and quarantine (``puller.run.policy``).
        3. Refresh: the verified metadata of the site (``puller.run.site_refresh``).
        4. Inputs: facts and data, gathered on demand (``puller.run.host``).
        5. Choose: the release that this host should run, for each bundle (``puller.run.policy.decision``).
        6. Unpack: download, verify and install it, unless the store has it (``puller.run.site_refresh``).
        7. Prepare: choose the version to apply, join the manifests, put attempts on record, make the versions current
           (``puller.run.policy.decision``, ``puller.run.catalog``, ``puller.run.trials``).
        8. Apply: the catalog and the reversals of leftovers (``puller.engine``, ``puller.run.leftovers``).
        9. Judge: health checks and failed resources of the versions on trial (``puller.run.judging``).
        10. Keep or roll back: quarantine a version that failed, and go back to step 7. Keep a version that passed
           (``puller.run.bundle_run``, ``puller.run.judging``).
        11. Retire: update the exports, and remove versions that are not needed (``puller.run.host_state``,
           ``bundles.store``).
        12. Report: the report, metrics and the exit status (``puller.run.report_keeping``).
        13. Send: the reports that wait (``puller.delivery``).
        14. Reboot: if a resource has requested it (``puller.run.reboots``).

        Raise ``BusyError``, and ``ConfigurationError`` for directories of the agent. Other errors are in the report.
        """
        record = RunRecord(datetime.now(UTC))
        self.problems.log.belong_to(identity(record.started))
        try:
            return self._run(record)
        except ConfigurationError as error:  # otherwise the report of an earlier run would be the last one
            self._keep_refused(record, error)
            raise

    def _run(self, record: RunRecord) -> Report:
        """Run the steps. ``run`` has their numbers."""
        noop, phases = self.settings.noop, record.phases
        # 1. Lock
        with (
            self._locked(),
            self._place_for_downloads() as downloads,
            cached_templates(self.directories.template_cache, noop=noop),
        ):
            with self._reported():
                if self.fell_back:
                    fallback = Problem(
                        code=ProblemCode.AGENT_FALLBACK, message=f"the agent: {self.fell_back}"
                    )
                    self.problems.error(fallback, ExitStatus.FELL_BACK)
                # 2. Holds
                holds = self._load_holds(record)
                selector = ReleaseSelector(
                    lambda: self.host.name, record.started, holds.pins, holds.quarantine
                )
                # 3. Refresh. Metadata, site data and bundles have one time limit
                deadline = Deadline(self.configuration.http.total_timeout, self.stops.check)
                with phases(Phase.REFRESH):
                    site = None if self.offline else self._refresh(downloads, selector, deadline)
                # 4. Inputs
                self._record_facts()
                with phases(Phase.RESOLVE):
                    context = self._context(holds, self._inputs(site, deadline), is_verified=site is not None)
                record.bundles = [
                    BundleRun(context, choice, BundleReport(name=choice.name))
                    for choice in self.configuration.bundles
                ]
                # 5. Choose and 6. Unpack
                source = (
                    BundleSource(site, selector, downloads, context.store, self.problems)
                    if site is not None
                    else None
                )
                with phases(Phase.FETCH):
                    for bundle in record.bundles:
                        bundle.fetch(source)
                if record.paused:
                    self._pause(record, is_refreshed=site is not None)
                else:
                    self._converge(record, context)
            self._keep_reboots(record)
            # 12. Report. A signal that arrives now does not stop it
            with self.stops.deferred():
                delivery = self._delivery()
                report = self._conclude(record, delivery)
        # 13. Send. The lock is free for the next run
        self._send(delivery)
        # 14. Reboot
        self._reboot(report)
        return report

    def _converge(self, record: RunRecord, context: RunContext) -> None:
        """Apply all bundles together: the steps 7 to 11.

        Raise ``UsageError`` for a reference of ``--only`` that names nothing, before anything is changed.
        """
        bundles, phases = record.bundles, record.phases
        # 7. Prepare
        with phases(Phase.RESOLVE):
            catalog = choose_versions(context, bundles)
        if only := self.settings.only:
            catalog = catalog.limited_to(only)
        self.stops.check()
        with self.stops.deferred():  # every attempt gets its end on record
            with phases(Phase.APPLY):
                while failures := self._attempt(context, bundles, catalog):
                    # 10. Roll back
                    for bundle, chosen, why in failures:
                        bundle.roll_back(chosen.installed, why)
                    # 7. Prepare, with the versions that the host returns to
                    catalog = choose_versions(context, bundles)
            # 10. Keep
            if not self.settings.noop:
                self._withdraw_reboot(bundles)
                for bundle, _ in chosen_bundles(bundles):
                    conclude(bundle)
        # 11. Retire
        self._retire(context, bundles)
        if (reads := self.host.facts.reads) is not None:
            reads.is_complete = not self.settings.only and not self.stops.reason

    def _attempt(
        self, context: RunContext, bundles: Sequence[BundleRun], catalog: HostCatalog
    ) -> list[tuple[BundleRun, Chosen, str]]:
        """Apply the chosen versions. Return those that have failed their trials, with the reasons."""
        # 7. Prepare
        catalog = begin_attempts(context, bundles, catalog)
        # 9. Judge trials of earlier runs, before this run repairs anything
        failures = [
            (bundle, chosen, why)
            for bundle, chosen in chosen_bundles(bundles)
            if (why := judge_between_runs(bundle, chosen, catalog))
        ]
        if failures:
            return failures
        # 8. Apply
        if self.settings.reboots is not None:
            self.settings.reboots.begin()
        apply_versions(context, bundles, catalog)
        # 9. Judge
        if self.settings.noop:
            return []
        return [
            (bundle, chosen, why)
            for bundle, chosen in chosen_bundles(bundles)
            if (why := judge(bundle, chosen))
        ]

    # 1. Lock

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock and make the directories. A dry run writes nothing and may run beside another run."""
        if self.settings.noop:
            yield
            return
        with only_run(self.directories.run):
            # Only the holder of the lock can know that no other process works on unfinished files.
            try:
                notes = self.directories.make()
            except OSError as error:
                raise ConfigurationError(file_problem(error, "cannot be made")) from error
            for note in notes:
                self.problems.warn(note)
            if unfinished := find_unfinished(self.directories):
                self.problems.warn(f"the run that began {unfinished} did not finish")
            with self.problems.remembering():
                save_status(self.directories, "running")
            yield

    @contextlib.contextmanager
    def _place_for_downloads(self) -> Iterator[Directories]:
        """Yield the directories that metadata and bundles are written to. A dry run works on a private copy."""
        if not self.settings.noop:
            yield self.directories
            return
        import tempfile  # 4 % of an idle run with its own imports, and only a dry run needs it

        with tempfile.TemporaryDirectory(prefix="puller-noop-", ignore_cleanup_errors=True) as scratch:
            downloads = Directories(Path(scratch), self.directories.run)
            copy_trust(self.directories.trust, downloads.trust)
            yield downloads

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """Put errors that end the steps into the report."""
        try:
            yield
        except Stopped as stop:
            self.problems.error(Problem(code=ProblemCode.STOPPED, message=str(stop)), stop.exit_status)
        except (ConfigurationError, UsageError) as error:
            # Data of this host that are not valid, or a reference of ``--only`` that names nothing.
            self.problems.caught(error)
        except OSError as error:  # of the state directory
            self.problems.error(described(error)[0], ExitStatus.CONFIGURATION)

    # 2. Holds

    def _load_holds(self, record: RunRecord) -> Holds:
        """Return everything that the operator holds. Report why nothing is applied, if that is so."""
        warn, noop = self.problems.warn, self.settings.noop
        holds = Holds.load(self.configuration, self.directories, record.started, warn, noop=noop)
        record.paused = "" if self.ignores_holds else holds.why_not_applying(record.started)
        if record.paused:
            self.problems.log.notice(f"nothing is applied: {record.paused}", kind=MessageId.RUN_PAUSED)
            self.problems.count(ExitStatus.HELD)
        return holds

    def _pause(self, record: RunRecord, *, is_refreshed: bool) -> None:
        """Leave out the steps 7 to 10, because nothing is applied."""
        for bundle in record.bundles:
            bundle.report_unapplied(bundle.current, record.paused)
            if is_refreshed:  # otherwise the offer, which has to stay, is unknown
                bundle.prune()

    # 3. Refresh

    def _refresh(
        self, downloads: Directories, selector: ReleaseSelector, deadline: Deadline
    ) -> SiteView | None:
        """Return the verified site. ``None`` after any error, also a bug. Then the versions of the host are used."""
        try:
            site = refresh(self.configuration, self.directories, downloads, selector, deadline)
        except Exception as error:  # noqa: BLE001  see above
            self.problems.caught(error)
            return None
        for note in site.notes:
            self.problems.note(note, is_routine=isinstance(note, RoutineNote))
        return site

    # 4. Inputs

    def _inputs(self, site: SiteView | None, deadline: Deadline) -> Inputs:
        """Return facts and data of this host. A problem with site data is reported and stops nothing."""

        def warn(sentence: str, error: Exception) -> None:
            status = ExitStatus.FETCH_FAILED if isinstance(error, MemoryError) else status_of(error)
            self.problems.error(problem_of(error, sentence), status or ExitStatus.BUG)

        signed = None if site is None else site.indexes.documents
        return self.host.inputs(
            self.directories.data, warn, signed=signed, deadline=deadline, noop=self.settings.noop
        )

    def _record_facts(self) -> None:
        """Record the facts that bundles read, if a report with them is sent."""
        reports = self.configuration.reports
        if self.settings.noop or not reports.to or not reports.used_facts:
            return
        from puller.facts.fact_values import FactReads  # most hosts send no reports

        self.host.facts.reads = FactReads()

    def _context(self, holds: Holds, inputs: Inputs, *, is_verified: bool) -> RunContext:
        warn, noop, packages = self.problems.warn, self.settings.noop, self.configuration.undo_packages
        return RunContext(
            store=Store(self.directories.bundles),
            directories=self.directories,
            inputs=inputs,
            settings=self.settings,
            stops=self.stops,
            problems=self.problems,
            trials=Trials(self.directories, warn, noop=noop),
            quarantine=holds.quarantine,
            leftovers=Leftovers(self.directories, warn, noop=noop, packages=packages),
            is_verified=is_verified,
        )

    # 10. Keep or roll back

    def _withdraw_reboot(self, bundles: Sequence[BundleRun]) -> None:
        """Give up the request of a reboot after a rollback or a signal. The next run decides again."""
        plan = self.settings.reboots
        if plan is None or not plan.is_requested:
            return
        why = "for the next run, because a signal stopped this run" if self.stops.reason else ""
        if any(bundle.report.given_up is not None for bundle in bundles):
            why = "for the next run, because this run gave a version up"
        if why:
            with self.problems.remembering():
                plan.withdraw(why)

    # 11. Retire

    def _retire(self, context: RunContext, bundles: Sequence[BundleRun]) -> None:
        """Update the exports, and remove the versions that are not needed."""
        if not self.settings.noop:
            applied = [
                (bundle, chosen) for bundle, chosen in chosen_bundles(bundles) if not bundle.is_left_out
            ]
            for _, chosen in applied:
                for problem in chosen.manifest.export_problems:
                    self.problems.error(problem, ExitStatus.FAILED)
            with self.problems.remembering():
                ExportedValues(self.directories, self.problems.warn).update(
                    {bundle.name: chosen.manifest.exports for bundle, chosen in applied},
                    [bundle.name for bundle in bundles],
                )
            with self.problems.remembering():
                context.trials.retain([bundle.name for bundle in bundles])
        for bundle in bundles:
            bundle.prune()

    # 12. Report

    def _keep_reboots(self, record: RunRecord) -> None:
        """Record the reasons of reboots for the next run, and put pending reboots into the report."""
        if self.settings.reboots is not None:
            is_partial = bool(self.settings.only or self.stops.reason)
            with self.problems.remembering():
                record.reboots = self.settings.reboots.keep(is_partial=is_partial)

    def _conclude(self, record: RunRecord, delivery: "Delivery | None") -> Report:
        for fact_error in self.host.facts.problems:  # complete only now, because facts are gathered on demand
            self.problems.warn(fact_error.problems[0])
        for unusable_key in self.host.identities.problems:
            self.problems.warn(unusable_key)
        self.problems.count(self.stops.exit_status)
        report = self._report(record)
        if not self.settings.noop:
            report.last_good = report.finished if is_good(report) else load_last_good(self.directories)
            self._keeper().keep(report, delivery)
        self.problems.log.ended(report.exit_status, report.bundles)
        return report

    def _report(self, record: RunRecord) -> Report:
        return Report(
            run=identity(record.started),
            started=iso_text(record.started, "milliseconds"),
            finished=iso_text(datetime.now(UTC), "milliseconds"),
            host=self.host.name,
            puller=__version__,
            noop=self.settings.noop,
            exit_status=self.problems.exit_status,
            paused=record.paused,
            only=list(self.settings.only),
            problems=self.problems.problems,
            unprotected=self._unprotected(),
            reboots=record.reboots,
            bundles=[bundle.report for bundle in record.bundles],
            phases=record.phases.seconds,
        )

    def _keep_refused(self, record: RunRecord, error: ConfigurationError) -> None:
        """Keep the end and the metrics of a run that ended before its first step."""
        if self.settings.noop:
            return
        self.problems.problems += error.problems  # the command line prints them
        self.problems.count(error.exit_status)
        self._keeper().keep_end(self._report(record))

    def _keeper(self) -> ReportKeeper:
        return ReportKeeper(self.configuration, self.directories, self.host, self.problems)

    def _unprotected(self) -> list[str]:
        """Return, and log, the protections that this kernel lacks. A host works without them."""
        missing = missing_protections()
        for sentence in missing:
            self.problems.log.warn(sentence)
        return missing

    # 13. Send

    def _delivery(self) -> "Delivery | None":
        """Return the delivery of reports. ``None`` if reports have no destination."""
        if self.settings.noop or not self.configuration.reports.to:
            return None
        from puller.delivery.delivery import Delivery  # 8 % of an idle run, and most hosts send no reports

        return Delivery(self.configuration, self.directories.spool, self.problems.log.warn)

    def _send(self, delivery: "Delivery | None") -> None:
        """Send the reports that wait. A signal or an error does not change the exit status of the run."""
        if delivery is None:
            return
        try:
            delivery.send(self.stops.check)
        except Stopped as stop:
            self.problems.log.warn(f"{stop}: the next run will send the reports")
        except Exception as error:  # noqa: BLE001  see above
            self.problems.log.warn(f"cannot send reports: {sentence_of(error)}")

    # 14. Reboot

    def _reboot(self, report: Report) -> None:
        """Restart the machine if a resource has requested it. The next run repeats what fails here."""
        plan = self.settings.reboots
        if self.settings.noop or plan is None:
            return
        restart_machine(plan, self.directories, self.problems, self.stops)
        report.exit_status = self.problems.exit_status
