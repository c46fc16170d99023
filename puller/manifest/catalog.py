"""A catalog: declared resources, the order in which they are applied, and the links between them."""

import msgspec

from puller.manifest.declaration import Declaration
from puller.manifest.links import Links
from puller.values.reference import Reference


class Catalog(msgspec.Struct):
    """All that one engine applies. Resources are numbered as they stand in ``declarations``."""

    declarations: list[Declaration]
    """Those of a child manifest before the ``apply`` resource that brings it."""
    order: list[int]
    links: Links = msgspec.field(default_factory=Links)

    def names_of(self, type_name: str) -> list[str]:
        """The names of all declared resources of a type."""
        return [d.properties.name for d in self.declarations if d.type.type_name == type_name]

    def requirements(self, index: int) -> list[tuple[Reference, int]]:
        """The resources that must have succeeded before this one: the references as written, and their indexes."""
        return self.links.requirements.get(index, [])

    def subscriptions(self, index: int) -> list[int]:
        """The resources whose changes refresh this one."""
        return self.links.subscriptions.get(index, [])

    def subscribers_of(self, index: int) -> list[Reference]:
        """The resources that are refreshed when this one changes."""
        return self.links.subscribers.get(index, [])

    def children(self, index: int) -> list[int]:
        """The resources of an ``apply`` resource's manifest."""
        return self.links.children.get(index, [])

    def subscribers(self) -> set[Reference]:
        """Every resource that subscribes to another."""
        return {reference for references in self.links.subscribers.values() for reference in references}
