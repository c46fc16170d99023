"""Consequences for other resources: which restart, reload or run again because of changes, which are left out.

As the engine does it: in the order of the resources, a resource that was refreshed has changed, and refreshes in turn;
one that is left out has not succeeded, and leaves out what requires it.
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


def skipped(resources: Iterable[ResolvedResource]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The references of what is left out because of requirements that fail, and these."""
    failing: set[str] = set()
    for found in resources:
        if found.failure:
            # What an earlier resource may mend is not known to fail.
            failing.update(() if found.is_late else _names(found))
        elif not found.unmanaged and (because := [name for name in found.requires if name in failing]):
            failing.update(_names(found))
            yield found.reference, tuple(dict.fromkeys(because))


def _names(found: ResolvedResource) -> Iterable[str]:
    return found.names or (found.reference,)
