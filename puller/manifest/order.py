"""The order in which resources are applied.

Manifest order, except that what a resource names in ``require``, ``after`` or ``subscribe`` comes before it (a stable
topological order).
"""

from collections.abc import Callable, Iterable, Sequence


def ordered(count: int, prerequisites: Callable[[int], Iterable[int]]) -> list[int]:
    """Indexes ``0 … count - 1``, each after its prerequisites; raises ``CycleError``."""
    result: list[int] = []
    done = [False] * count
    for start in range(count):
        if done[start]:
            continue
        if all(done[index] for index in prerequisites(start)):  # as for most resources
            done[start] = True
            result.append(start)
        else:
            _visit(start, prerequisites, done, result)
    return result


class CycleError(Exception):
    """Resources that wait for each other: in ``indexes`` each names the next, and the first comes again last."""

    def __init__(self, indexes: Sequence[int]) -> None:
        super().__init__(f"cycle of {indexes}")
        self.indexes = tuple(indexes)


def _visit(
    start: int, prerequisites: Callable[[int], Iterable[int]], done: list[bool], result: list[int]
) -> None:
    """Depth first without recursion: a chain may be as long as the manifest."""
    path = [start]
    on_path = {start}
    pending = [iter(prerequisites(start))]
    while path:
        following = next((index for index in pending[-1] if not done[index]), None)
        if following is None:
            index = path.pop()
            on_path.discard(index)
            pending.pop()
            done[index] = True
            result.append(index)
        elif following in on_path:
            raise CycleError([*path[path.index(following) :], following])
        else:
            path.append(following)
            on_path.add(following)
            pending.append(iter(prerequisites(following)))
