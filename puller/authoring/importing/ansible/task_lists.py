"""Lists of tasks: blocks, keywords and the forms of arguments, and the handlers that tasks notify.

* A task inherits the conditions, keywords, tags, notifications and variables of its blocks.
* Arguments may be a mapping, or a text such as ``name=nginx state=present``.
* An entry that is not a task becomes a remark.
* A handler that restarts or reloads a mapped service becomes a property of the service. Another handler becomes a
  command that runs only after a change of its subscriptions.
* A handler that only unmapped tasks notify stays a comment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from puller.authoring.importing.ansible.jinja_expressions import conditions_of, has_expression, translate_text
from puller.authoring.importing.ansible.mapping import KEYWORDS, TaskMapper, with_variables
from puller.authoring.importing.ansible.tasks import RoleContext, Task, Work, boolean_of, known_value, table
from puller.authoring.importing.draft import ManifestDraft, Origin, Outcome, Remark
from puller.authoring.importing.reading import Document, as_list, as_mapping
from puller.authoring.importing.written_expressions import Untranslatable

_INHERITED: Final = ("become_user", "no_log", "ignore_errors", "delegate_to", "run_once")
"""Keywords that a task takes from its blocks. Tags, notifications and variables are merged."""
_BLOCK: Final = frozenset({"block", "rescue", "always"})
_FREE_FORM: Final = frozenset({"command", "shell", "raw", "script"})
"""Modules whose text is a command."""
_FREE_ARGUMENTS: Final = frozenset({"creates", "removes", "chdir", "executable", "warn", "stdin"})
"""Arguments that the text of a command can contain."""
_SPLIT: Final = re.compile(r"((?:{{.*?}}|\"[^\"]*\"|'[^']*'|[^\s])+)")
"""Words, in which quotes and expressions may contain spaces."""
_SERVICES: Final = frozenset({"service", "systemd", "systemd_service", "sysvinit"})


def tasks_of(document: Document, path: tuple[str | int, ...], entries: Any) -> Iterator[Task | Remark]:
    """Yield the tasks of a list, with blocks resolved. ``path`` is the position of the list in the document."""
    yield from _tasks(document, path, entries, [], {})


def _tasks(
    document: Document,
    path: tuple[str | int, ...],
    entries: Any,
    when: Sequence[Any],
    inherited: Mapping[str, Any],
) -> Iterator[Task | Remark]:
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        place = (*path, index)
        if not isinstance(entry, dict):
            yield Remark(
                Origin(document.name, document.line(place)),
                "entry",
                Outcome.UNMAPPED,
                ("the entry is not a task",),
            )
            continue
        conditions = [*when, *conditions_of(entry.get("when"))]
        if "block" in entry:
            yield from _block(document, place, entry, conditions, inherited)
            continue
        yield _task(document, place, entry, conditions, inherited)


def _block(
    document: Document,
    place: tuple[str | int, ...],
    entry: Mapping[str, Any],
    when: Sequence[Any],
    inherited: Mapping[str, Any],
) -> Iterator[Task | Remark]:
    own = {key: value for key, value in entry.items() if key not in _BLOCK and key not in ("when", "name")}
    merged = {**inherited, **own}
    for key in ("tags", "notify"):
        merged[key] = [*as_list(inherited.get(key)), *as_list(own.get(key))]
    merged["vars"] = {**as_mapping(inherited.get("vars")), **as_mapping(own.get("vars"))}
    for key in ("block", "always"):
        yield from _tasks(document, (*place, key), entry.get(key) or [], when, merged)
    yield from _tasks(
        document, (*place, "rescue"), entry.get("rescue") or [], when, {**merged, "rescue": True}
    )


def _task(
    document: Document,
    place: tuple[str | int, ...],
    entry: Mapping[str, Any],
    when: Sequence[Any],
    inherited: Mapping[str, Any],
) -> Task | Remark:
    origin = Origin(document.name, document.line(place))
    keys = [str(key) for key in entry if str(key) not in KEYWORDS and not str(key).startswith("with_")]
    module, value = (keys[0], entry[keys[0]]) if keys else ("", None)
    local = False
    if not keys and ("action" in entry or "local_action" in entry):
        local = "local_action" in entry
        action = entry.get("action", entry.get("local_action"))
        if isinstance(action, dict):
            module = str(action.get("module", ""))
            value = {key: item for key, item in action.items() if key != "module"}
        else:
            module, _, value = str(action).partition(" ")
    if len(keys) > 1:
        return Remark(
            origin,
            str(entry.get("name") or keys[0]),
            Outcome.UNMAPPED,
            (f"unknown keys: {', '.join(keys[1:])}",),
        )
    if not module:
        return Remark(
            origin, str(entry.get("name") or "task"), Outcome.UNMAPPED, ("the task lacks a module",)
        )
    short = module.rpartition(".")[2]
    free, arguments = _arguments(short, value)
    extra = entry.get("args")
    if isinstance(extra, dict):
        arguments = {**extra, **arguments}
    loops = [
        (key.removeprefix("with_").rpartition(".")[2], entry[key])
        for key in map(str, entry)
        if key.startswith("with_")
    ]
    loops += [("loop", entry["loop"])] if "loop" in entry else []
    control = entry.get("loop_control") if isinstance(entry.get("loop_control"), dict) else {}
    keywords = {
        key: inherited[key]
        for key in (*_INHERITED, "rescue", "environment")
        if inherited.get(key) is not None
    }
    keywords |= {str(key): item for key, item in entry.items() if str(key) in KEYWORDS and item is not None}
    if local:
        keywords["local_action"] = True
    return Task(
        origin,
        str(entry.get("name") or ""),
        short,
        arguments,
        free,
        list(when),
        loops[0] if loops else None,
        str((control or {}).get("loop_var", "item")),
        str((control or {}).get("index_var", "")),
        str(entry.get("register") or ""),
        [str(item) for item in [*as_list(inherited.get("notify")), *as_list(entry.get("notify"))]],
        [str(item) for item in as_list(entry.get("listen"))],
        [str(item) for item in [*as_list(inherited.get("tags")), *as_list(entry.get("tags"))]],
        {**as_mapping(inherited.get("vars")), **as_mapping(entry.get("vars"))},
        entry.get("environment") or inherited.get("environment"),
        {key: item for key, item in keywords.items() if key not in ("environment",)},
        str(entry.get("become_user") or inherited.get("become_user") or ""),
    )


def _arguments(module: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Return the free text and the arguments of a module."""
    if isinstance(value, dict):
        return "", {str(key): item for key, item in value.items()}
    if value is None:
        return "", {}
    text = str(value)
    if module in _FREE_FORM:
        words, arguments = [], {}
        if not re.search(r"(^|\s)(?:" + "|".join(_FREE_ARGUMENTS) + r")=", text):
            return text, {}
        for word in _SPLIT.findall(text):
            name, separator, item = word.partition("=")
            if separator and name in _FREE_ARGUMENTS:
                arguments[name] = item.strip("'\"")
            else:
                words.append(word)
        return " ".join(words), arguments
    arguments, free = {}, []
    for word in _SPLIT.findall(text):
        name, separator, item = word.partition("=")
        if separator and re.fullmatch(r"\w+", name):
            if len(item) > 1 and item[0] == item[-1] and item[0] in "'\"":
                item = item[1:-1]
            arguments[name] = item
        else:
            free.append(word)
    return " ".join(free), arguments


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
