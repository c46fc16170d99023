"""Refreshes that follow from changes: which resources restart, reload or run again, and because of which others.

As the engine does it: in the order of the resources, a resource that was refreshed has changed, and refreshes in turn.
"""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from puller.authoring.resolution import ResolvedResource

_RESTARTS = "restarts"
_RELOADS = "reloads"
_RUNS = "runs"
_TYPES = {"service": _RESTARTS, "exec": _RUNS}


class Refreshed(msgspec.Struct, frozen=True):
    """One resource that is refreshed."""

    reference: str
    verb: str
    because: tuple[str, ...]


def refreshed(resources: Iterable[ResolvedResource], changed: Collection[str]) -> Iterator[Refreshed]:
    """The refreshes that follow where the resources ``changed`` are brought into another state."""
    changing = set(changed)
    for found in resources:
        if (refresh := _refresh(found, changing)) is not None:
            changing.add(found.reference)
            yield refresh


def _refresh(found: ResolvedResource, changing: Collection[str]) -> Refreshed | None:
    verb = _TYPES.get(found.reference.partition("#")[0], "")
    if not verb or found.failure or found.unmanaged or found.properties.get("noop") is True:
        return None
    if verb is _RESTARTS and found.properties.get("ensure") != "running":
        return None
    if because := [name for name in found.refreshed_by if name in changing]:
        return Refreshed(found.reference, verb, tuple(because))
    if because := [name for name in found.reloaded_by if name in changing]:
        return Refreshed(found.reference, _RELOADS if verb is _RESTARTS else verb, tuple(because))
    return None
