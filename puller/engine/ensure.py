"""One resource, applied without a manifest: the core of ``puller ensure`` and of its API, and its sessions.

* The resource is loaded and applied like a manifest with one resource, in the current directory.
* A session stores the events of separate ``puller ensure`` commands. References in ``require``, ``subscribe`` and
  ``reload`` refer to them. Sequence numbers keep the order of recording. Clocks do not matter.
* Only the owner can read a session. A session of another user is rejected. Removing a session removes only the files
  that it wrote.
* The API reads one resource as JSON or YAML and returns a response. ``docs/shell.md`` defines its protocols,
  keys and messages, so that its clients work unchanged.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from bundles.filesystem.atomic import write_file
from foundation.formatting import json_values, plain
from foundation.problems import Problem, ProblemCode
from foundation.times import iso_text
from hiera import parsing
from hiera.errors import HieraError
from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError, UsageError, file_problem
from puller.manifest.entries import read_entries
from puller.manifest.loader import load_value
from puller.manifest.manifest import MANIFEST, Inputs, Manifest, working_directory
from puller.manifest.problems import UnplacedProblems
from puller.reporting.report import Event, Health, State
from puller.resources.content_sources import fetch_url
from puller.resources.registry import find_type
from puller.state import Directories, decode
from puller.system.processes import StopRequests
from puller.values.common_properties import Reference

SESSION_VARIABLE = "PULLER_SESSION"
"""The environment variable that names the directory."""
_SESSION_FILE = "session.json"
_EVENT_SUFFIX = ".event"


class SessionStart(msgspec.Struct, frozen=True):
    """The start of a session. ``started`` is UTC in ISO 8601."""

    started: str
    format: Literal[3] = 3


class RecordedEvent(msgspec.Struct, frozen=True):
    """An event with its sequence number."""

    sequence: int
    time: str
    event: Event


class Session:
    """The events in one directory."""

    def __init__(self, directory: Path, start: SessionStart) -> None:
        self.directory = directory
        self.start = start

    @classmethod
    def create(cls, directory: Path | None = None) -> "Session":
        """Return a new session in ``directory``, or in a temporary one. Raise ``UsageError``, ``OSError``."""
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="puller-session-"))
        else:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise UsageError(f"{directory}: is not empty, and a session requires an empty directory")
        start = SessionStart(iso_text(datetime.now(UTC), "microseconds"))
        write_file(directory / _SESSION_FILE, msgspec.json.encode(start), mode=0o600)
        return cls(directory.absolute(), start)

    @classmethod
    def open(cls, directory: Path) -> "Session":
        """Return the session in ``directory``. Raise ``UsageError``."""
        try:
            if os.stat(directory).st_uid != os.geteuid():
                # The events decide what runs, so only the user may write them.
                raise UsageError(f"{directory}: belongs to another user")
            return cls(directory, decode((directory / _SESSION_FILE).read_bytes(), SessionStart))
        except FileNotFoundError:
            raise UsageError(
                f"{directory}: is not a session", hint="create one with: puller session new"
            ) from None
        except OSError as error:
            raise UsageError(
                file_problem(error, "cannot be read", where=directory), code=ProblemCode.UNREADABLE_SOURCE
            ) from error
        except msgspec.DecodeError as error:
            raise UsageError(f"{directory / _SESSION_FILE}: is not a session ({error})") from error

    def record(self, event: Event) -> RecordedEvent:
        """Add an event after all others, also with concurrent writers. Raise ``OSError``."""
        temporary = self.directory / f".{os.urandom(8).hex()}.new"
        sequence = max((number for number, _ in self._files()), default=0)
        try:
            while True:
                sequence += 1
                recorded = RecordedEvent(sequence, iso_text(datetime.now(UTC), "microseconds"), event)
                write_file(temporary, msgspec.json.encode(recorded), mode=0o600)
                # A link never replaces a file, so each number is used once.
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, self.directory / f"{sequence:08d}{_EVENT_SUFFIX}")
                    return recorded
        finally:
            temporary.unlink(missing_ok=True)

    def events(self) -> list[RecordedEvent]:
        """Return all events in order. Raise ``UsageError`` if one is invalid."""
        return [_load_event(path) for _, path in sorted(self._files())]

    def remove(self) -> None:
        """Remove the session, and its directory if it is then empty. Raise ``OSError``."""
        for _, path in self._files():
            path.unlink()
        (self.directory / _SESSION_FILE).unlink()
        with contextlib.suppress(OSError):
            self.directory.rmdir()

    def _files(self) -> Iterator[tuple[int, Path]]:
        for path in self.directory.iterdir():
            if path.suffix == _EVENT_SUFFIX and (path.stem.isascii() and path.stem.isdecimal()):
                yield int(path.stem), path


def latest(events: Sequence[RecordedEvent], reference: Reference) -> RecordedEvent | None:
    """Return the last event of a resource, by its name or alias."""
    return next((event for event in reversed(events) if _is_named(event.event, reference)), None)


def change_since(events: Sequence[RecordedEvent], reference: Reference, since: int) -> RecordedEvent | None:
    """Return a change of a resource after the event with number ``since``."""
    return next(
        (e for e in events if e.sequence > since and e.event.changed and _is_named(e.event, reference)), None
    )


def _is_named(event: Event, reference: Reference) -> bool:
    return reference in (event.reference, f"{event.type}#{event.alias}" if event.alias else "")


def _load_event(path: Path) -> RecordedEvent:
    try:
        return decode(path.read_bytes(), RecordedEvent)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: is not an event of a session ({error})") from error


class RequestedResource(msgspec.Struct, frozen=True):
    """A requested resource. Its name is a property."""

    type: str
    properties: Mapping[str, Any]


def ensure(
    desired: RequestedResource,
    inputs: Inputs,
    settings: Settings,
    stops: StopRequests,
    session: Session | None,
) -> list[Event]:
    """Apply a resource. Return its event after the events of its child resources. The session records all events.

    1. Remove its references: they refer to events, which a manifest does not have.
    2. Load it as a manifest with one resource, in the current directory.
    3. Link its references with events of the session, the latest of each resource (``docs/shell.md``).
    4. Apply it like a resource of a manifest.
    5. Record its events in the session.

    Raise ``UsageError`` if the resource is invalid.
    """
    # 1. References.
    properties, resource_type = dict(desired.properties), find_type(desired.type)
    fields = msgspec.structs.fields(resource_type.properties_type) if resource_type else ()
    names = [field.name for field in fields if field.type == tuple[Reference, ...]]
    references = {name: _references(name, properties.pop(name, None)) for name in names}
    # 2. A manifest of one resource.
    manifest = _load({"resources": [{desired.type: properties}]}, inputs)
    # 3. Events of the session.
    before = _link(manifest, references, session)
    # 4. Application. A session has all earlier events, so pending refreshes need no record.
    pending = PendingRefreshes(None, "ensure")
    state_directory = Directories.of_user().state
    stops.check()
    applied = apply_catalog(
        manifest, settings, stops, pending, state_directory=state_directory, fetch=fetch_url, before=before
    )
    # 5. Record.
    if session is not None:
        for event in applied.events:
            session.record(event)
    return applied.events


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
    """Link references with events of the session. Return these events in the order of their numbers."""
    required = references.get("require", ())
    subscribed = [(name, item) for name in ("subscribe", "reload") for item in references.get(name, ())]
    if not required and not subscribed:
        return []
    if session is None:
        item = (*required, *(reference for _, reference in subscribed))[0]
        raise UsageError(f"{item}: references require a session", hint="create one with: puller session new")
    recorded, links, first = session.events(), manifest.links, len(manifest.declarations)
    own = first - 1
    since = _last_success(recorded, manifest.declarations[own].reference)
    # The events of the session have the numbers after the manifest's own resources.
    results = [_find(recorded, reference, session) for reference in required]
    news = [
        (name, event)
        for name, reference in subscribed
        for event in _news(recorded, reference, since, session)
    ]
    for index in range(first):
        # For all resources, because an ``apply`` resource has those of its child manifest.
        met = [(reference, first + number) for number, reference in enumerate(required)]
        links.requirements[index] = [*met, *links.requirements.get(index, [])]
    for number, (name, _) in enumerate(news, start=first + len(results)):
        each = links.reloads if name == "reload" else links.subscriptions
        each.setdefault(own, []).append(number)
    return [event.event for event in (*results, *(event for _, event in news))]


def _news(
    events: Sequence[RecordedEvent], reference: Reference, since: int, session: Session
) -> Iterator[RecordedEvent]:
    """Yield the change of a resource after ``since``, and its last event unless that is an earlier change."""
    last = _find(events, reference, session)
    change = change_since(events, reference, since)
    if change is not None:
        yield change
    if change is not last and not (change is None and last.event.changed):
        yield last


def _find(events: Sequence[RecordedEvent], reference: Reference, session: Session) -> RecordedEvent:
    if (recorded := latest(events, reference)) is None:
        raise UsageError(f"{reference}: has no event in the session {session.directory}")
    return recorded


def _last_success(events: Sequence[RecordedEvent], reference: Reference) -> int:
    """Return the number of the last change of this resource, which has processed earlier events. 0 without a change."""
    return next(
        (e.sequence for e in reversed(events) if e.event.changed and e.event.reference == reference), 0
    )


# Requests and responses of the API.

REQUEST = "io.choria.ccm.v1.resource.ensure.request"
RESPONSE = "io.choria.ccm.v1.resource.ensure.response"
EVENT = "io.choria.ccm.v1.transaction.event"

_KEYS = ("protocol", "type", "properties")
_HEALTH = {Health.OK: 0, Health.WARNING: 1, Health.CRITICAL: 2, Health.UNKNOWN: 3}


def parse_request(text: bytes) -> RequestedResource:
    """Return the resource of a request in YAML or JSON. Raise ``UsageError``."""
    try:
        request = parsing.load_yaml(text, "request")
    except HieraError as error:
        raise UsageError(problems=error.problems) from error
    if not isinstance(request, dict):
        raise UsageError("request: is not a mapping with protocol, type and properties")
    if request.get("protocol") != REQUEST:
        raise UsageError(f'invalid protocol "{request.get("protocol", "")}", expected {REQUEST}')
    for key in ("type", "properties"):
        if not request.get(key):
            raise UsageError(f"missing {key} in request")
    if unknown := [key for key in request if key not in _KEYS]:
        raise UsageError(f"request: unknown key {unknown[0]!r}")
    return _only_resource(str(request["type"]), request["properties"])


def response(event: Event | None, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the response. ``problems`` has the problems of the request, or the failure of the resource."""
    answer: dict[str, Any] = {"protocol": RESPONSE}
    if problems:
        answer["error"] = ", ".join(map(str, problems))
        answer["problems"] = [plain(problem) for problem in problems]
    if event is not None:
        answer["state"] = _state(event)
    return answer


