"""One resource, applied by itself: what ``puller ensure`` and its pipe do.

* It goes through the same loading and the same engine as a manifest of one resource, in the current directory.
* What it requires and subscribes to are events of the session, which stands for the run.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.engine.sessions import Recorded, Session, change_since, latest
from puller.errors import ManifestError, UsageError
from puller.manifest.loader import load_value
from puller.manifest.manifest import Inputs, Manifest
from puller.manifest.problems import UnplacedProblems
from puller.manifest.source import MANIFEST, working_directory
from puller.reporting.report import Event
from puller.resources.registry import find_type
from puller.resources.remote import fetch_url
from puller.state.directories import Directories
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.signals import StopRequests
from puller.values.reference import Reference


class Wanted(msgspec.Struct, frozen=True):
    """A resource as it was asked for; ``properties`` have its name."""

    type: str
    properties: Mapping[str, Any]


def ensure(
    wanted: Wanted, inputs: Inputs, settings: Settings, stops: StopRequests, session: Session | None
) -> list[Event]:
    """Apply a resource; its event is the last, after those of the resources below it, and all are in the session.

    1. Its references are taken out: they are to events, and no manifest has them.
    2. It is loaded as a manifest of one resource, in the current directory.
    3. Its references become events of the session: of each the latest (``docs/shell.md``).
    4. It is applied, as a resource of a manifest is.
    5. Its events are recorded in the session.

    Raises ``UsageError`` when what is asked for is not valid.
    """
    # 1. References.
    properties, resource_type = dict(wanted.properties), find_type(wanted.type)
    fields = msgspec.structs.fields(resource_type.properties_type) if resource_type else ()
    names = [field.name for field in fields if field.type == tuple[Reference, ...]]
    references = {name: _references(name, properties.pop(name, None)) for name in names}
    # 2. A manifest of one resource.
    manifest = _load({"resources": [{wanted.type: properties}]}, inputs)
    # 3. Events of the session.
    before = _link(manifest, references, session)
    # 4. Apply it. A session has the events of all that went before, so no refreshes need to be remembered.
    pending = PendingRefreshes(None, "ensure")
    settings = msgspec.structs.replace(settings, state_directory=Directories.of_user().state)
    system = NoopSystem() if settings.noop else LocalSystem()
    engine = Engine(manifest, system, fetch_url, pending, settings, before)
    stops.check()
    with stops.deferred():
        events = engine.apply()
    # 5. Record.
    if session is not None:
        for event in events:
            session.record(event)
    return events


def _load(value: dict[str, Any], inputs: Inputs) -> Manifest:
    try:
        return load_value(working_directory() / MANIFEST, value, UnplacedProblems.of("resource"), inputs)
    except ManifestError as error:
        raise UsageError(problems=error.problems) from error


def _references(name: str, value: object) -> list[Reference]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise UsageError(f"{name} is {value!r}", expected="a list of references such as 'file#/etc/motd'")
    try:
        return [Reference.parse(item) for item in value]
    except ValueError as error:
        raise UsageError(f"{name} {error}") from None


def _link(
    manifest: Manifest, references: Mapping[str, Sequence[Reference]], session: Session | None
) -> list[Event]:
    """Let references mean events of the session; gives these, as the engine takes them."""
    required = references.get("require", ())
    subscribed = [(name, one) for name in ("subscribe", "reload") for one in references.get(name, ())]
    if not required and not subscribed:
        return []
    if session is None:
        one = (*required, *(reference for _, reference in subscribed))[0]
        raise UsageError(f"{one}: references are to events of a session; none is set")
    recorded, links, first = session.events(), manifest.links, len(manifest.declarations)
    own = first - 1
    since = _last_success(recorded, manifest.declarations[own].reference)
    # The numbers after those of the manifest's own resources are the events of the session.
    found = [_find(recorded, reference, session) for reference in required]
    news = [
        (name, event)
        for name, reference in subscribed
        for event in _news(recorded, reference, since, session)
    ]
    for index in range(first):
        # All of them, for an ``apply`` resource brings those of its child manifest.
        met = [(reference, first + number) for number, reference in enumerate(required)]
        links.requirements[index] = [*met, *links.requirements.get(index, [])]
    for number, (name, _) in enumerate(news, start=first + len(found)):
        each = links.reloads if name == "reload" else links.subscriptions
        each.setdefault(own, []).append(number)
    return [event.event for event in (*found, *(event for _, event in news))]


def _news(
    events: Sequence[Recorded], reference: Reference, since: int, session: Session
) -> Iterator[Recorded]:
    """The change of a resource after ``since``, and its last event unless that is a change before."""
    last = _find(events, reference, session)
    change = change_since(events, reference, since)
    if change is not None:
        yield change
    if change is not last and not (change is None and last.event.changed):
        yield last


def _find(events: Sequence[Recorded], reference: Reference, session: Session) -> Recorded:
    if (found := latest(events, reference)) is None:
        raise UsageError(f"{reference}: has no event in the session {session.directory}")
    return found


def _last_success(events: Sequence[Recorded], reference: Reference) -> int:
    """The number of the last event in which this resource did its work; earlier changes were attended to by that."""
    return next(
        (e.sequence for e in reversed(events) if e.event.changed and e.event.reference == reference), 0
    )
