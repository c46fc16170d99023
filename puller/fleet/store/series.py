"""Counts of hosts over time, by state or version, from periods."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from puller.fleet.views import Series

_MOST_TIMES = 120


class Period(NamedTuple):
    """A value of one host for a period, in seconds since 1970. A current value has no end."""

    name: str
    began: float
    ended: float | None


def counted(periods: Iterable[Period], begin: float, now: float, order: Iterable[str] = ()) -> Series:
    """Return the counts by name between ``begin`` and ``now``.

    If there are few changes, each has its own time. Otherwise the times are evenly spaced. Names are sorted by
    ``order``, then by first appearance.
    """
    steps: list[tuple[float, str, int]] = []
    first: dict[str, float] = {}
    for name, began, ended in periods:
        if (ended is not None and ended <= begin) or began > now:
            continue
        began = max(began, begin)
        first[name] = min(began, first.get(name, began))
        steps.append((began, name, 1))
        if ended is not None and ended <= now:
            steps.append((ended, name, -1))
    if not steps:
        return Series()
    steps.sort()
    times = _times(sorted({position for position, _, _ in steps}), now)
    desired = list(order)
    names = [name for name in desired if name in first]
    names += sorted((name for name in first if name not in desired), key=lambda name: (first[name], name))
    counts: dict[str, list[int]] = {name: [] for name in names}
    held: Counter[str] = Counter()
    position = 0
    for time in times:
        while position < len(steps) and steps[position][0] <= time:
            held[steps[position][1]] += steps[position][2]
            position += 1
        for name in names:
            counts[name].append(held[name])
    return Series([datetime.fromtimestamp(time, UTC) for time in times], counts)


def _times(changes: list[float], now: float) -> list[float]:
    if len(changes) < _MOST_TIMES:
        return changes if changes[-1] >= now else [*changes, now]
    begin = changes[0]
    step = (now - begin) / (_MOST_TIMES - 1)
    return [begin + step * number for number in range(_MOST_TIMES - 1)] + [now]