def _only_resource(type_name: str, properties: Any) -> RequestedResource:
    """Return the one resource of an entry. Both forms of entries in a manifest are valid."""
    if isinstance(properties, dict) and "name" not in properties and len(properties) == 1:
        properties = [properties]
    problems = UnplacedProblems.of("request")
    entries = read_entries([{type_name: properties}], ("resources",), problems)
    if problems.any:
        raise UsageError(problems=problems.all()[:1])
    if len(entries) != 1:
        raise UsageError("multiple resources found" if entries else "no resources found")
    if entries[0].loop is not None:
        raise UsageError("a request cannot have a loop (for), because it is for one resource")
    return RequestedResource(type_name, entries[0].properties)


def _state(event: Event) -> dict[str, Any]:
    """Return an event under the names of CCM. Properties are left out, because they may be secret."""
    state = {
        "protocol": EVENT,
        "type": event.type,
        "provider": event.provider,
        "name": event.name,
        "alias": event.alias,
        "requested_ensure": event.requested_ensure,
        "final_ensure": event.final_ensure,
        "duration": int(event.duration * 1e9),
        "noop_message": event.noop_message,
        "health_check": [
            {
                "name": check.name,
                "status": _HEALTH[check.status],
                "tries": check.tries,
                "output": "\n".join(filter(None, (check.output, check.error_output))) or check.outcome,
            }
            for check in event.health_checks
        ],
        "skip_reason": event.skip_reason,
        "differences": json_values(event.differences),
        "diff": event.diff,
        "errors": event.errors,
        "problems": [plain(problem) for problem in event.problems],
        "unmet_requirements": event.unmet_requirements,
    }
    flags = {
        "state": event.state.value,
        "changed": event.changed or event.state is State.WOULD_CHANGE,
        "refreshed": event.state is State.REFRESHED,
        "failed": event.state is State.FAILED,
        "skipped": event.state is State.SKIPPED,
        "noop": event.noop,
    }
    return {name: value for name, value in state.items() if value not in ("", [])} | flags
