"""A manifest that is understood, and what it was understood with: plain values, no reading and no doing."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hiera.expressions.expressions import Scope
from puller.data.bundle_data import BundleData
from puller.data.sources import DataSource
from puller.manifest.declaration import Declaration
from puller.manifest.links import Links
from puller.manifest.problems import Problems
from puller.state.directories import PRIVATE_KEY
from puller.values.reference import Reference
from puller.values.suggestions import Path as KeyPath


class Inputs(msgspec.Struct, frozen=True):
    """The facts, data and keys that a manifest is resolved with."""

    facts: Mapping[str, Any]
    environ: Mapping[str, str]
    sources: tuple[DataSource, ...] = ()
    """Data from outside of the manifest, lowest precedence first; merged over its own."""
    private_key: str = PRIVATE_KEY
    """The file of this host's key for encrypted values."""
    watch: Callable[[str, KeyPath, Scope, Path], Scope] | None = None
    """Makes the scope for a resource from that of its manifest; told the text and the place in it (``recording``)."""


class Manifest(msgspec.Struct):
    """A manifest that is understood: what is declared, and in which order it is applied.

    Resources are numbered as they are declared, those of a child manifest before the ``apply`` resource that brings it.
    """

    name: str
    """For messages: ``web/manifest.yaml``."""
    directory: Path
    scope: Scope
    """Facts, data and functions, for templates and conditions."""
    data: BundleData
    """Where ``scope.data`` comes from."""
    declarations: list[Declaration]
    order: list[int]
    fail_on_error: bool = False
    give_up_after: int = 0
    """Runs in a row with failed resources after which a bundle on trial is given up; 0 is never."""
    pre_message: str = ""
    post_message: str = ""
    warnings: list[str] = []
    """What is suspicious, and not wrong."""
    links: Links = msgspec.field(default_factory=Links)
    texts: list[Problems] = []
    """What was read: of the manifest, its children, and lists that templates rendered."""

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
