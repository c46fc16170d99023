"""The order of resources: written order, stable topological sorting, and order that types imply.

* Resources keep their order in the manifest. Resources in ``require``, ``after`` or ``subscribe`` come first.
* Types imply further order, such as a group before its members. Implied order has the lowest priority. In a cycle, it
  is dropped.
* Some types come last, such as a reboot, with the resources that wait for them.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from puller.manifest.declaration import Declaration
from puller.resources.base import Resource, ResourceType
from puller.system.local_paths import Spellings

# Stable topological sorting.


def ordered(count: int, prerequisites: Callable[[int], Iterable[int]]) -> list[int]:
    """Return the indexes ``0 … count - 1``, each after its prerequisites. Raise ``CycleError``."""
    result: list[int] = []
    done = [False] * count
    for start in range(count):
        if done[start]:
            continue
        if all(done[index] for index in prerequisites(start)):  # the usual case
            done[start] = True
            result.append(start)
        else:
            _visit(start, prerequisites, done, result)
    return result


class CycleError(Exception):
    """Resources that wait for each other. In ``indexes`` each waits for the next, and the last is the first again."""

    def __init__(self, indexes: Sequence[int]) -> None:
        super().__init__(f"cycle of {indexes}")
        self.indexes = tuple(indexes)


def _visit(
    start: int, prerequisites: Callable[[int], Iterable[int]], done: list[bool], result: list[int]
) -> None:
    """Visit depth first. Without recursion, because a chain may be as long as the manifest."""
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


def with_last(
    declarations: Sequence[Declaration], order: Sequence[int], prerequisites: Callable[[int], Iterable[int]]
) -> list[int]:
    """Return a valid order, changed so that the types that come last do, with the resources that wait for them."""
    last = {index for index in order if declarations[index].type.is_last}
    if not last:  # the usual case
        return [*order]
    for index in order:
        if not last.isdisjoint(prerequisites(index)):
            last.add(index)
    return [*(index for index in order if index not in last), *(index for index in order if index in last)]


Edges = dict[int, list[int]]
"""The indexes of prerequisites, by the index of the waiting resource."""


def with_implied(declarations: Sequence[Declaration], first: Edges) -> Edges:
    """Return ``first``, the written order, with the implied order that does not contradict it."""
    if not (implied := _implied(declarations)):  # the usual case
        return first
    while True:
        merged = {index: [*first.get(index, ()), *implied.get(index, ())] for index in {*first, *implied}}
        try:
            ordered(len(declarations), lambda index: merged.get(index, ()))  # noqa: B023  asked before the next round
        except CycleError as cycle:
            if not _drop(implied, cycle.indexes):
                return first  # the written order has a cycle, which is reported elsewhere
        else:
            return merged


def _implied(declarations: Sequence[Declaration]) -> dict[int, list[int]]:
    types = {declaration.type for declaration in declarations}
    waiting = {one for one in types if has_own(one, "follows")}
    covering = {one for one in types if has_own(one, "covers")}
    if not waiting and not covering:
        return {}
    index_of = {declaration.reference: index for index, declaration in enumerate(declarations)}
    declared = DeclaredResources(declarations, Spellings({}))
    result: dict[int, list[int]] = {}
    for index, declaration in enumerate(declarations):
        if declaration.type in waiting and declaration.loop is None:
            names = declaration.type.follows(declaration.properties, declared)
            others = [index_of[name] for name in names if name in index_of]
            if others := [other for other in others if other != index]:
                result[index] = others
    if covering:
        _add_covered(declarations, covering, result)
    return result


def _add_covered(
    declarations: Sequence[Declaration], covering: Collection[ResourceType], edges: dict[int, list[int]]
) -> None:
    """Add that resources come after the mount that covers their path, and before the mount that needs it."""
    covers: dict[str, list[int]] = {}
    needs: dict[str, list[int]] = {}
    for index, declaration in enumerate(declarations):
        if declaration.type in covering and declaration.loop is None:
            for path in declaration.type.covers(declaration.properties):
                covers.setdefault(path, []).append(index)
            for needed in declaration.type.needs(declaration.properties):
                for path in _at_and_above(needed):
                    needs.setdefault(path, []).append(index)
    for index, declaration in enumerate(declarations):
        if declaration.type in covering or declaration.loop is not None:
            continue
        for place in declaration.type.places(declaration.properties):
            above = [other for path in _at_and_above(place) for other in covers.get(path, ())]
            if above:
                edges.setdefault(index, []).extend(above)
            for mount in needs.get(place, ()):
                if mount not in above:
                    edges.setdefault(mount, []).append(index)


def _at_and_above(path: str) -> Iterator[str]:
    while len(path) > 1:
        yield path
        path = path.rpartition("/")[0]


def properties_by_type(declarations: Sequence[Declaration]) -> dict[str, list[Any]]:
    """Return the properties of all resources of each type, without unevaluated loops."""
    result: dict[str, list[Any]] = {}
    for declaration in declarations:
        if declaration.loop is None:
            result.setdefault(declaration.type.type_name, []).append(declaration.properties)
    return result


class DeclaredResources:
    """The properties of declared resources by type, as types receive them."""

    def __init__(self, declarations: Sequence[Declaration], spellings: Spellings) -> None:
        self._by_type = properties_by_type(declarations)
        self.spellings = spellings

    def __call__(self, type_name: str) -> Sequence[Any]:
        """Return the properties of all resources of a type."""
        return self._by_type.get(type_name, ())


def has_own(resource_type: ResourceType, method: str) -> bool:
    """Return whether a type overrides a class method."""
    return getattr(resource_type, method).__func__ is not getattr(Resource, method).__func__


def _drop(implied: dict[int, list[int]], cycle: Sequence[int]) -> bool:
    """Remove the implied order of a cycle. Return whether any was removed."""
    dropped = False
    for index, other in itertools.pairwise(cycle):
        if other in implied.get(index, ()):
            implied[index].remove(other)
            dropped = True
    return dropped
