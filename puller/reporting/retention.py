"""Retention of reports: the rules by outcome, age, count and size, and the removal of outdated reports and lists.

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
from pathlib import Path

import msgspec

from foundation.timestamps import parse_moment
from puller.exit_status import ExitStatus
from puller.reporting.in_order import LIST_SUFFIX
from puller.reporting.report import Report, Summary
from puller.state.directories import Directories
from puller.state.state_file import decode, read_state

_RUN = "%Y%m%dT%H%M%S.%fZ"
_NAME = r"([0-9]{8}T[0-9]{6}\.[0-9]{6}Z)-(quiet|eventful)\.json"
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
        return began(self.run)


def began(run: str) -> datetime:
    """Return when the run of this identity began. Raises ``ValueError`` for an invalid identity."""
    moment = parse_moment(run)  # in any form of the standard
    if identity(moment) != run:
        raise ValueError(f"{run!r} is not the identity of a run")
    return moment


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
    _remove(directories.runs, list(outdated(kept_in(directories.runs), retention, now)))


def forget_lists(directories: Directories, retention: Retention, now: datetime) -> None:
    """Remove lists that no report names, and reports that exceed the limits together with their lists.

    This reads all reports, so only runs that wrote a list call it. Raises ``OSError``.
    """
    retained = {directories.runs / item.name: item for item in kept_in(directories.runs)}
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


def kept_in(directory: Path) -> list[Kept]:
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
