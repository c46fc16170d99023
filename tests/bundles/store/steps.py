"""Steps that the stories of the store have in common; tests are not a package, so they load this file."""

from bundles.archive.pack import BuiltBundle
from bundles.store.contents import Installed
from bundles.store.store import Store


def install(store: Store, built: BuiltBundle, *, repair: bool = False) -> Installed:
    """Install a bundle as a run does, once its archive has arrived."""
    return store.install(
        built.path, name="web", version=built.description.version, sha256=built.sha256, repair=repair
    )


def activate(store: Store, built: BuiltBundle) -> Installed:
    """Install a bundle, and make it the current one."""
    install(store, built)
    return store.activate("web", built.sha256)
