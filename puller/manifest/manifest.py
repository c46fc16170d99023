"""A manifest that is understood, and what it was understood with: plain values, no reading and no doing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from foundation.problems import Problem
from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.data.bundle_data import BundleData
from puller.data.sources import DataSource
from puller.manifest.catalog import Catalog
from puller.manifest.problems import Problems
from puller.state.places import PRIVATE_KEY
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
    as_user: bool | None = None
    """Whether it is for the agent of an ordinary user, by the rules of ``of_user``; ``None``: for reading only, and the
    manifest says whom it is for."""
    watch: Callable[[str, KeyPath, Scope, Scope, BundleFiles], Scope] | None = None
    """Makes the scope for a resource from that of its manifest; told the text and the place in it (``recording``)."""


class Manifest(Catalog, kw_only=True):
    """A manifest that is understood: what is declared, and in which order it is applied."""

    name: str
    """For messages: ``web/manifest.yaml``."""
    files: BundleFiles
    """What its paths mean."""
    scope: Scope
    """Facts, data and functions, for templates and conditions."""
    data: BundleData
    """Where ``scope.data`` comes from."""
    fail_on_error: bool = False
    give_up_after: int = 0
    """Runs in a row with failed resources after which a bundle on trial is given up; 0 is never."""
    exports: Mapping[str, Any] = {}
    """Values for the fleet, by name: those that can be had on this host and are of their types."""
    export_problems: Sequence[Problem] = ()
    """One for each other export."""
    pre_message: str = ""
    post_message: str = ""
    warnings: list[Problem] = msgspec.field(default_factory=list)
    """What is suspicious, and not wrong."""
    of_no_item: frozenset[Reference] = frozenset()
    """The names, written out, of entries whose loops have no item on this machine."""
    texts: list[Problems] = msgspec.field(default_factory=list)
    """What was read: of the manifest, its children, and lists that templates rendered."""
