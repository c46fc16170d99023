"""The memory of mirrors that failed while another one helped.

* It saves time, and decides nothing: a mirror in backoff is still asked when no other helps, and what any mirror gives
  is verified. So the memory may be lost or damaged without harm.
* The longer a mirror has failed, the longer its backoff: five minutes, then twice as long each time, six hours at most.
* One that helps, or is only behind another one, is forgotten here at once.
* When no mirror helped, nothing is learnt: that is the network of this host as a rule, and not all the mirrors.
* A short failure is a notice. A mirror that has failed for a week without interruption is a warning, as it is probably
  gone for good.
"""

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

from bundles.client.notes import RoutineNote
from foundation.timestamps import zulu_text

MEMORY = "mirrors.json"
"""The file's name in the directory of what this host trusts."""

FIRST_BACKOFF = timedelta(minutes=5)
LONGEST_BACKOFF = timedelta(hours=6)
WARNED_AFTER = timedelta(days=7)
WARNED_AFTER_FAILURES = 10
"""A host that is up for a short time now and then asks too rarely to know that a failure lasts."""

_LARGEST_JITTER = 0.2  # of a backoff, which is shorter by that at most: many hosts do not come back at once
_LONGEST_REASON = 500  # characters
_FORMAT = 1

_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Failing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mirror that failed the last ``times`` that it was asked."""

    since: _Time
    times: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    next_try: _Time
    reason: str

    def is_lasting(self, now: datetime) -> bool:
        """Whether the mirror has failed for so long, and so often, that somebody should repair or remove it."""
        return self.times >= WARNED_AFTER_FAILURES and now - self.since >= WARNED_AFTER

    def __str__(self) -> str:
        times = "once" if self.times == 1 else f"{self.times} times"
        return f"failed {times} since {zulu_text(self.since)}, next tried at {zulu_text(self.next_try)}: {self.reason}"


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
        """The memory as it was kept; raises ``ValueError`` when it is not understood."""
        return cls(now, msgspec.json.decode(data, type=_Document).mirrors)

    def to_bytes(self) -> bytes:
        """The memory as a file; empty when there is nothing to remember."""
        return msgspec.json.encode(_Document(_FORMAT, self._failing)) if self._failing else b""

    def turn(self, mirror: str) -> tuple[bool, bool]:
        """The order of asking: mirrors in backoff last, before them others that failed."""
        return self.backs_off(mirror), mirror in self._failing

    def backs_off(self, mirror: str) -> bool:
        """Whether a mirror need not be asked while another one helps."""
        found = self._failing.get(mirror)
        # A next try beyond the longest backoff was written while the clock of this host was wrong.
        return found is not None and self._now < found.next_try <= self._now + LONGEST_BACKOFF

    def sentences(self, mirrors: Iterable[str]) -> Iterator[str]:
        """Return a note about each of these mirrors that failed while another one helped."""
        for mirror in mirrors:
            if (failing := self._failing.get(mirror)) is not None:
                sentence = f"{mirror}: {failing}"
                yield sentence if failing.is_lasting(self._now) else RoutineNote(sentence)

    def failed(self, mirror: str, reason: str) -> None:
        """Remember that a mirror failed, although another one helped."""
        before = self._failing.get(mirror)
        times = before.times + 1 if before else 1
        self._failing[mirror] = Failing(
            since=before.since if before else self._now.astimezone(UTC).replace(microsecond=0),
            times=min(times, 1_000_000),
            next_try=(self._now + _backoff_after(times)).astimezone(UTC).replace(microsecond=0),
            reason=reason[:_LONGEST_REASON],
        )

    def helped(self, mirror: str) -> None:
        """Forget that a mirror ever failed."""
        self._failing.pop(mirror, None)

    def keep_only(self, mirrors: Iterable[str]) -> None:
        """Forget mirrors that are not configured any more."""
        self._failing = {mirror: self._failing[mirror] for mirror in mirrors if mirror in self._failing}


def _backoff_after(times: int) -> timedelta:
    doublings = min(times - 1, 20)  # more than it takes to the longest, and no overflow
    longest: timedelta = min(FIRST_BACKOFF * 2**doublings, LONGEST_BACKOFF)
    return longest * (1 - random.uniform(0, _LARGEST_JITTER))  # noqa: S311  nobody gains by guessing it
