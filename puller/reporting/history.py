"""Reports of earlier runs, and the status of the agent, as files in Puller's state and run directories.

The reports of ``puller history`` are listed newest first, limited to a bundle or a resource. Rules of retention by
outcome, age, count and size remove outdated reports and lists:

* A run that changed, failed or refused something is *eventful*. Any other run is *quiet*. The file name contains this
  word, so the rules need not read the reports.
* The newest ``keep`` reports stay whatever their age, in case the host was off for a year or had a wrong clock.
* Beyond the limits, the oldest quiet reports are removed first, then the oldest eventful ones. The newest report
  always stays.
* Files with other names stay.
* A list of unchanged resources is removed with the last report that names it. Its size is divided among these
  reports, so one limit covers reports and lists.
* A report that cannot be read may name any list. While such a report exists, all lists stay.
"""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from bundles.filesystem.atomic import read_limited
from foundation.times import iso_text, parse_moment
from puller.exit_status import ExitStatus
from puller.reporting.in_order import LIST_SUFFIX, complete, shorten
from puller.reporting.report import BundleReport, Event, Report, Summary
from puller.state import LARGEST, Directories, decode, read_state, write_state
from puller.values.foreign_text import visible_json_bytes

_RUN = "%Y%m%dT%H%M%S.%fZ"
_IDENTITY = r"[0-9]{8}T[0-9]{6}\.[0-9]{6}Z"
_NAME = rf"({_IDENTITY})-(quiet|eventful)\.json"
_QUIET = (ExitStatus.OK, ExitStatus.HELD)


class Retention(msgspec.Struct, frozen=True):
    """Limits for stored reports. Ages are in seconds."""

    keep: int
    """Number of newest reports that stay at any age."""
    quiet_for: float
    eventful_for: float
    most: int
    """Maximum number of reports."""
    most_bytes: int


class Kept(msgspec.Struct, frozen=True, order=True):
    """A stored report."""

    run: str
    eventful: bool
    size: int
    """Size in bytes."""

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"{self.run}-{'eventful' if self.eventful else 'quiet'}.json"

    @property
    def began(self) -> datetime:
        return parse_moment(self.run)


def began(run: str) -> datetime:
    """Return when the run of this identity began. Raises ``ValueError`` for an invalid identity."""
    if not re.fullmatch(_IDENTITY, run):
        raise ValueError(f"{run!r} is not the identity of a run")
    return parse_moment(run)


def identity(started: datetime) -> str:
    """Return the identity of a run, which sorts by time."""
    return started.astimezone(UTC).strftime(_RUN)


def find_kept(name: str, size: int) -> Kept | None:
    """Return the report in a file of this name, or ``None`` if the name is not a report's."""
    match = re.fullmatch(_NAME, name)
    if match is None:
        return None
    retained = Kept(match[1], match[2] == "eventful", size)
    try:
        retained.began  # noqa: B018  the 31st of February is nobody's run
    except ValueError:
        return None
    return retained


def is_eventful(report: Report) -> bool:
    """Return whether a run changed, failed or refused something, or has problems."""
    return bool(
        report.exit_status not in _QUIET
        or report.problems
        or any(bundle.given_up or bundle.not_undone or _happened(bundle.summary) for bundle in report.bundles)
    )


def is_good(report: Report) -> bool:
    """Return whether a run applied everything without a problem. A release held by a rollout is no problem."""
    whole = not report.paused and not report.only
    return whole and report.exit_status in (*_QUIET, ExitStatus.CHANGED)


def _happened(summary: Summary) -> int:
    return summary.changes + summary.failed + summary.unmet


def outdated(kept: Iterable[Kept], retention: Retention, now: datetime) -> Iterator[Kept]:
    """Yield reports to delete. Never includes the newest report."""
    reports = sorted(kept)
    old = [report for report in reports[: -retention.keep] if _is_old(report, retention, now)]
    yield from old
    yield from _beyond(sorted(set(reports) - set(old)), retention)


def _is_old(item: Kept, retention: Retention, now: datetime) -> bool:
    longest = retention.eventful_for if item.eventful else retention.quiet_for
    return (now - item.began).total_seconds() > longest


