"""Record of mirrors that failed while another mirror helped.

* The record only saves time. A mirror in backoff is still tried if all others fail, and all data is verified. The
  record may therefore be lost or damaged without harm.
* The backoff grows with the time of failure: five minutes, doubled each time, at most six hours.
* A mirror that helps, or is only behind, is removed from the record immediately.
* If every mirror failed, nothing is recorded, because the cause is usually the network of this host.
* A short failure is a notice. A continuous failure for a week is a warning, because the mirror is probably gone.
"""

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

from bundles.progress import RoutineNote
from foundation.times import zulu_text

MEMORY = "mirrors.json"
"""File name in the directory of trusted metadata."""

FIRST_BACKOFF = timedelta(minutes=5)
LONGEST_BACKOFF = timedelta(hours=6)
WARNED_AFTER = timedelta(days=7)
WARNED_AFTER_FAILURES = 10
"""A host with little uptime tries too rarely to conclude from the time alone that a failure lasts."""

_LARGEST_JITTER = 0.2  # share of a backoff; spreads the retries of many hosts
_LONGEST_REASON = 500  # characters
_FORMAT = 1

_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Failing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mirror that failed in the last ``times`` attempts."""

    since: _Time
    times: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    next_try: _Time
    reason: str

    def is_lasting(self, now: datetime) -> bool:
        """Return whether the mirror has failed so long and often that it should be repaired or removed."""
        return self.times >= WARNED_AFTER_FAILURES and now - self.since >= WARNED_AFTER

    def __str__(self) -> str:
        times = "once" if self.times == 1 else f"{self.times} times"
        since = zulu_text(self.since)
        return f"failed {times} since {since}, next attempt at {zulu_text(self.next_try)}: {self.reason}"


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Annotated[int, msgspec.Meta(ge=_FORMAT, le=_FORMAT)]
    mirrors: dict[str, Failing]


class MirrorMemory:
    """Failing mirrors by their location, as of ``now``, which has a time zone."""

    def __init__(self, now: datetime, failing: dict[str, Failing] | None = None) -> None:
        self._now = now
        self._failing = failing or {}

    @classmethod
    def parse(cls, data: bytes, now: datetime) -> "MirrorMemory":
        """Parse the record. Raises ``ValueError`` if it is invalid."""
        return cls(now, msgspec.json.decode(data, type=_Document).mirrors)

    def to_bytes(self) -> bytes:
        """Return the record as a file, or nothing if it is empty."""
        return msgspec.json.encode(_Document(_FORMAT, self._failing)) if self._failing else b""

    def turn(self, mirror: str) -> tuple[bool, bool]:
        """Return a sort key: mirrors in backoff are last, after other failed mirrors."""
        return self.backs_off(mirror), mirror in self._failing

    def backs_off(self, mirror: str) -> bool:
        """Return whether to skip a mirror while another one helps."""
        result = self._failing.get(mirror)
        # A next try beyond the longest backoff was written while the clock of this host was wrong.
        return result is not None and self._now < result.next_try <= self._now + LONGEST_BACKOFF

    def sentences(self, mirrors: Iterable[str]) -> Iterator[str]:
        """Yield a note about each of these mirrors that failed while another one helped."""
        for mirror in mirrors:
            if (failing := self._failing.get(mirror)) is not None:
                sentence = f"{mirror}: {failing}"
                yield sentence if failing.is_lasting(self._now) else RoutineNote(sentence)

    def failed(self, mirror: str, reason: str) -> None:
        """Record the failure of a mirror while another one helped."""
        before = self._failing.get(mirror)
        times = before.times + 1 if before else 1
        self._failing[mirror] = Failing(
            since=before.since if before else self._now.astimezone(UTC).replace(microsecond=0),
            times=min(times, 1_000_000),
            next_try=(self._now + _backoff_after(times)).astimezone(UTC).replace(microsecond=0),
            reason=reason[:_LONGEST_REASON],
        )

    def helped(self, mirror: str) -> None:
        """Remove a mirror from the record."""
        self._failing.pop(mirror, None)

    def keep_only(self, mirrors: Iterable[str]) -> None:
        """Remove mirrors that are no longer configured."""
        self._failing = {mirror: self._failing[mirror] for mirror in mirrors if mirror in self._failing}


def _backoff_after(times: int) -> timedelta:
    doublings = min(times - 1, 20)  # more than the longest backoff needs, without overflow
    longest: timedelta = min(FIRST_BACKOFF * 2**doublings, LONGEST_BACKOFF)
    return longest * (1 - random.uniform(0, _LARGEST_JITTER))  # noqa: S311  nobody gains by guessing it
