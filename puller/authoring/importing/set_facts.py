"""Variables that tasks set with ``set_fact``, as data of the manifest.

* Each definition becomes one expression with its condition. Its other branch is the earlier definition or the default.
* A definition that depends on its own earlier value requires a default.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from puller.authoring.importing.draft import Draft, ManifestDraft, Outcome
from puller.authoring.importing.expressions import (
    Names,
    Untranslatable,
    all_of,
    as_expression,
    conjuncts,
    translate_condition,
    translate_value,
)
from puller.authoring.importing.mapping import TaskMapper
from puller.authoring.importing.tasks import RoleContext, Task
from puller.authoring.importing.variables import Variables


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
