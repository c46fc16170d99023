"""Which reports are kept: by what happened, by age, and never more than so many and so large.

* A run that changed, failed or refused something is *eventful*, any other one *quiet*; the name of its report says
  which, so that nobody has to read a thousand of them to choose.
* The newest ``keep`` go by no age: a machine that was off for a year, or had a wrong clock once, still has them.
* Beyond a bound the oldest quiet ones go first, then the oldest eventful ones; the newest of all never goes.
* A file of another name is nobody's report, and stays.
* Nothing here reads a file or the clock.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from puller.exit_status import ExitStatus
from puller.reporting.report import Report, Summary

_RUN = "%Y%m%dT%H%M%S.%fZ"
_NAME = r"([0-9]{8}T[0-9]{6}\.[0-9]{6}Z)-(quiet|eventful)\.json"
_QUIET = (ExitStatus.OK, ExitStatus.HELD)


class Retention(msgspec.Struct, frozen=True):
    """How long reports are kept, in seconds, and how much of them."""

    keep: int
    """Reports, the newest, whatever their age."""
    quiet_for: float
    eventful_for: float
    most: int
    """Reports."""
    most_bytes: int


class Kept(msgspec.Struct, frozen=True, order=True):
    """A report that is there."""

    run: str
    eventful: bool
    size: int
    """Bytes."""

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.run}-{'eventful' if self.eventful else 'quiet'}.json"

    @property
    def began(self) -> datetime:
        return began(self.run)


def began(run: str) -> datetime:
    """When the run of this identity began; raises ``ValueError`` for what is none."""
    found = datetime.fromisoformat(
        run
    )  # which takes all forms of the standard; ``strptime`` would be slow to import
    if found.tzinfo is None or identity(found) != run:
        raise ValueError(f"{run!r} is no identity of a run")
    return found.astimezone(UTC)


def identity(started: datetime) -> str:
    """Of a run; sorts by time."""
    return started.astimezone(UTC).strftime(_RUN)


def find_kept(name: str, size: int) -> Kept | None:
    """The report in a file of this name; ``None`` for what is none."""
    found = re.fullmatch(_NAME, name)
    if found is None:
        return None
    kept = Kept(found[1], found[2] == "eventful", size)
    try:
        kept.began  # noqa: B018  the 31st of February is nobody's run
    except ValueError:
        return None
    return kept


def is_eventful(report: Report) -> bool:
    """Whether a run changed, failed or refused something, or had anything else to say."""
    return bool(
        report.exit_status not in _QUIET
        or report.problems
        or any(bundle.given_up or bundle.not_undone or _happened(bundle.summary) for bundle in report.bundles)
    )


def is_good(report: Report) -> bool:
    """Whether a run applied everything, and had nothing to complain of; held back by a rollout is in order."""
    whole = not report.paused and not report.only
    return whole and report.exit_status in (*_QUIET, ExitStatus.CHANGED)


def _happened(summary: Summary) -> int:
    return summary.changes + summary.failed + summary.unmet


def outdated(kept: Iterable[Kept], retention: Retention, now: datetime) -> Iterator[Kept]:
    """Reports that are to go, of which the newest is never one."""
    reports = sorted(kept)
    old = [one for one in reports[: -retention.keep] if _is_old(one, retention, now)]
    yield from old
    yield from _beyond(sorted(set(reports) - set(old)), retention)


def _is_old(one: Kept, retention: Retention, now: datetime) -> bool:
    longest = retention.eventful_for if one.eventful else retention.quiet_for
    return (now - one.began).total_seconds() > longest


def _beyond(kept: list[Kept], retention: Retention) -> Iterator[Kept]:
    """Those beyond the bounds, the least worth keeping first; ``kept`` is sorted."""
    count, size = len(kept), sum(one.size for one in kept)
    for one in sorted(kept[:-1], key=lambda one: (one.eventful, one.run)):
        if count <= retention.most and size <= retention.most_bytes:
            return
        count, size = count - 1, size - one.size
        yield one
