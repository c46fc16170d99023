"""From a manifest file to events: the steps that ``puller run`` and ``puller apply`` share."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.manifest import Manifest
from puller.reporting.report import Event
from puller.system.local import LocalSystem
from puller.system.protocol import System
from puller.system.signals import StopRequests


class Applied(msgspec.Struct, frozen=True):
    """The outcome of applying a manifest."""

    events: list[Event]
    notes: list[str]
    """What people should know beside the events."""


def apply_manifest(
    manifest: Manifest,
    settings: Settings,
    stops: StopRequests,
    *,
    pending: Path,
    scope: str,
    fetch: Callable[[str], bytes],
) -> Applied:
    """Apply every resource of ``manifest``, or in noop say what would be done.

    ``pending`` is the file of pending refreshes, and ``scope`` the part of it that belongs to this manifest. A signal
    stops it between two resources.
    """
    system: System = LocalSystem()
    if settings.noop:
        from puller.system.noop import NoopSystem

        system = NoopSystem()
    refreshes = PendingRefreshes(pending, scope, noop=settings.noop)
    settings = msgspec.structs.replace(settings, state_directory=pending.parent)
    engine = Engine(manifest, system, fetch, refreshes, settings)
    with stops.deferred():
        events = engine.apply()
    return Applied(events, refreshes.notes)
