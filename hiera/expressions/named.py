"""Values whose expressions only name facts, data and the environment: what they give follows from what they name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hiera.errors import HieraError
from hiera.expressions.expressions import ROOTS, Constant, Expression, Lookup, Name, parse


def named_in(value: Any) -> frozenset[str] | None:
    """The expressions in a value that name something; ``None`` when another kind of expression is in it, too.

    Each is as ``evaluate`` takes it. Mapping keys hold no expressions (``resolve_tree``).
    """
    found: set[str] = set()
    try:
        for expression in _expressions(value):
            match expression:
                case Constant():
                    continue
                case Name() | Lookup() if expression.root in ROOTS:
                    found.add(expression.source)
                case _:
                    return None
    except HieraError:  # it is none that could be read
        return None
    return frozenset(found)


def _expressions(value: Any) -> Iterator[Expression]:
    """Raises ``HieraError``."""
    if isinstance(value, str):
        if "{{" in value:
            yield from (piece for piece in parse(value) if isinstance(piece, Expression))
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _expressions(item)
