"""The package managers: one row each.

To add a package manager, write one module with a ``Manager`` and a ``Layout``, and add its row here. Models are
``dnf.py`` and ``DnfLayout`` in ``layouts.py``. ``versions.py`` has the orders of versions of dpkg and rpm.
"""

from importlib import import_module
from typing import Any, NamedTuple

from puller.errors import ResourceError
from puller.resources.base import Context


class Provider(NamedTuple):
    """A package manager. Classes are ``MODULE:CLASS``, so that only the modules of the machine's own are imported."""

    family: str
    """The fact ``os.family`` of its machines."""
    suffix: str
    """The end of the names of its package files."""
    manager: str
    layout: str
    lacks: tuple[str, ...] = ()
    """Properties of repositories that it does not have."""


PROVIDERS = {
    "apt": Provider(
        family="Debian",
        suffix=".deb",
        manager="puller.resources.packages.apt:Apt",
        layout="puller.resources.packages.layouts:AptLayout",
    ),
    "dnf": Provider(
        family="RedHat",
        suffix=".rpm",
        manager="puller.resources.packages.dnf:Dnf",
        layout="puller.resources.packages.layouts:DnfLayout",
        lacks=("suites", "components", "architectures", "allow_release_info_change"),
    ),
}


def provider_of(forced: str | None, context: Context) -> str:
    """Return the forced provider, or this machine's. Raises ``ResourceError`` for an unknown family."""
    if forced:
        return forced
    family: Any = context.scope.lookup("facts.os.family", None)
    for name, provider in PROVIDERS.items():
        if provider.family == family:
            return name
    known = " or ".join(f"{provider.family} ({name})" for name, provider in PROVIDERS.items())
    raise ResourceError(f"the fact os.family is {family!r}", expected=f"{known}, or a provider named")


def suffix_of_family(family: Any) -> str:
    """Return the suffix of package files on machines of a family. Empty for an unknown family."""
    return next((provider.suffix for provider in PROVIDERS.values() if provider.family == family), "")


def load_class(place: str) -> Any:
    """Return the class of ``MODULE:CLASS``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
