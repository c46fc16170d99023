"""Which package manager is that of a machine: ``apt`` or ``dnf``, by the fact ``os.family``."""

from typing import Any

from puller.errors import ResourceError
from puller.resources.base import Context

PROVIDERS = ("apt", "dnf")
_PROVIDER_OF_FAMILY = {"Debian": "apt", "RedHat": "dnf"}


def provider_of(forced: str | None, context: Context) -> str:
    """The forced provider, or the one of this machine; raises ``ResourceError`` when that is none of ours."""
    if forced:
        return forced
    family: Any = context.scope.lookup("facts.os.family", None)
    if family in _PROVIDER_OF_FAMILY:
        return _PROVIDER_OF_FAMILY[family]
    known = " or ".join(f"{name} ({provider})" for name, provider in _PROVIDER_OF_FAMILY.items())
    raise ResourceError(f"the fact os.family is {family!r}, wanted {known}, or a provider named")
