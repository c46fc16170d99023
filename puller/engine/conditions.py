"""Whether a resource is managed at all: its ``control``, and that of the child manifests that it is in.

``managed = if and not unless``; an absent ``if`` is true, an absent ``unless`` false (``resources.md`` section 2).
"""

from hiera.expressions.expressions import Scope, evaluate
from puller.errors import ResourceError
from puller.manifest.declaration import Declaration


def why_unmanaged(declaration: Declaration) -> str:
    """Why a resource, or a child manifest that it is in, is not managed; empty when all are.

    Raises ``ResourceError`` and ``HieraError`` for a condition that is neither true nor false.
    """
    if declaration.properties.control is None and declaration.home.parent is None:
        return ""
    for level in (declaration, *declaration.parents()):
        if why := _why_not(level):
            return why if level is declaration else f"{level.reference}: {why}"
    return ""


def _why_not(declaration: Declaration) -> str:
    control, scope = declaration.properties.control, declaration.home.scope
    if control is None:
        return ""
    if control.if_ is not None and not _holds("if", control.if_, scope):
        return f"control: if {control.if_} is false"
    if control.unless is not None and _holds("unless", control.unless, scope):
        return f"control: unless {control.unless} is true"
    return ""


def _holds(name: str, condition: str | bool, scope: Scope) -> bool:
    if isinstance(condition, bool):
        return condition
    value = evaluate(condition, scope)
    if not isinstance(value, bool):
        raise ResourceError(f"control: {name} {condition} gives {value!r}, wanted true or false")
    return value
