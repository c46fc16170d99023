"""The exports of a manifest on one host: its expressions resolved, each value held to its type.

* What a host cannot give is told, by each run, and not exported; its resources are applied all the same.
* A secret is never exported.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hiera.errors import HieraError
from hiera.expressions.expressions import Scope, resolve_tree
from hiera.values.secrets import has_secret
from puller.values.exports import Export, find_problem

if TYPE_CHECKING:
    from puller.manifest.reading import ManifestText


NEVER = "is a secret, which is never exported"


def exported_values(
    text: "ManifestText", declared: Mapping[str, Export], scope: Scope
) -> tuple[dict[str, Any], list[str]]:
    """The values by name, and a sentence for each that there is not."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, export in declared.items():
        value, problem = _value(export, scope)
        if problem:
            place = (*text.run_path, "exports", name)
            problems.append(text.problems.worded(place, f"exports.{name} {problem}"))
        else:
            values[name] = value
    if problem := find_problem(values):
        return {}, [*problems, text.problems.worded((*text.run_path, "exports"), problem)]
    return values, problems


def _value(export: Export, scope: Scope) -> tuple[Any, str]:
    try:
        value = resolve_tree(export.value, scope)
    except HieraError as error:
        return None, f"cannot be had on this host: {error}"
    if has_secret(value):
        return None, NEVER
    value = list(value) if isinstance(value, tuple) else value
    return value, export.type.problem(value)