def _beyond(retained: list[Kept], retention: Retention) -> Iterator[Kept]:
    """Yield the reports beyond the limits, least valuable first. ``retained`` is sorted."""
    count, size = len(retained), sum(item.size for item in retained)
    for item in sorted(retained[:-1], key=lambda item: (item.eventful, item.run)):
        if count <= retention.most and size <= retention.most_bytes:
            return
        count, size = count - 1, size - item.size
        yield item


# Removal of outdated reports and lists.

_LARGEST = 64 * 1024 * 1024
"""Maximum bytes of a report."""


class _InOrder(msgspec.Struct):
    sha256: str


class _Bundle(msgspec.Struct):
    in_order: _InOrder | None = None
    given_up: "_Bundle | None" = None


class _Names(msgspec.Struct):
    """The part of a report that names lists."""

    bundles: list[_Bundle] = []


def forget_outdated(directories: Directories, retention: Retention, now: datetime) -> None:
    """Remove the reports that are outdated without their lists. Raises ``OSError``."""
    _remove(directories.runs, list(outdated(stored_reports(directories.runs), retention, now)))


def forget_lists(directories: Directories, retention: Retention, now: datetime) -> None:
    """Remove lists that no report names, and reports that exceed the limits together with their lists.

    This reads all reports, so only runs that wrote a list call it. Raises ``OSError``.
    """
    retained = {directories.runs / item.name: item for item in stored_reports(directories.runs)}
    try:
        named = {path: _lists_of(path) for path in retained}
        last = _lists_of(directories.last_run)
    except ValueError:
        return
    sizes = _sizes(directories.in_order)
    while gone := list(outdated(_with_lists(retained, named, sizes), retention, now)):
        _remove(directories.runs, gone)
        for item in gone:
            del retained[directories.runs / item.name]
    for name in sizes.keys() - last.union(*(named[path] for path in retained)):
        (directories.in_order / name).unlink(missing_ok=True)


def stored_reports(directory: Path) -> list[Kept]:
    """Return all stored reports. Directories are skipped, because users made them. Raises ``OSError``."""
    result = (find_kept(name, size) for name, size in _sizes(directory).items())
    return [item for item in result if item]


def _remove(directory: Path, reports: list[Kept]) -> None:
    for report in reports:
        (directory / report.name).unlink(missing_ok=True)


