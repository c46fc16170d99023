"""Reports of earlier runs, and the status of the agent, as files in Puller's state and run directories."""

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bundles.filesystem.atomic import read_limited
from foundation.timestamps import iso_text
from puller.reporting.in_order import complete, shorten
from puller.reporting.report import Report
from puller.reporting.retention import Retention, forget_lists, forget_outdated, is_eventful
from puller.state.directories import Directories
from puller.state.state_file import LARGEST, decode, write_state
from puller.values.foreign_text import visible_json_bytes

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
