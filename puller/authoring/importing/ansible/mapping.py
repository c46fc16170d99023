"""Tasks of Ansible as resources: conditions, loops and notifications.

* ``modules.yaml`` has the table of modules. ``modules.py`` has the functions of modules that need more than a row.
* A task without an exact counterpart stays at its place as a comment, with the reason and a proposal.
* A condition on the result of a task is translated only if a guard of a command has the same meaning.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from puller.authoring.importing.ansible.jinja_expressions import (
    Names,
    as_expression,
    has_expression,
    translate_condition,
    translate_text,
    translate_value,
)
from puller.authoring.importing.ansible.modules import FUNCTIONS, from_command
from puller.authoring.importing.ansible.tasks import (
    RoleContext,
    Task,
    Unfinished,
    Work,
    as_text,
    from_row,
    shortened,
    table,
)
from puller.authoring.importing.draft import ManifestDraft, Outcome, Remark, Resource, slug, unique_name
from puller.authoring.importing.written_expressions import Untranslatable, all_of, conjuncts

_FLOW_WIDTH: Final = 90
"""Maximum characters of a list inside of a ``for``. A longer list becomes data of the manifest."""
KEYWORDS: Final[Mapping[str, str]] = {
    "async": "asynchronous tasks are unsupported",
    "delegate_facts": "",
    "ignore_errors": "a failure is not ignored. Other resources continue anyway",
    "ignore_unreachable": "",
    "poll": "",
    "retries": "",
    "delay": "",
    "until": "there are no retries in a run. The next run tries again",
    "run_once": "each host applies the resource",
    "throttle": "",
    "serial": "use rollouts",
    "become": "",
    "become_method": "",
    "become_flags": "",
    "remote_user": "",
    "check_mode": "",
    "diff": "",
    "any_errors_fatal": "",
    "max_fail_percentage": "",
    "timeout": "",
    "collections": "",
    "module_defaults": "module_defaults are not mapped",
    "debugger": "",
    "connection": "",
    "port": "",
    "no_log": "",
    "changed_when": "",
    "failed_when": "",
    "tags": "",
    "args": "",
    "action": "",
    "local_action": "",
    "delegate_to": "",
    "register": "",
    "notify": "",
    "listen": "",
    "loop_control": "",
    "environment": "",
    "vars": "",
    "when": "",
    "name": "",
    "become_user": "",
    "become_exe": "",
    "loop": "",
    "order": "",
}
"""Keywords of a task, and the remark if the task has them."""


# Tasks.


class TaskMapper:
    """Translates the tasks of one manifest."""

    def __init__(self, context: RoleContext, manifest: ManifestDraft) -> None:
        self.context = context
        self.manifest = manifest

    def add(self, task: Task) -> None:
        """Add the resources of a task, or its comment."""
        row = table()["modules"].get(task.module)
        if row is None:
            self.propose(task, [f"Puller lacks a type for the module {task.module}"])
            return
        if "none" in row:
            self.note(task, Outcome.NO_CHANGE, [str(row["none"])])
            return
        if "missing" in row:
            self.propose(task, [str(row["missing"])])
            return
        before = len(self.manifest.resources)
        try:
            self._translate(task, row)
        except Untranslatable as error:
            del self.manifest.resources[before:]
            self.propose(task, [str(error)])
        except (AttributeError, TypeError, ValueError, LookupError):
            del self.manifest.resources[before:]
            self.propose(task, ["an argument has another form than Ansible documents"])

    def _translate(self, task: Task, row: Mapping[str, Any]) -> None:
        """Add the resources of a task with a row. Raises ``Untranslatable``."""
        context = self.context
        work = Work(task, context, context.names)
        obstacles = _obstacles(task)
        loop = ""
        try:
            work.names = with_variables(task, work.names)
            if task.loop is not None:
                work.names = work.names.with_loop(task.loop_variable)
                loop = self.loop_of(task, work)
        except Untranslatable as error:
            obstacles.append(str(error))
        if task.is_query and not obstacles:
            self.note(
                task,
                Outcome.NO_CHANGE,
                ["a query, by `changed_when: false`. Its result is a guard of other resources, or not used"],
            )
            return
        try:
            resources = self._resources(task, row, work)
        except Untranslatable as error:
            proposals = error.resources if isinstance(error, Unfinished) else ()
            self.propose(task, [*obstacles, str(error)], proposals)
            return
        if not resources and not obstacles:
            self.note(task, Outcome.MAPPED if not work.reasons else Outcome.NO_CHANGE, work.reasons)
            return
        control: list[str] = []
        for condition in task.when:
            try:
                control += self._condition(condition, resources, work)
            except Untranslatable as error:
                obstacles.append(f"the condition `{shortened(condition)}`: {error}")
        _apply_keywords(task, resources, work)
        for resource in resources:
            resource.loop = (
                ", ".join(filter(None, [loop, resource.loop])) if not resource.loop else resource.loop
            )
            if loop and resource.loop != loop:
                obstacles.append("a list inside of a loop")
            if control:
                resource.properties["control"] = {"if": all_of(control)}
        if obstacles:
            self.propose(task, obstacles, resources)
            return
        if "remark" in row:
            work.remark(str(row["remark"]))
        self._append(task, resources, work)

    def _resources(self, task: Task, row: Mapping[str, Any], work: Work) -> list[Resource]:
        """Return the resources of a module, without conditions and loop. Raises ``Untranslatable``."""
        if "command" in row:
            resources = from_command(row, work)
        elif "type" in row:
            resources = from_row(row, work)
            if "function" in row:
                resources = FUNCTIONS[row["function"]](work, resources)
        else:
            resources = FUNCTIONS[row["function"]](work, [])
        work.finish()
        return resources

    def _append(self, task: Task, resources: Sequence[Resource], work: Work) -> None:
        context = self.context
        title = f"{task.name} ({task.origin})" if task.name else str(task.origin)
        resources[0].comments = [title, *(f"Remark: {reason}" for reason in work.reasons)]
        if task.notify:
            self._notify(task, resources)
        tag = next((tag for tag in task.tags if tag not in ("always", "never", context.names.role_name)), "")
        if tag and not {"#", "{", "*"} & set(tag):
            for resource in resources:
                resource.label = resource.label or tag
        if task.register:
            context.results.setdefault(task.register, []).extend(resources)
        context.services += [resource for resource in resources if resource.type == "service"]
        self.manifest.resources += resources
        self.note(task, Outcome.REMARK if work.reasons else Outcome.MAPPED, work.reasons)

    def _notify(self, task: Task, resources: Sequence[Resource]) -> None:
        """Record the resources as subscriptions of the handlers."""
        context = self.context
        # The data of a name may be missing on systems that do not apply this child.
        is_child = self.manifest.path.rpartition("/")[2] != "manifest.yaml"
        has_open_name = is_child and any(has_expression(resource.name) for resource in resources)
        if any(resource.loop for resource in resources) or context.child_data or has_open_name:
            label = unique_name(slug(task.name or task.module), context.labels)
            for resource in resources:
                resource.label = label
        for handler in task.notify:
            references = context.notified.setdefault(handler, [])
            for resource in resources:
                if resource.reference not in references:
                    references.append(resource.reference)

    def propose(self, task: Task, reasons: Sequence[str], resources: Sequence[Resource] = ()) -> None:
        """Keep a task as a comment."""
        self.context.unmapped_notifications |= set(task.notify)
        comments = [f"Not mapped: {task.name or task.module} ({task.origin}, {task.module})"]
        comments += [f"Reason: {' '.join(reason.split())}." for reason in reasons]
        proposals = [msgspec.structs.replace(resource, disabled=True) for resource in resources]
        if not proposals:
            proposals = [Resource("", "", disabled=True)]
        proposals[0].comments = comments
        self.manifest.resources += proposals
        self.note(task, Outcome.UNMAPPED, reasons)

    def note(self, task: Task, outcome: Outcome, reasons: Sequence[str]) -> None:
        """Record the outcome of a task."""
        self.context.draft.remarks.append(
            Remark(task.origin, task.name or task.module, outcome, tuple(reasons), task.module)
        )

    # Loops.

    def loop_of(self, task: Task, work: Work) -> str:
        """Return the ``for`` of a task with a loop. Raises ``Untranslatable``."""
        kind, value = task.loop or ("loop", [])
        if task.index_variable:
            raise Untranslatable(f"the loop has the index variable {task.index_variable}")
        names = self.context.names if not task.variables else work.names
        names = msgspec.structs.replace(
            names,
            loop_variables=names.loop_variables - ({task.loop_variable} - self.context.names.loop_variables),
        )
        return f"{task.loop_variable} in {self._items(task, kind, value, names)}"

    def _items(self, task: Task, kind: str, value: Any, names: Names) -> str:
        """Return the list of a loop as an expression. Raises ``Untranslatable``."""
        if kind == "fileglob":
            return _literal_list(self._files(value))
        if kind == "dict":
            return _filtered(as_expression(value, names), "dict2items")
        if kind in ("nested", "cartesian") and isinstance(value, list) and len(value) > 1:
            first, *others = (as_expression(item, names) for item in value)
            return f"{_grouped(first)} | product({', '.join(others)}) | list"
        if kind == "together" and isinstance(value, list) and len(value) > 1:
            first, *others = (as_expression(item, names) for item in value)
            return f"{_grouped(first)} | zip({', '.join(others)}) | list"
        if kind == "subelements" and isinstance(value, list) and len(value) in (2, 3):
            return (
                f"{_grouped(as_expression(value[0], names))} | subelements({as_expression(value[1], names)})"
            )
        if kind not in ("loop", "items", "list", "flattened"):
            raise Untranslatable(f"the loop with_{kind} is unsupported")
        if isinstance(value, list):
            if kind in ("items", "flattened") and any(
                isinstance(item, str) and has_expression(item) for item in value
            ):
                if len(value) == 1:
                    return self._items(task, kind, value[0], names)
                return f"{as_expression(value, names)} | flatten"
            expression = as_expression(value, names)
            if len(expression) <= _FLOW_WIDTH:
                return expression
            words = slug(task.name or task.module).replace("-", "_")
            key = unique_name(f"items_of_{words}", set(self.manifest.data))
            self.manifest.data[key] = translate_value(value, names)
            return f"data.{key}"
        if isinstance(value, str) and not has_expression(value) and kind in ("items", "flattened"):
            # Old playbooks name a variable without braces.
            return as_expression(
                f"{{{{ {value} }}}}" if re.fullmatch(r"[a-z_]\w*", value) else [value], names
            )
        if not isinstance(value, str):
            raise Untranslatable("the loop lacks a list")
        return as_expression(value, names)

    def _files(self, value: Any) -> list[str]:
        """Return the files of the role that match ``with_fileglob``. Raises ``Untranslatable``."""
        patterns = value if isinstance(value, list) else [value]
        if any(
            not isinstance(pattern, str) or has_expression(pattern) or "/" in pattern.strip("/")
            for pattern in patterns
        ):
            raise Untranslatable("the loop with_fileglob depends on variables or directories")
        context = self.context
        files = []
        for folder in ("files", "templates"):
            start = "/".join(part for part in (context.directory, folder) if part)
            for path in context.tree.files(start):
                inner = path[len(start) + 1 :]
                if "/" not in inner and any(fnmatchcase(inner, pattern) for pattern in patterns):
                    files.append(f"{folder}/{inner}")
        if not files:
            raise Untranslatable("the files of with_fileglob are missing in the role")
        return files

    # Conditions.

    def _condition(self, condition: Any, resources: Sequence[Resource], work: Work) -> list[str]:
        """Return the conditions for ``control``. A condition on a result becomes a guard of commands."""
        if isinstance(condition, str):
            parts = conjuncts(condition)
            if len(parts) > 1 and any(self._result_of(part) for part in parts):
                return [text for part in parts for text in self._condition(part, resources, work)]
            if (name := self._result_of(condition)) is not None:
                self._guard(condition, name, resources)
                self.context.consumed.add(name)
                return []
        return [translate_condition(condition, work.names)]

    def _result_of(self, condition: str) -> str | None:
        """Return a registered variable in a condition, or ``None``."""
        names = set(
            re.findall(r"(?<![.\w'\"])([A-Za-z_]\w*)", re.sub(r"'[^']*'|\"[^\"]*\"", "''", condition))
        )
        return next((name for name in sorted(names) if name in self.context.registered), None)

    def _guard(self, condition: str, name: str, resources: Sequence[Resource]) -> None:
        """Replace a condition on a result by a guard with the same meaning. Raises ``Untranslatable``."""
        source = self.context.registered[name]
        reason = f"depends on {name}, the result of the task at {source.origin}"
        if source.loop is not None or any(resource.type != "exec" for resource in resources):
            raise Untranslatable(f"{reason}. A custom fact can replace it")
        text = re.sub(rf"\b{re.escape(name)}\b", "R", " ".join(condition.split()))
        for resource in resources:
            key, value = self._guard_of(text, source, reason)
            if key == "subscribe":
                resource.properties["refreshonly"] = True
                resource.properties.setdefault("subscribe", []).extend(value)
            elif key in resource.properties:
                raise Untranslatable(f"{reason}, and the command has the guard {key} already")
            else:
                resource.properties[key] = value

    def _guard_of(self, text: str, source: Task, reason: str) -> tuple[str, Any]:
        """Return the property and value of a guard. ``R`` in the text is the result. Raises ``Untranslatable``."""
        if text in _CHANGED:
            mapped = self.context.results.get(source.register, [])
            if not mapped or any(resource.loop for resource in mapped):
                raise Untranslatable(f"{reason}, which the draft does not contain")
            return "subscribe", [resource.reference for resource in mapped]
        if source.module == "stat" and not source.when:
            path = translate_text(
                str(source.arguments.get("path") or source.arguments.get("name") or ""), self.context.names
            )
            if path.startswith(("/", "{{")) and text in _MISSING:
                return "creates", path
            if path.startswith(("/", "{{")) and text in _EXISTS:
                return "onlyif", f"test -e {path}"
        is_tolerant = (
            source.keywords.get("failed_when") is False or source.keywords.get("ignore_errors") is True
        )
        if source.module == "command" and (source.is_query or is_tolerant) and not source.when:
            command = translate_text(source.command, self.context.names)
            if text in _FAILED and "\n" not in command:
                return "unless", command
            if text in _SUCCEEDED and "\n" not in command:
                return "onlyif", command
        raise Untranslatable(
            f"{reason}. A guard (`unless`, `onlyif`, `creates`) or a custom fact can replace it"
        )


_CHANGED: Final = frozenset(
    {"R.changed", "R is changed", "R|changed", "R | changed", "R.changed | bool", "R.changed == true"}
)
_EXISTS: Final = frozenset(
    {"R.stat.exists", "R.stat.exists | bool", "R.stat.exists == true", "R.stat.exists == True"}
)
_MISSING: Final = frozenset(
    {
        "not R.stat.exists",
        "not R.stat.exists | bool",
        "R.stat.exists == false",
        "R.stat.exists == False",
        "not (R.stat.exists)",
    }
)
_FAILED: Final = frozenset(
    {"R.rc != 0", "R is failed", "R|failed", "R | failed", "R.rc == 1", "R.failed", "R.rc > 0"}
)
_SUCCEEDED: Final = frozenset(
    {
        "R.rc == 0",
        "R is succeeded",
        "R is success",
        "R|success",
        "R | success",
        "not R.failed",
        "R is not failed",
    }
)


def _obstacles(task: Task) -> list[str]:
    """Return the reasons why Puller cannot run a task, whatever its module."""
    obstacles = []
    if task.keywords.get("delegate_to") not in (None, "{{ inventory_hostname }}"):
        obstacles.append(
            f"delegate_to: a host changes only itself ({shortened(task.keywords['delegate_to'])})"
        )
    if "local_action" in task.keywords:
        obstacles.append("local_action: a host changes only itself")
    if "never" in task.tags:
        obstacles.append("the tag never: the task runs only on request")
    if "rescue" in task.keywords:
        obstacles.append(
            "part of rescue: bundles lack error handlers. Rollbacks and health_checks replace it"
        )
    return obstacles


def with_variables(task: Task, names: Names) -> Names:
    """Return the names with the variables of a task. Raises ``Untranslatable``."""
    if not task.variables:
        return names
    inline = dict(names.inline)
    if task.loop is not None:
        names = names.with_loop(task.loop_variable)
    for name, value in task.variables.items():
        inline[name] = as_expression(value, msgspec.structs.replace(names, inline=inline))
    return msgspec.structs.replace(names, inline=inline)


def _apply_keywords(task: Task, resources: Sequence[Resource], work: Work) -> None:
    """Set the properties for keywords of the task, and note keywords without a counterpart."""
    for keyword, value in task.keywords.items():
        sentence = KEYWORDS.get(keyword, f"the keyword {keyword} is not mapped")
        if sentence and value not in (False, None):
            work.remark(sentence)
    for resource in resources:
        if task.keywords.get("no_log") is True:
            resource.properties["sensitive"] = True
        if resource.type == "exec":
            if task.environment:
                resource.properties["environment"] = _environment(task.environment, work)
            if task.become_user and task.become_user != "root":
                resource.properties["user"] = translate_text(task.become_user, work.names)
        elif (
            task.become_user
            and task.become_user != "root"
            and resource.type in ("file", "checkout", "archive")
        ):
            owner = translate_text(task.become_user, work.names)
            if resource.type == "checkout" or resource.properties.get("owner") == "root":
                resource.properties["owner"] = owner
    failed_when = task.keywords.get("failed_when")
    if failed_when not in (None, False) and any(resource.type == "exec" for resource in resources):
        work.remark(f"failed_when is not mapped: {shortened(failed_when)}. Use `returns` for exit statuses")
    changed_when = task.keywords.get("changed_when")
    if isinstance(changed_when, (str, list)) and any(resource.type == "exec" for resource in resources):
        work.remark("changed_when is not mapped. Add a guard that detects whether the command is required")
    elif (
        changed_when is not None
        and task.notify
        and not any(resource.type == "exec" for resource in resources)
    ):
        work.remark("changed_when is not mapped: each change of the resource refreshes its subscribers")
    if task.environment and not any(resource.type == "exec" for resource in resources):
        work.remark("environment is not mapped")


def _environment(value: Any, work: Work) -> Any:
    """Return the property for an environment. Raises ``Untranslatable``."""
    if isinstance(value, list):
        merged: dict[str, Any] = {}
        for item in value:
            if not isinstance(item, dict):
                raise Untranslatable("environment is not a mapping")
            merged |= item
        value = merged
    if not isinstance(value, Mapping):
        return _environment_expression(value, work)
    return [f"{name}={as_text(work.translated(item))}" for name, item in value.items()]


def _environment_expression(value: Any, work: Work) -> list[str]:
    """Return the property for an environment from a variable with a known value."""
    known = work.context.known.get(re.sub(r"^{{\s*(\w+)\s*}}$", r"\1", str(value)))
    if isinstance(known, Mapping):
        variable = re.sub(r"^{{\s*(\w+)\s*}}$", r"\1", str(value))
        return [f"{name}={{{{ data.{variable}['{name}'] }}}}" for name in known]
    work.remark("environment is a variable with unknown names")
    return []


def _literal_list(values: Sequence[str]) -> str:
    return f"[{', '.join(repr(value) for value in values)}]"


def _filtered(expression: str, name: str) -> str:
    return f"{_grouped(expression)} | {name}"


def _grouped(expression: str) -> str:
    """Return an expression in parentheses, unless a filter applies to all of it."""
    return (
        expression
        if re.fullmatch(r"[\w.|\[\]'() ]+|\{.*\}|\[.*\]", expression) and " if " not in expression
        else f"({expression})"
    )