def _sizes(directory: Path) -> dict[str, int]:
    """Return the sizes of the files in a directory, in bytes."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        return {
            entry.name: entry.stat(follow_symlinks=False).st_size
            for entry in entries
            if not entry.is_dir(follow_symlinks=False)
        }
    return {}


def _lists_of(path: Path) -> set[str]:
    """Return the file names of the lists that a report names. Raises ``ValueError`` for an invalid report."""
    result = decode(read_state(path, _LARGEST), _Names)
    bundles = [item for bundle in result.bundles for item in (bundle, bundle.given_up) if item]
    return {f"{bundle.in_order.sha256}{LIST_SUFFIX}" for bundle in bundles if bundle.in_order}


def _with_lists(
    retained: Mapping[Path, Kept], named: Mapping[Path, set[str]], sizes: Mapping[str, int]
) -> list[Kept]:
    """Return the reports with their share of the lists added to their size."""
    uses = Counter(name for path in retained for name in named[path])
    return [
        msgspec.structs.replace(
            item, size=item.size + sum(sizes.get(name, 0) // uses[name] for name in named[path])
        )
        for path, item in retained.items()
    ]


_MOST_KEPT_FAILURES = 20
_LARGEST_REPORT = 64 * 1024 * 1024  # bytes: an event for each of a hundred thousand resources


class Status(msgspec.Struct, frozen=True, tag_field="format", tag=1):
    """The state of an agent, ``running`` or ``idle``. ``since`` is UTC in ISO 8601."""

    state: str
    since: str
    process: int


def save_report(report: Report, directories: Directories, retention: Retention, now: datetime) -> Path:
    """Save a report and remove outdated ones. Return its path. Raises ``OSError``.

    1. Save the lists of unchanged resources first, so that a report never names a missing list.
    2. Save the report, and a copy as the report of the last run.
    3. Remove outdated reports, and lists that no report names.
    """
    # 1.
    lists = _names_in(directories.in_order)
    retained = shorten(report, directories.in_order)
    # 2. Reports contain file names and differences, which other users must not read.
    data = visible_json_bytes(msgspec.json.encode(retained))
    kind, other = ("eventful", "quiet") if is_eventful(report) else ("quiet", "eventful")
    path = directories.runs / f"{report.run}-{kind}.json"
    write_state(path, data)
    write_state(directories.last_run, data)
    # An earlier report of the same run, saved before its metrics could not be written.
    (directories.runs / f"{report.run}-{other}.json").unlink(missing_ok=True)
    # 3.
    forget_outdated(directories, retention, now)
    if _names_in(directories.in_order) - lists:
        forget_lists(directories, retention, now)
    return path


def keep_end(report: Report, directories: Directories) -> None:
    """Save the end of a run in the run directory, because the state directory is full. Raises ``OSError``.

    The state directory still has the report of an earlier run, which may have ended well.
    """
    bundles = [
        msgspec.structs.replace(
            bundle,
            events=[event for event in bundle.events if event.problems][:_MOST_KEPT_FAILURES],
            in_order=None,
        )
        for bundle in report.bundles
    ]
    end = msgspec.structs.replace(report, bundles=bundles)
    # Like a report, it contains file names, which only the owner may read.
    write_state(directories.unkept_report, visible_json_bytes(msgspec.json.encode(end)), durable=False)


def forget_end(directories: Directories) -> None:
    """Remove the end of an earlier run, because the newest report is kept. Raises ``OSError``."""
    directories.unkept_report.unlink(missing_ok=True)


def _names_in(directory: Path) -> set[str]:
    try:
        return set(os.listdir(directory))
    except FileNotFoundError:
        return set()


def save_status(directories: Directories, state: str) -> None:
    """Save the state of the agent: ``running`` since now in this process, or ``idle``. Raises ``OSError``."""
    status = Status(state=state, since=iso_text(datetime.now(UTC)), process=os.getpid())
    # It does not survive a reboot anyway.
    write_state(directories.status, msgspec.json.encode(status), mode=0o644, durable=False)


def load_status(directories: Directories) -> Status | None:
    """Return the state of the agent, or ``None`` if it is unknown or the running process is gone."""
    status = _read_status(directories)
    if status is None:
        return None
    return status if status.state != "running" or os.path.exists(f"/proc/{status.process}") else None


def find_unfinished(directories: Directories) -> str | None:
    """Return when the unfinished run began, or ``None``. The caller must hold the lock."""
    status = _read_status(directories)
    return status.since if status and status.state == "running" else None


def _read_status(directories: Directories) -> Status | None:
    try:
        return decode(read_limited(directories.status, LARGEST), Status)
    except (OSError, ValueError):
        return None


def load_last_report(directories: Directories) -> Report | None:
    """Return the newest report, without unchanged resources, or ``None``.

    If the state directory could not store the report of the last run, the run directory has the end of that run. Raises
    ``OSError``, and ``ValueError`` for an invalid report.
    """
    with contextlib.suppress(FileNotFoundError):
        return load_report(directories.unkept_report)
    try:
        return load_report(directories.last_run)
    except FileNotFoundError:
        return None


class _LastGood(msgspec.Struct):
    last_good: str = ""


def load_last_good(directories: Directories) -> str:
    """Return when the last good run finished, according to the newest report. Empty if unknown."""
    try:
        return decode(read_limited(directories.last_run, _LARGEST_REPORT), _LastGood).last_good
    except (OSError, ValueError):
        return ""


def load_report(path: Path) -> Report:
    """Return a stored report, without unchanged resources. Raises ``OSError``, and ``ValueError`` for an invalid
    report.
    """
    return decode(read_limited(path, _LARGEST_REPORT), Report)


def load_all_events(directories: Directories) -> Report | None:
    """Return the newest report with an event for each resource. Raises like ``load_last_report``."""
    report = load_last_report(directories)
    return None if report is None else complete(report, directories.in_order)


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
