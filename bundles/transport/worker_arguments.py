"""Transport settings and locations as built-in types for a worker, and the conversion back."""

from typing import Any

import msgspec

from bundles.transport.location import Location
from bundles.transport.settings import TransportSettings


class Clear(str):
    """A secret in the process that needs it."""

    __slots__ = ()

    def reveal(self) -> str:
        """Return the text itself."""
        return str(self)


def handed_over(location: Location, settings: TransportSettings) -> tuple[Any, ...]:
    """Convert location and settings, including their secrets, to built-in types."""
    return msgspec.structs.astuple(location), {
        name: _bare(value) for name, value in msgspec.structs.asdict(settings).items()
    }


def taken_over(arguments: tuple[Any, ...]) -> tuple[Location, TransportSettings]:
    """Return the location and the settings from the result of `handed_over`."""
    location, values = arguments
    headers = {name: Clear(value) for name, value in values.pop("headers").items()}
    hidden: Any = {
        name: Clear(value)
        for name in ("proxy", "password", "token")
        if (value := values.pop(name)) is not None
    }
    return Location(*location), TransportSettings(**values, **hidden, headers=headers)


def _bare(value: Any) -> Any:
    if hasattr(value, "reveal"):
        return value.reveal()
    if hasattr(value, "items"):
        return {name: _bare(each) for name, each in value.items()}
    return value
