"""The catalog: declared resources, the references between them as indexes, and their order of application.

* Resources keep their order in the manifest. Resources in ``require``, ``after`` or ``subscribe`` come first.
* The sorting is topological and stable. Types imply further order, such as a group before its members. Implied order
  has the lowest priority. In a cycle, it is dropped.
* Some types come last, such as a reboot, with the resources that wait for them.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Self

import msgspec

from foundation.suggestions import meant
from puller.errors import UsageError
from puller.manifest.declaration import Declaration
from puller.resources.base import Resource, ResourceType
from puller.system.local_paths import Spellings
from puller.values.common_properties import Reference

PrerequisiteLinks = list[tuple[Reference, int]]
Outside = list[tuple[str, Reference]]
"""References to resources of other manifests, each with its property."""


class Links(msgspec.Struct):
    """References as indexes. Resources without references are left out."""

    requirements: dict[int, PrerequisiteLinks] = {}
    subscriptions: dict[int, list[int]] = {}
    reloads: dict[int, list[int]] = {}
    """Further subscriptions, which only need a reload."""
    subscribers: dict[int, list[Reference]] = {}
    """In the notation of ``puller.values.common_properties``."""
    first: dict[int, list[int]] = {}
    """All prerequisites of a resource."""
    children: dict[int, list[int]] = {}
    """The resources in the manifest of an ``apply`` resource."""
    outside: dict[int, Outside] = {}
    """References to resources of other manifests."""
    parts: dict[int, list[int]] = {}
    """The resources that a resource applies with its own change, such as the fragments of a file."""
    outside_parts: dict[int, list[Reference]] = {}
    """Parts of resources of other manifests. Empty if the resource of a part is unknown here."""

    def copied(self) -> "Links":
        """Return a copy that can be extended."""
        return Links(
            *({index: list(found) for index, found in each.items()} for each in msgspec.structs.astuple(self))
        )


class Catalog(msgspec.Struct):
    """The resources that one engine applies, numbered in the order of ``declarations``."""

    declarations: list[Declaration]
    """The resources of a child manifest come before its first ``apply`` resource."""
    order: list[int]
    """Indexes of declarations, and of ``reversals`` after them."""
    links: Links = msgspec.field(default_factory=Links)
    reversals: list[Declaration] = msgspec.field(default_factory=list)
    """Reversals in this run, numbered after the declarations.

    They are not declared: requests of resources about the catalog only use ``declarations``.
    """

    def names_of(self, type_name: str) -> list[str]:
        """Return the names of all declared resources of a type."""
        return [
            d.properties.name for d in self.declarations if d.type.type_name == type_name and d.loop is None
        ]

    def attended(self, index: int) -> Declaration:
        """Return the declaration or the reversal with an index of ``order``."""
        declared = len(self.declarations)
        return self.declarations[index] if index < declared else self.reversals[index - declared]

    def may_declare(self, reference: str) -> bool:
        """Return whether a loop that cannot be evaluated on this machine may declare this resource."""
        return any(declaration.may_expand_to(reference) for declaration in self.declarations)

    def requirements(self, index: int) -> list[tuple[Reference, int]]:
        """Return the resources that must have succeeded before this one: the written references, and their indexes."""
        return self.links.requirements.get(index, [])

    def subscriptions(self, index: int) -> list[int]:
        """Return the resources whose changes refresh this one."""
        return self.links.subscriptions.get(index, [])

    def reloads(self, index: int) -> list[int]:
        """Return the resources whose changes only reload this one."""
        return self.links.reloads.get(index, [])

    def subscribers_of(self, index: int) -> list[Reference]:
        """Return the resources that a change of this one refreshes (``puller.values.common_properties``)."""
        return self.links.subscribers.get(index, [])

    def children(self, index: int) -> list[int]:
        """Return the resources in the manifest of an ``apply`` resource."""
        return self.links.children.get(index, [])

    def subscribers(self) -> set[Reference]:
        """Return every resource with subscriptions, in the same notation."""
        return {reference for references in self.links.subscribers.values() for reference in references}

    @property
    def is_partial(self) -> bool:
        """Whether the order is limited to some of the resources."""
        return len(self.order) < len(self.declarations) + len(self.reversals)

    def limited_to(self, patterns: Iterable[str]) -> Self:
        """Return the catalog limited to the named resources and their requirements. ``*`` matches any text.

        Links and numbers are unchanged. Only the order is shorter. A part includes the resource that applies it. Raise
        ``UsageError`` for a pattern without matches.
        """
        wholes = {part: whole for whole, parts in self.links.parts.items() for part in parts}
        waiting = [index for pattern in patterns for index in self._named(pattern)]
        results: set[int] = set()
        while waiting:
            index = waiting.pop()
            if index not in results:
                results.add(index)
                waiting += (*(other for _, other in self.requirements(index)), *self.children(index))
                waiting += (wholes[index],) if index in wholes else ()
        return msgspec.structs.replace(self, order=[index for index in self.order if index in results])

    def _named(self, pattern: str) -> list[int]:
        matches = Reference(pattern).matcher()
        results = [index for index, names in self._names() if any(map(matches, names))]
        if not results:
            known = [name for _, names in self._names() for name in names]
            raise UsageError(f"--only {pattern}: matches no resource", **meant(pattern, known))
        return results

    def _names(self) -> Iterator[tuple[int, list[str]]]:
        for index, declaration in enumerate(self.declarations):
            yield index, [str(name) for name in (*declaration.names(), *declaration.labels())]


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
