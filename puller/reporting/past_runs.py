"""Stored reports of earlier runs, for ``puller history``: newest first, limited to a bundle or a resource."""

from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from puller.reporting.history import load_report
from puller.reporting.report import BundleReport, Event, Report
from puller.reporting.retention import find_kept
from puller.state.directories import Directories


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The runs and events to return."""

    since: datetime | None = None
    bundle: str = ""
    reference: str = ""
    """A reference, with ``*`` for any text."""

    @property
    def is_narrow(self) -> bool:
        """Whether a part of a report is selected."""
        return bool(self.bundle or self.reference)

    def of(self, report: Report) -> Report:
        """Return the report with the selected bundles and events only."""
        bundles = [self._of(bundle) for bundle in report.bundles if self.bundle in ("", bundle.name)]
        if self.reference:
            bundles = [bundle for bundle in bundles if bundle.events]
        return msgspec.structs.replace(report, bundles=bundles)

    def _of(self, bundle: BundleReport) -> BundleReport:
        events = [event for event in bundle.events if self._selects(event)]
        return msgspec.structs.replace(bundle, events=events)

    def _selects(self, event: Event) -> bool:
        names = (event.reference, f"{event.type}#{event.alias}" if event.alias else event.reference)
        return not self.reference or any(fnmatchcase(name, self.reference) for name in names)


class PastRun(msgspec.Struct, frozen=True):
    """A stored report. ``problem`` explains why it cannot be read."""

    path: Path
    is_eventful: bool
    began: datetime
    report: Report | None = None
    problem: str = ""


def past_runs(directories: Directories, selection: Selection) -> Iterator[PastRun]:
    """Yield the stored runs, newest first. Reports of quiet runs are not read, because they contain no changes.

    Raises ``OSError`` for an unreadable directory.
    """
    try:
        names = sorted((path.name for path in directories.runs.iterdir()), reverse=True)
    except FileNotFoundError:
        return
    for name in names:
        stored = find_kept(name, 0)
        if stored is None or (selection.since is not None and stored.began < selection.since):
            continue
        yield _load(PastRun(directories.runs / name, stored.eventful, stored.began), selection)


def _load(run: PastRun, selection: Selection) -> PastRun:
    if not run.is_eventful:
        return run
    try:
        report = load_report(run.path)
    except FileNotFoundError:  # removed by a run meanwhile
        return run
    except PermissionError:
        raise
    except (OSError, ValueError) as error:
        return msgspec.structs.replace(run, problem=f"{run.path}: cannot be read ({error})")
    return msgspec.structs.replace(run, report=selection.of(report))
