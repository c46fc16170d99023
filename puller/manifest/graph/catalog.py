"""The catalog: declared resources, their order of application, and the references between them as indexes."""

from collections.abc import Iterable, Iterator
from typing import Self

import msgspec

from foundation.suggestions import meant
from puller.errors import UsageError
from puller.manifest.declaration import Declaration
from puller.values.common_properties import Reference

Found = list[tuple[Reference, int]]
Outside = list[tuple[str, Reference]]
"""References to resources of other manifests, each with its property."""


class Links(msgspec.Struct):
    """References as indexes. Resources without references are left out."""

    requirements: dict[int, Found] = {}
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
        return any(declaration.stands_for(reference) for declaration in self.declarations)

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
