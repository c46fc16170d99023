"""Work of C code, such as zlib's, on all processors: such code lets other threads go on meanwhile."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def side_by_side(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """The results of ``work`` on each of ``items``, in their order; what it raises is raised in its turn.

    A few items are taken ahead, so that memory does not grow with their number.
    """
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) < 2:  # not worth a thread
        yield from map(work, first)
        return
    threads = len(os.sched_getaffinity(0))
    begun: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in chain(first, items):
                begun.append(pool.submit(work, item))
                if len(begun) > 2 * threads:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for each in begun:
                each.cancel()
