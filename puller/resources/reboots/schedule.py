"""The time of a reboot: windows, the slot of this host in a window, and the delay for users.

* A share of the fleet divides each window into slots of equal length. Each host has one slot, by the hash of rollouts
  or by its number. Slots do not overlap, and no host needs to know other hosts.
* A reboot begins early enough to end within its slot.
* A run starts or schedules a reboot up to ``AHEAD`` before its time. Runs every half hour therefore reach short slots.
* Without windows, a share divides each day in UTC.
* Nothing here reads the clock or the machine.
"""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from bundles.format.release import place_in_wave
from foundation.problems import ProblemCode
from foundation.times import Duration
from puller.errors import ResourceError
from puller.values.maintenance import Opening, Window

AHEAD = timedelta(hours=1)
AFTER_CANCELLATION = timedelta(days=1)
"""Without windows, the time from a cancelled reboot to the next attempt."""
_MOST_OPENINGS = 40
"""Openings of each window to search for a slot."""
_WHOLE_DAYS = (Window(),)
_WAVE = "reboot"
"""The wave of all reboots, so that a host has the same place in each window."""


class Share(float):
    """The part of a fleet that may restart at a time, in percent: ``20`` or ``20%``."""

    @classmethod
    def parse(cls, value: object) -> "Share":
        """Parse the number. Raise ``ValueError``."""
        number: object = value
        if isinstance(value, str):
            digits = value.removesuffix("%").rstrip(" ")
            number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= 3 else value
        if isinstance(number, bool) or not isinstance(number, int | float) or not 1 <= number <= 100:
            raise ValueError(f"is {value!r}, expected a share such as '20%', from 1% to 100%")
        return cls(number)

    @property
    def slots(self) -> int:
        """The number of slots, so that one of them has at most this share of the hosts."""
        return math.ceil(100 / self - 1e-9)


class Rules(msgspec.Struct, frozen=True):
    """The rules of one resource for the time of its reboot."""

    windows: tuple[Window, ...]
    """Windows of the resource."""
    host_windows: tuple[Window, ...]
    """Maintenance windows of the host. Both must be open."""
    share: Share | None
    slot: int
    """The slot of this host, from 0."""
    duration: Duration
    """The time from the beginning of a reboot until the host works again."""
    delay: Duration


class Times(msgspec.Struct, frozen=True):
    """The times of a decision."""

    now: datetime
    earliest: datetime
    """No reboot before this time, because the machine has not been up for long."""
    cancelled: datetime | None = None
    """The time of a reboot that an administrator has cancelled."""


def slot_of(host: str, number: int | None, share: Share | None) -> int:
    """Return the slot of a host. A ``number`` replaces the hash of its name."""
    if share is None:
        return 0
    if number is not None:
        return number % share.slots
    return int(place_in_wave(host, _WAVE) * share.slots / 100)


def find_time(rules: Rules, times: Times) -> datetime | None:
    """Return the time of the next reboot. ``None`` if it is unknown.

    It is a whole number of minutes from now, because shutdown(8) counts minutes. Raise ``ResourceError`` if every slot
    is too short.
    """
    if not (rules.windows or rules.host_windows or rules.share):
        after = times.cancelled + AFTER_CANCELLATION if times.cancelled else times.now
        return _in_minutes(times.now, max(after, times.earliest, times.now + rules.delay.delta))
    is_any_long_enough = False
    for first, last in _intervals(rules, times.now):
        is_any_long_enough |= first <= last
        if times.cancelled is not None and first <= times.cancelled:
            continue
        at = _in_minutes(times.now, max(first, times.earliest, times.now + rules.delay.delta))
        if at <= last:
            return at
    if not is_any_long_enough:
        raise ResourceError(
            f"no window has a slot of {rules.duration:.0f} s, the duration of a reboot",
            code=ProblemCode.INVALID_VALUE,
            hint="use a longer window, a larger share, or a shorter duration",
        )
    return None


def is_near(at: datetime, rules: Rules, now: datetime) -> bool:
    """Return whether the run of ``now`` starts or schedules the reboot."""
    return at <= now + max(AHEAD, rules.delay.delta)


def _in_minutes(now: datetime, at: datetime) -> datetime:
    minutes = math.ceil((at - now) / timedelta(minutes=1))
    return now + timedelta(minutes=max(0, minutes))


def _intervals(rules: Rules, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the first and the last moment for the beginning of a reboot, for each opening, in order."""
    slots = rules.share.slots if rules.share is not None else 1
    hosts = _openings(rules.host_windows, now) if rules.windows and rules.host_windows else None
    for opening in _openings(rules.windows or rules.host_windows or _WHOLE_DAYS, now):
        length = (opening.end - opening.start) / slots
        start = opening.start + length * rules.slot
        end = start + length
        both = [(start, end)]
        if hosts is not None:
            both = [(max(start, host.start), min(end, host.end)) for host in hosts]
        for first, last in both:
            if first < last:
                yield first, last - rules.duration.delta


def _openings(windows: Sequence[Window], now: datetime) -> list[Opening]:
    """Return the openings of all windows that have not ended, in order."""
    openings = set()
    for window in windows:
        moment = now
        for _ in range(_MOST_OPENINGS):
            opening = window.current_or_next_opening(moment)
            if opening is None:
                break
            openings.add(opening)
            moment = opening.end
    return sorted(openings)
