"""The steps from a catalog to its events, which ``run``, ``apply`` and ``ensure`` share."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.graph.catalog import Catalog
from puller.reporting.report import Event
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.processes import StopRequests
from puller.system.protocol import System


class Applied(msgspec.Struct, frozen=True):
    """The outcome of applying a catalog."""

    events: list[Event]
    notes: list[str]
    """Notes for people besides the events."""
    undone: Mapping[int, int] = {}
    """Resources that a later change of the run has undone, by index, with the index of the later resource."""


def apply_catalog(
    catalog: Catalog,
    settings: Settings,
    stops: StopRequests,
    pending: PendingRefreshes,
    *,
    state_directory: Path,
    fetch: Callable[[str], bytes],
    before: Sequence[Event] = (),
) -> Applied:
    """Apply every resource of a catalog. With noop, predict the changes.

    ``state_directory`` contains the records of resources, and ``before`` the events of other processes, as in
    ``Engine``. A signal stops the run between two resources.
    """
    system: System = NoopSystem() if settings.noop else LocalSystem()
    settings = msgspec.structs.replace(settings, state_directory=state_directory)
    engine = Engine(catalog, system, fetch, pending, settings, before)
    with stops.deferred():
        events = engine.apply()
    return Applied(events, pending.notes, engine.undone)
