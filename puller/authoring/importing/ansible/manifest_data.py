"""Data of the manifest that no file of variables sets.

* Each ``set_fact`` becomes one expression with its condition. Its other branch is the earlier definition or the
  default. A definition that depends on its own earlier value requires a default.
* Facts that templates name become data of the manifest, so that templates stay unchanged.
* A variable without a value becomes null in the data, unless an expression accepts a missing variable.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from jinja2 import Environment, TemplateError, meta

from puller.authoring.importing.ansible.jinja_expressions import (
    Names,
    as_expression,
    translate_condition,
    translate_value,
)
from puller.authoring.importing.ansible.mapping import TaskMapper
from puller.authoring.importing.ansible.tasks import RoleContext, Task, table
from puller.authoring.importing.ansible.variables import Variables
from puller.authoring.importing.draft import Draft, ManifestDraft, Outcome
from puller.authoring.importing.written_expressions import Untranslatable, all_of, conjuncts


class _Definition(msgspec.Struct, frozen=True):
    """A variable after one ``set_fact``."""

    combined: str
    """The expression with all earlier definitions."""
    plain: Any
    """The translated value, if it has neither a condition nor an earlier value."""
    is_default: bool
    """Whether the task runs only if the variable is undefined."""
    is_partial: bool
    """Whether the variable is null on some systems."""


class SetFacts:
    """The definitions of all variables that tasks set."""

    def __init__(self, draft: Draft, variables: Variables, names: Names) -> None:
        self.draft = draft
        self.variables = variables
        self.names = names
        self._definitions: dict[str, list[_Definition]] = {}

    def add(self, task: Task, context: RoleContext, mapper: TaskMapper) -> None:
        """Record the variables of a ``set_fact``."""
        values = {key: value for key, value in task.arguments.items() if key != "cacheable"}
        try:
            definitions = self._definitions_of(task, values, context.names)
        except Untranslatable as error:
            mapper.propose(task, [str(error)])
            missing = [
                name
                for name in values
                if name not in self._definitions and name not in self.variables.known()
            ]
            context.names = context.names.with_registered(*missing)
            return
        for name, definition in definitions.items():
            self._definitions.setdefault(name, []).append(definition)
        self.draft.note(
            task.origin, task.name or f"set_fact {', '.join(values)}", Outcome.MAPPED, "", "set_fact"
        )

    def _definitions_of(self, task: Task, values: Mapping[str, Any], names: Names) -> dict[str, _Definition]:
        """Return the variables of a task by name. Raises ``Untranslatable``."""
        if task.loop is not None:
            raise Untranslatable("a variable that a loop collects. Write an expression with filters in data")
        return {name: self._definition(task, name, value, names) for name, value in values.items()}

    def _definition(self, task: Task, name: str, value: Any, names: Names) -> _Definition:
        """Return a variable after this task. Raises ``Untranslatable``."""
        parts = [
            part
            for condition in task.when
            for part in (conjuncts(condition) if isinstance(condition, str) else [condition])
        ]
        others = [part for part in parts if not _tests_absence(part, name)]
        earlier = self._definitions.get(name)
        base = earlier[-1].combined if earlier else self._default_of(name)
        inline = {} if base is None else {name: base}
        own = msgspec.structs.replace(names, inline={**names.inline, **inline})
        for variable, item in task.variables.items():
            inline[variable] = as_expression(item, own)
            own = msgspec.structs.replace(names, inline={**names.inline, **inline})
        if base is None and any(re.search(rf"\b{re.escape(name)}\b", str(text)) for text in (value, *others)):
            raise Untranslatable(f"{name} depends on its own earlier value, which lacks a default")
        control = all_of([translate_condition(part, own) for part in others])
        expression = as_expression(value, own)
        is_default = len(others) < len(parts)
        is_plain = not control and not inline
        if control:
            alternative = "none" if base is None else base
            alternative = f"({alternative})" if " if " in alternative else alternative
            combined = f"{expression} if {control} else {alternative}"
        else:
            combined = expression
        return _Definition(
            combined,
            translate_value(value, own) if is_plain else None,
            is_default,
            base is None and bool(control),
        )

    def _default_of(self, name: str) -> str | None:
        """Return the default of a variable as an expression, or ``None``. Raises ``Untranslatable``."""
        values = self.variables.defaults
        if name not in values:
            return None
        return as_expression(values[name], self.names)

    def add_to(self, manifest: ManifestDraft) -> None:
        """Add the last definition of each variable to the data of the manifest."""
        for name, definitions in sorted(self._definitions.items()):
            last = definitions[-1]
            if not all(definition.is_default for definition in definitions):
                # The task overrides the default, so the derived value replaces it.
                self.variables.defaults.pop(name, None)
            manifest.data[name] = last.plain if last.plain is not None else f"{{{{ {last.combined} }}}}"
            if definitions[0].is_partial:
                self.draft.check(
                    f"The variable {name} is null on systems that no condition of its set_fact selects."
                )


def _tests_absence(condition: Any, name: str) -> bool:
    """Return whether a condition only tests that a variable is undefined."""
    return isinstance(condition, str) and bool(
        re.fullmatch(rf"\(?\s*{re.escape(name)}\s+is\s+(not\s+defined|undefined)\s*\)?", condition.strip())
    )


_TEMPLATE_NAMES: Final = frozenset(
    {
        "facts",
        "data",
        "environ",
        "lookup",
        "query",
        "q",
        "range",
        "dict",
        "undef",
        "omit",
        "now",
        "item",
        "loop",
    }
    | {"hostvars", "groups", "group_names", "inventory_hostname", "cycler", "joiner", "namespace", "lipsum"}
    | {"role_name", "role_path", "playbook_dir", "template_path", "template_host", "template_uid", "vars"}
)
"""Names that Ansible and Jinja2 define in templates."""
MANAGED: Final = "Managed by Puller"
"""The value of ``ansible_managed``."""
_MANAGED: Final = f"`ansible_managed` is {MANAGED!r} in templates."
_ALWAYS_PRESENT: Final = (
    "facts.os.name",
    "facts.os.family",
    "facts.os.release",
    "facts.os.hardware",
    "facts.kernel",
    "facts.networking.hostname",
    "facts.networking.fqdn",
)
"""Prefixes of facts that every host has."""


def add_facts_of_templates(draft: Draft, top: ManifestDraft, variables: Variables, names: Names) -> None:
    """Add the facts that templates name to the data, so that templates stay unchanged."""
    data = top.data
    facts = table()["facts"]
    for path, content in sorted(draft.files.items()):
        if "templates/" not in path:
            continue
        try:
            text = content.decode()
        except UnicodeDecodeError:
            continue
        for match in re.finditer(
            r"(?<![\w.'\"])(ansible_\w+|inventory_hostname\w*|group_names|hostvars|groups)((?:\.\w+|\[['\"]\w+['\"]\])*)",
            text,
        ):
            name, steps = match[1], re.findall(r"\w+", match[2])
            if name in ("hostvars", "groups"):
                if "{{" in text or "{%" in text:
                    draft.check(f"{path} reads {name}, which contains other hosts. Use exports.")
                continue
            if name in names.constants:
                if name == "ansible_managed":
                    draft.assume(_MANAGED)
                data.setdefault(
                    name,
                    f"{{{{ {names.constants[name]} }}}}" if name != "ansible_managed" else MANAGED,
                )
                continue
            keys = steps if name == "ansible_facts" else [name.removeprefix("ansible_"), *steps]
            known = next(
                (keys[:count] for count in range(len(keys), 0, -1) if ".".join(keys[:count]) in facts),
                None,
            )
            if known is None:
                if name in variables.defaults:
                    continue
                draft.check(f"{path} reads the fact {'.'.join(keys) or name}, which Puller lacks.")
                continue
            expression = f"{{{{ {_optional(facts['.'.join(known)])} }}}}"
            place = [name, *known] if name == "ansible_facts" else [name, *known[1:]]
            _set_path(data, place, expression)


def declare_missing(draft: Draft, top: ManifestDraft, variables: Variables, names: Names) -> None:
    """Declare variables without a value as null, unless an expression accepts a missing variable."""
    known = {key for manifest in draft.manifests.values() for key in manifest.data}
    known |= {key for values in top.overrides.values() for key in values}
    known |= {key for level in variables.levels() for values in level.files.values() for key in values}
    texts = [manifest.text() for manifest in draft.manifests.values()]
    loops = {
        word
        for manifest in draft.manifests.values()
        for entry in manifest.resources
        for word in re.findall(r"\w+", entry.loop.partition(" in ")[0])
    }
    passed = {
        str(key)
        for manifest in draft.manifests.values()
        for entry in manifest.resources
        if entry.type == "apply"
        for key in entry.properties.get("data", {})
    }
    used = {name for text in texts for name in re.findall(r"\bdata\.([A-Za-z_]\w*)", _without_comments(text))}
    used |= {
        name
        for level in variables.levels()
        for values in level.files.values()
        for text in _texts_of(values)
        for name in re.findall(r"%{(?:alias|lookup)\('(\w+)", text)
    }
    for path, content in draft.files.items():
        if "templates/" in path and (text := content.decode(errors="replace")):
            texts.append(text)
            used |= _names_of_template(text)
    everything = "\n".join(texts)
    for name in sorted(used - known - loops - passed - _TEMPLATE_NAMES):
        if name.startswith("ansible_") or name in names.constants:
            continue
        guarded = (
            rf"\b{name}\b(?:\.\w+|\[[^\]]*\])*\s*(?:\|\s*(?:d|default)\b|is\s+(?:not\s+)?(?:un)?defined)"
        )
        if re.search(guarded, everything):
            continue
        top.data[name] = None
        draft.check(f"The source sets no value for the variable {name}. Set it in the data.")


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _texts_of(value: Any) -> Iterator[str]:
    """Yield the texts in a value. An expression becomes a lookup of its first name, as in the Hiera tree."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_of(item)
    elif isinstance(value, str):
        yield re.sub(r"{{\s*(\w+)", r"%{lookup('\1", value) if "{{" in value else value


def _names_of_template(text: str) -> set[str]:
    """Return the names that a template uses and does not set."""
    try:
        return meta.find_undeclared_variables(Environment().parse(text))  # noqa: S701  it renders nothing
    except (TemplateError, RecursionError):
        return set()


def _optional(expression: str) -> str:
    """Return an expression that is empty on hosts without the fact."""
    if re.fullmatch(r"facts[\w.]+", expression) and not expression.startswith(_ALWAYS_PRESENT):
        return f"lookup('{expression}', '')"
    return expression


def _set_path(data: dict[str, Any], place: Sequence[str], value: Any) -> None:
    """Set a nested value unless it, or a part of its path, has a value already."""
    current = data
    for key in place[:-1]:
        inner = current.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        current = inner
    current.setdefault(place[-1], value)
