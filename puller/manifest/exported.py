"""The exports of a manifest on one host: its expressions resolved, each value held to its type.

* What a host cannot give is told, by each run, and not exported; its resources are applied all the same.
* A secret is never exported.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foundation.formatting import prefixed
from foundation.problems import Problem, ProblemCode
from hiera.errors import HieraError
from hiera.expressions.expressions import Scope, depends_of_value, resolve_tree
from hiera.values.secrets import has_secret
from puller.values.exports import Export, find_problem

if TYPE_CHECKING:
    from puller.manifest.reading import ManifestText


def exported_values(
    text: "ManifestText", declared: Mapping[str, Export], scope: Scope
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values by name, and a problem for each export without a value on this host."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, export in declared.items():
        value, problem = _value(name, export, scope)
        if problem is not None:
            problems.append(text.problems.placed(problem, (*text.run_path, "exports", name)))
        else:
            values[name] = value
    if message := find_problem(values):
        path = (*text.run_path, "exports")
        return {}, [*problems, text.problems.problem(path, message, code=ProblemCode.INVALID_EXPORT)]
    return values, problems


def _value(name: str, export: Export, scope: Scope) -> tuple[Any, Problem | None]:
    try:
        value = resolve_tree(export.value, scope)
    except HieraError as error:
        return None, prefixed(error.problems[0], f"exports.{name} cannot be had on this host")
    if has_secret(value):
        message = f"exports.{name} is a secret, which is never exported"
        return None, Problem(code=ProblemCode.EXPOSED_SECRET, message=message, name=name)
    value = list(value) if isinstance(value, tuple) else value
    if not (what := export.type.problem(value)):
        return value, None
    on = depends_of_value(export.value)
    message = f"exports.{name} {what}"
    return value, Problem(code=ProblemCode.INVALID_EXPORT, message=message, name=name, depends_on=on)
