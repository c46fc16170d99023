"""Keep the report of a run: on disk, as metrics, and in the spools of the destinations.

* Every run has an end on record, also if its report cannot be written.
* A problem during this work becomes part of the report, which is then written again.
"""

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from foundation.formatting import text_of
from foundation.problems import Problem
from hiera.errors import HieraError
from hiera.sops.identities import find_published
from puller.config.configuration import Configuration
from puller.errors import ResourceError
from puller.exit_status import ExitStatus
from puller.reporting.history import Retention, forget_end, keep_end, save_report, save_status
from puller.reporting.report import Report, RestlessResource, SentFacts, SentReport
from puller.reporting.restless import MOST_SAID, sentence, update_restless
from puller.reporting.run_log import RunProblems, problem_of, sentence_of
from puller.reporting.sinks import MessageId
from puller.run.host import Host
from puller.run.host_state import HostState, sent_report
from puller.state import Directories, StateFile

if TYPE_CHECKING:
    from puller.delivery.delivery import Delivery


class ReportKeeper(msgspec.Struct, frozen=True):
    """Keeps the report of one run."""

    configuration: Configuration
    directories: Directories
    host: Host
    problems: RunProblems

    def keep(self, report: Report, delivery: "Delivery | None") -> None:
        """Write the report and the metrics, and prepare the report for sending. Errors are reported."""
        self._save(report)
        with self.problems.remembering():
            save_status(self.directories, "idle")
        reported = len(report.problems)
        restless = self._find_restless(report)
        self._write_metrics(report, restless)
        if len(report.problems) > reported:
            self._save(report)
        if delivery:  # last, because the document contains the final report
            self._prepare(delivery, report, restless)

    def keep_end(self, report: Report) -> None:
        """Keep only the end of a run, and its metrics."""
        with contextlib.suppress(OSError):
            keep_end(report, self.directories)
        self._write_metrics(report, [])

    def _save(self, report: Report) -> None:
        options = self.configuration.reports
        retention = Retention(
            options.keep, options.quiet_for, options.eventful_for, options.most, options.most_bytes
        )
        try:
            save_report(self._to_keep(report), self.directories, retention, datetime.now(UTC))
            forget_end(self.directories)
        except OSError as error:
            self._report_unkept("report", report, error)
            with self.problems.remembering():
                keep_end(report, self.directories)

    def _to_keep(self, report: Report) -> Report:
        """Return the report without diffs that only the output should have."""
        return report if self.configuration.reports.diffs else report.without_diffs()

    def _find_restless(self, report: Report) -> list[RestlessResource]:
        """Return the resources that change in each run. Log new ones."""
        changes = any(bundle.summary.changes for bundle in report.bundles)
        if not changes and not self.directories.restless.exists():
            return []
        restless: list[RestlessResource] = []
        with self.problems.remembering():
            restless, new = update_restless(report, self.directories, self.problems.warn)
            log, kind = self.problems.log, MessageId.RESOURCE_RESTLESS
            for resource in new[:MOST_SAID]:
                log.warn(sentence(resource), kind=kind, bundle=resource.bundle, resource=resource.reference)
            if (additional := len(new) - MOST_SAID) > 0:
                log.warn(f"and {additional} more restless resources", kind=kind)
        return restless

    def _write_metrics(self, report: Report, restless: Sequence[RestlessResource]) -> None:
        if textfile := self.configuration.reports.textfile:
            from puller.reporting import monitoring  # 0.1 % of an idle run, and few hosts have such a file

            try:
                monitoring.write_metrics(self._sent_report(report, restless), Path(textfile))
            except (OSError, ResourceError) as error:
                self._report_unkept("metrics", report, error)

    def _prepare(self, delivery: "Delivery", report: Report, restless: Sequence[RestlessResource]) -> None:
        """Put the report into the spools. An error does not change the exit status of the run."""
        try:
            facts = self._facts()
            delivery.keep(self._sent_report(report, restless, facts, self._recipient()))
        except Exception as error:  # noqa: BLE001  see above
            self.problems.log.warn(f"cannot send reports: {sentence_of(error)}")

    def _facts(self) -> SentFacts:
        """Return the facts for the fleet. A run that did not read all manifests uses those of the last complete run."""
        # With ``Delivery`` 8 % of an idle run, and most hosts send no reports.
        from puller.delivery.report_document import chosen_facts, joined_facts

        reads = self.host.facts.reads
        with self.host.facts.unrecorded():
            facts = chosen_facts(self.host.facts, self.configuration.reports.facts, reads)
        if reads is None:
            return facts
        used = StateFile(self.directories.used_facts, SentFacts, "the next complete run writes it again")
        with self.problems.remembering():
            earlier = used.load(self.problems.log.warn)
            if not reads.is_complete:
                return joined_facts(facts, earlier or SentFacts())
            if facts != earlier:
                used.save(facts)
        return facts

    def _recipient(self) -> str:
        """Return the recipient of this host, empty without a usable key."""
        try:
            key = find_published(self.configuration.age_identities, self._warn_of_key)
        except (HieraError, OSError) as error:  # files for this key report the same error
            self.problems.log.warn(f"the report has no recipient of this host: {sentence_of(error)}")
            return ""
        return key.recipient if key is not None else ""

    def _warn_of_key(self, problem: Problem) -> None:
        if problem not in self.host.identities.problems:  # which the run has reported
            self.problems.log.warn(text_of(problem))

    def _sent_report(
        self,
        report: Report,
        restless: Sequence[RestlessResource],
        facts: SentFacts | None = None,
        recipient: str = "",
    ) -> SentReport:
        # The run has reported damaged records already.
        state = HostState(self.configuration, self.directories, datetime.now(UTC), lambda _: None)
        return sent_report(state, self._to_keep(report), restless, facts or SentFacts(), recipient)

    def _report_unkept(self, description: str, report: Report, error: OSError | ResourceError) -> None:
        message = f"cannot write the {description}: {sentence_of(error)}"
        self.problems.error(problem_of(error, message), ExitStatus.CONFIGURATION)
        report.exit_status = self.problems.exit_status
