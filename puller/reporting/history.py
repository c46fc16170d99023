"""Reports of earlier runs, and what is going on right now, as files below the two directories of Puller."""

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
from puller.values.visible import visible_json_bytes

_MOST_KEPT_FAILURES = 20
_LARGEST_REPORT = 64 * 1024 * 1024  # bytes: an event for each of a hundred thousand resources


class Status(msgspec.Struct, frozen=True, tag_field="format", tag=1):
    """The state of an agent, ``running`` or ``idle``; ``since`` is UTC in ISO 8601."""

    state: str
    since: str
    process: int


def save_report(report: Report, directories: Directories, retention: Retention, now: datetime) -> Path:
    """Keep a report and forget what is outdated; gives where it is. Raises ``OSError``.

    1. The lists of what was in order come first: a report never names one that is not there.
    2. The report, and once more as that of the last run.
    3. Those that are outdated, and lists that no report names any more.
    """
    # 1.
    lists = _names_in(directories.in_order)
    kept = shorten(report, directories.in_order)
    # 2. Reports hold file names and differences, which not everybody on the machine needs to see.
    data = visible_json_bytes(msgspec.json.encode(kept))
    kind, other = ("eventful", "quiet") if is_eventful(report) else ("quiet", "eventful")
    path = directories.runs / f"{report.run}-{kind}.json"
    write_state(path, data)
    write_state(directories.last_run, data)
    # Of the same run, from before its metrics could not be written.
    (directories.runs / f"{report.run}-{other}.json").unlink(missing_ok=True)
    # 3.
    forget_outdated(directories, retention, now)
    if _names_in(directories.in_order) - lists:
        forget_lists(directories, retention, now)
    return path


def keep_end(report: Report, directories: Directories) -> None:
    """Keep the end of a run in the run directory, because the state directory is full. Raises ``OSError``.

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
    # Like a report it holds file names, which only the owner may read.
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
    """Say what is going on: ``running`` since now in this process, or ``idle``. Raises ``OSError``."""
    status = Status(state=state, since=iso_text(datetime.now(UTC)), process=os.getpid())
    # It does not survive a reboot anyway.
    write_state(directories.status, msgspec.json.encode(status), mode=0o644, durable=False)


def load_status(directories: Directories) -> Status | None:
    """The state of the agent, as far as it can be told: ``running`` only while that process is there."""
    status = _read_status(directories)
    if status is None:
        return None
    return status if status.state != "running" or os.path.exists(f"/proc/{status.process}") else None


def find_unfinished(directories: Directories) -> str | None:
    """When a run began that has no end on record; to be asked by the holder of the lock. ``None``: there is none."""
    status = _read_status(directories)
    return status.since if status and status.state == "running" else None


def _read_status(directories: Directories) -> Status | None:
    try:
        return decode(read_limited(directories.status, LARGEST), Status)
    except (OSError, ValueError):
        return None


def load_last_report(directories: Directories) -> Report | None:
    """The newest report, of what was not in order; ``None`` when there is none.

    If the state directory could not take the report of the last run, the run directory has the end of this run.
    Raises ``OSError``, ``ValueError`` for what is no report.
    """
    with contextlib.suppress(FileNotFoundError, ValueError):
        return load_report(directories.unkept_report)
    try:
        return load_report(directories.last_run)
    except FileNotFoundError:
        return None


class _LastGood(msgspec.Struct):
    last_good: str = ""


def load_last_good(directories: Directories) -> str:
    """When the last good run finished, by the newest report; empty when that is not known."""
    try:
        return decode(read_limited(directories.last_run, _LARGEST_REPORT), _LastGood).last_good
    except (OSError, ValueError):
        return ""


def load_report(path: Path) -> Report:
    """A report as it is kept, of what was not in order; raises ``OSError``, ``ValueError`` for what is no report."""
    return decode(read_limited(path, _LARGEST_REPORT), Report)


def load_all_events(directories: Directories) -> Report | None:
    """The newest report, with an event for each resource; otherwise as ``load_last_report``."""
    report = load_last_report(directories)
    return None if report is None else complete(report, directories.in_order)
