"""Order of the tests that a plain run leaves out, for the distribution ``worksteal`` of pytest-xdist.

* Each worker starts with a contiguous part of all tests, of the same length. An idle worker steals the last tests of
  another.
* Each part starts with files whose tests take long, and ends with fast tests. Otherwise one worker gets all tests of
  booted machines, and still runs them when the others have ended.
* The files that share a fixture of `SHARED` stay on one worker: others would wait until it has built the packages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeVar

import pytest

T = TypeVar("T")

SECONDS = {"clones": 60, "booted": 10, "crash": 10, "nginx": 3, "packages": 3}
"""Rough durations of a test by its mark. The other tests are fast."""
SHARED = {"releases": 60}
"""Rough durations of a test by a fixture that several files share."""


def ordered(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return all tests in the order for this number of workers. Tests of one file keep their order."""
    shared = {_file_of(item): name for item in items for name in SHARED if name in _fixtures_of(item)}
    groups: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[shared.get(_file_of(item), _file_of(item))].append(item)
    return spread_over([(sum(map(_seconds_of, group)), group) for group in groups.values()], workers)


def spread_over(groups: Iterable[tuple[int, list[T]]], workers: int) -> list[T]:
    """Return the members of all groups, in parts of the same length for each worker.

    A group has a weight. Those with a weight come first, the heaviest first, each in the part with the lowest weight.
    The groups without a weight fill the parts in their order.
    """
    parts: list[list[T]] = [[] for _ in range(workers)]
    weights = [0] * workers
    groups = list(groups)
    for weight, group in sorted(groups, key=lambda pair: -pair[0]):
        if weight:
            lightest = weights.index(min(weights))
            weights[lightest] += weight
            parts[lightest] += group
    fast = list(chain.from_iterable(group for weight, group in groups if not weight))
    total = len(fast) + sum(map(len, parts))
    for number, part in enumerate(parts, 1):
        missing = max(0, total * number // workers - total * (number - 1) // workers - len(part))
        part += fast[:missing]
        del fast[:missing]
    return [*chain.from_iterable(parts), *fast]


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _fixtures_of(item: pytest.Item) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


def _seconds_of(item: pytest.Item) -> int:
    marks = {SECONDS.get(mark.name, 0) for mark in item.iter_markers()}
    return max(marks | {SHARED[name] for name in SHARED if name in _fixtures_of(item)}, default=0)
