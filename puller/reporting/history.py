"""Reports of earlier runs, and what is going on right now, as files below the two directories of Puller."""

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bundles.filesystem.atomic import read_limited
from puller.reporting.report import Report
from puller.state.directories import Directories
from puller.state.state_file import LARGEST, write_state
from puller.state.stored_json import decode

_LARGEST_REPORT = 64 * 1024 * 1024  # bytes: an event for each of a hundred thousand resources


class Status(msgspec.Struct, frozen=True):
    """The state of an agent, ``running`` or ``idle``; ``since`` is UTC in ISO 8601."""

    state: str
    since: str
    process: int


def save_report(report: Report, directories: Directories, keep: int) -> Path:
    """Keep a report and forget the oldest; gives where it is. Raises ``OSError``."""
    data = msgspec.json.encode(report)
    path = directories.runs / f"{report.run}.json"
    # Reports hold file names and differences, which not everybody on the machine needs to see.
    write_state(path, data)
    write_state(directories.last_run, data)
    for old in sorted(directories.runs.glob("*.json"))[:-keep]:  # by name is by time
        with contextlib.suppress(IsADirectoryError):  # somebody's own; it is in nobody's way
            old.unlink(missing_ok=True)
    return path


def save_status(directories: Directories, state: str) -> None:
    """Say what is going on: ``running`` since now in this process, or ``idle``. Raises ``OSError``."""
    status = Status(state=state, since=datetime.now(UTC).isoformat(timespec="seconds"), process=os.getpid())
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
    """The newest report; ``None`` when there is none. Raises ``OSError``, ``ValueError`` for what is no report."""
    try:
        return decode(read_limited(directories.last_run, _LARGEST_REPORT), Report)
    except FileNotFoundError:
        return None
