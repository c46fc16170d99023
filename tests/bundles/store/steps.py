"""Shared steps of the store's tests. Tests are not a package, so the tests load this file."""

from bundles.archive.pack import BuiltBundle
from bundles.store.contents import Installed
from bundles.store.store import Store


def install(store: Store, built: BuiltBundle, *, repair: bool = False) -> Installed:
    """Install a bundle as a run does after the download of its archive."""
    return store.install(
        built.path, name="web", version=built.description.version, sha256=built.sha256, repair=repair
    )


def activate(store: Store, built: BuiltBundle) -> Installed:
    """Install a bundle and activate it."""
    install(store, built)
    return store.activate("web", built.sha256)
