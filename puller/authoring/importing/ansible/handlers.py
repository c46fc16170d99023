"""Handlers of Ansible as services and commands that subscribe to resources.

* A handler that restarts or reloads a mapped service becomes a property of the service.
* Another handler becomes a command that runs only after a change of its subscriptions.
* A handler that only unmapped tasks notify stays a comment.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from puller.authoring.importing.ansible.expressions import has_expression, translate_text
from puller.authoring.importing.ansible.mapping import TaskMapper, with_variables
from puller.authoring.importing.ansible.tasks import RoleContext, Task, Work, boolean_of, known_value, table
from puller.authoring.importing.draft import ManifestDraft, Outcome
from puller.authoring.importing.written_expressions import Untranslatable

_SERVICES: Final = frozenset({"service", "systemd", "systemd_service", "sysvinit"})


def add_handlers(handlers: Iterable[Task], context: RoleContext, manifest: ManifestDraft) -> None:
    """Add the handlers of a role after its tasks, as commands and services with subscriptions."""
    for handler in handlers:
        topics = [handler.name, *handler.listen]
        references = list(dict.fromkeys(ref for topic in topics for ref in context.notified.get(topic, ())))
        _add_handler(handler, references, context, manifest)


def _add_handler(
    handler: Task, references: Sequence[str], context: RoleContext, manifest: ManifestDraft
) -> None:
    mapper = TaskMapper(context, manifest)
    row = table()["modules"].get(handler.module)
    if row is None or "none" in row or "missing" in row:
        mapper.add(handler)
        return
    if not references:
        topics = {handler.name, *handler.listen}
        if topics & context.unmapped_notifications:
            mapper.propose(handler, ["only tasks that are not mapped notify this handler"])
        else:
            mapper.note(handler, Outcome.NO_CHANGE, ["tasks never notify this handler"])
        return
    if handler.module in _SERVICES:
        _add_service_handler(handler, references, context, manifest, mapper)
        return
    if handler.module not in ("command", "shell", "raw"):
        mapper.propose(
            handler,
            [f"a handler with the module {handler.module}: only commands and services react to changes"],
        )
        return
    subscriber = msgspec.structs.replace(handler, keywords={**handler.keywords, "changed_when": None})
    before = len(manifest.resources)
    mapper.add(subscriber)
    for resource in manifest.resources[before:]:
        if not resource.disabled:
            resource.properties = {**resource.properties, "refreshonly": True, "subscribe": list(references)}


def _add_service_handler(
    handler: Task,
    references: Sequence[str],
    context: RoleContext,
    manifest: ManifestDraft,
    mapper: TaskMapper,
) -> None:
    state = handler.arguments.get("state")
    if state is None and boolean_of(
        handler.arguments.get("daemon_reload", handler.arguments.get("daemon-reload", False))
    ):
        mapper.note(handler, Outcome.MAPPED, [])
        return
    name = str(handler.arguments.get("name") or handler.arguments.get("service") or "")
    verbs = {"restarted": "restart", "reloaded": "reload", "started": "start", "stopped": "stop"}
    work = Work(handler, context, context.names)
    try:
        if handler.loop is not None:
            work.names = work.names.with_loop(handler.loop_variable)
        work.names = with_variables(handler, work.names)
        verb = _verb(state, verbs, work)
        unit = translate_text(name, work.names)
        if not unit:
            raise Untranslatable("the name is missing")
    except Untranslatable as error:
        mapper.propose(handler, [str(error)])
        return
    same = [
        resource
        for resource in context.services
        if resource.name == unit
        and not resource.loop
        and resource.properties.get("ensure", "running") == "running"
    ]
    if len(same) == 1 and verb in ("restart", "reload") and handler.loop is None and not handler.when:
        key = "subscribe" if verb == "restart" else "reload"
        others = same[0].properties.get("reload" if verb == "restart" else "subscribe", [])
        current = same[0].properties.setdefault(key, [])
        current += [
            reference for reference in references if reference not in current and reference not in others
        ]
        if not current:
            del same[0].properties[key]
        mapper.note(handler, Outcome.MAPPED, [])
        return
    scope = " --user" if handler.arguments.get("scope") == "user" else ""
    if has_expression(state):
        words = ", ".join(f"'{word}': '{item}'" for word, item in verbs.items())
        verb = f"{{{{ {{{words}}}[{str(state).strip()[2:-2].strip()}] }}}}"
    line = f"systemctl{scope} {verb} {name}"
    command = msgspec.structs.replace(handler, module="command", free_form=line, arguments={}, keywords={})
    before = len(manifest.resources)
    mapper.add(command)
    for resource in manifest.resources[before:]:
        if not resource.disabled:
            resource.properties = {**resource.properties, "refreshonly": True, "subscribe": list(references)}


def _verb(state: Any, verbs: Mapping[str, str], work: Work) -> str:
    """Return the verb of systemctl for a state, or empty for an unknown variable. Raises ``Untranslatable``."""
    if isinstance(state, str) and has_expression(state):
        known = known_value(work.translated(state), work)
        return verbs.get(str(known), "")
    verb = verbs.get(str(state))
    if verb is None:
        raise Untranslatable(f"state is {state!r}")
    return verb
