"""Requests of other programs: one resource as JSON or YAML, and the answer.

Protocols, keys and messages are those of ``docs/shell.md``, so that its clients work unchanged.
"""

from collections.abc import Sequence
from typing import Any

from foundation.formatting import json_values, plain
from foundation.problems import Problem
from hiera.errors import HieraError
from hiera.text import yaml_text
from puller.engine.ensure import Wanted
from puller.errors import UsageError
from puller.manifest.entries import read_entries
from puller.manifest.problems import UnplacedProblems
from puller.reporting.report import Event, Health, State

REQUEST = "io.choria.ccm.v1.resource.ensure.request"
RESPONSE = "io.choria.ccm.v1.resource.ensure.response"
EVENT = "io.choria.ccm.v1.transaction.event"

_KEYS = ("protocol", "type", "properties")
_HEALTH = {Health.OK: 0, Health.WARNING: 1, Health.CRITICAL: 2, Health.UNKNOWN: 3}


def parse_request(text: bytes) -> Wanted:
    """The resource that a request asks for; JSON is YAML, too. Raises ``UsageError``."""
    try:
        request = yaml_text.load(text, "request")
    except HieraError as error:
        raise UsageError(problems=error.problems) from error
    if not isinstance(request, dict):
        raise UsageError("request: is not a mapping with protocol, type and properties")
    if request.get("protocol") != REQUEST:
        raise UsageError(f'invalid protocol "{request.get("protocol", "")}", wanted {REQUEST}')
    for key in ("type", "properties"):
        if not request.get(key):
            raise UsageError(f"missing {key} in request")
    if unknown := [key for key in request if key not in _KEYS]:
        raise UsageError(f"request: unknown key {unknown[0]!r}")
    return _only_resource(str(request["type"]), request["properties"])


def response(event: Event | None, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the answer. ``problems`` are those of the request, or the failure of the resource."""
    answer: dict[str, Any] = {"protocol": RESPONSE}
    if problems:
        answer["error"] = ", ".join(map(str, problems))
        answer["problems"] = [plain(problem) for problem in problems]
    if event is not None:
        answer["state"] = _state(event)
    return answer


def _only_resource(type_name: str, properties: Any) -> Wanted:
    """Both shapes of a manifest's entry are understood, for one resource."""
    if isinstance(properties, dict) and "name" not in properties and len(properties) == 1:
        properties = [properties]
    problems = UnplacedProblems.of("request")
    entries = read_entries([{type_name: properties}], ("resources",), problems)
    if problems.any:
        raise UsageError(problems=problems.all()[:1])
    if len(entries) != 1:
        raise UsageError("multiple resources found" if entries else "no resources found")
    if entries[0].loop is not None:
        raise UsageError("a request is for one resource, and has no loop (for)")
    return Wanted(type_name, entries[0].properties)


def _state(event: Event) -> dict[str, Any]:
    """An event under the reference's names. No properties, which may be secret, and whoever asks knows them."""
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
