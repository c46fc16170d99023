"""The references between the resources of a manifest, as indexes."""

import msgspec

from puller.values.references import Reference

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
    """In the notation of ``puller.values.references``."""
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
