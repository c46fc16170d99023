"""The catalog: declared resources, their order of application, and their links."""

from collections.abc import Iterable, Iterator
from typing import Self

import msgspec

from foundation.suggestions import meant
from puller.errors import UsageError
from puller.manifest.declaration import Declaration
from puller.manifest.graph.links import Links
from puller.values.references import Reference


class Catalog(msgspec.Struct):
    """All that one engine applies. Resources are numbered as they stand in ``declarations``."""

    declarations: list[Declaration]
    """Those of a child manifest before the ``apply`` resource that brings it."""
    order: list[int]
    """Indexes of declarations, and of ``reversals`` after them."""
    links: Links = msgspec.field(default_factory=Links)
    reversals: list[Declaration] = msgspec.field(default_factory=list)
    """Changes that the run takes back, numbered after the declarations.

    No resource takes one for a declaration: whatever resources ask about the catalog is answered from ``declarations``.
    """

    def names_of(self, type_name: str) -> list[str]:
        """The names of all declared resources of a type."""
        return [
            d.properties.name for d in self.declarations if d.type.type_name == type_name and d.loop is None
        ]

    def attended(self, index: int) -> Declaration:
        """Return the declaration or the reversal with an index of ``order``."""
        declared = len(self.declarations)
        return self.declarations[index] if index < declared else self.reversals[index - declared]

    def may_declare(self, reference: str) -> bool:
        """Whether a loop that cannot be evaluated on this machine may have made this resource."""
        return any(declaration.stands_for(reference) for declaration in self.declarations)

    def requirements(self, index: int) -> list[tuple[Reference, int]]:
        """The resources that must have succeeded before this one: the references as written, and their indexes."""
        return self.links.requirements.get(index, [])

    def subscriptions(self, index: int) -> list[int]:
        """The resources whose changes refresh this one."""
        return self.links.subscriptions.get(index, [])

    def reloads(self, index: int) -> list[int]:
        """The resources whose changes ask this one only to reload."""
        return self.links.reloads.get(index, [])

    def subscribers_of(self, index: int) -> list[Reference]:
        """The resources that are refreshed when this one changes, as ``puller.values.references`` lists them."""
        return self.links.subscribers.get(index, [])

    def children(self, index: int) -> list[int]:
        """The resources of an ``apply`` resource's manifest."""
        return self.links.children.get(index, [])

    def subscribers(self) -> set[Reference]:
        """Every resource that subscribes to another, listed in the same way."""
        return {reference for references in self.links.subscribers.values() for reference in references}

    @property
    def is_partial(self) -> bool:
        """Whether it was limited to a part of what is declared."""
        return len(self.order) < len(self.declarations) + len(self.reversals)

    def limited_to(self, patterns: Iterable[str]) -> Self:
        """The part of it that these references name, and what that requires; ``*`` stands for any text.

        Links and numbers stay as they are: it is the order that holds no others. Raises ``UsageError`` for a pattern
        that names nothing.
        """
        waiting = [index for pattern in patterns for index in self._named(pattern)]
        found: set[int] = set()
        while waiting:
            index = waiting.pop()
            if index not in found:
                found.add(index)
                waiting += (*(other for _, other in self.requirements(index)), *self.children(index))
        return msgspec.structs.replace(self, order=[index for index in self.order if index in found])

    def _named(self, pattern: str) -> list[int]:
        matches = Reference(pattern).matcher()
        found = [index for index, names in self._names() if any(map(matches, names))]
        if not found:
            known = [name for _, names in self._names() for name in names]
            raise UsageError(f"--only {pattern}: names no resource", **meant(pattern, known))
        return found

    def _names(self) -> Iterator[tuple[int, list[str]]]:
        for index, declaration in enumerate(self.declarations):
            yield index, [str(name) for name in (*declaration.names(), *declaration.labels())]
