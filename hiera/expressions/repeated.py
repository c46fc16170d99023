"""A text that is resolved many times, for each item of a loop: what is the same for all of them is done once."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from hiera.errors import HieraError
from hiera.expressions.expressions import Constant, Expression, Lookup, Name, Scope, joined, parse
from hiera.values.data_paths import parse_path
from hiera.values.secrets import Secret


class Repeated:
    """A text with expressions. Gives what ``resolve`` gives for it, and raises what that raises."""

    __slots__ = ("_pieces", "_single")

    def __init__(self, text: str, scope: Scope, names: Container[str]) -> None:
        """``names`` are those with other values each time; all others have those of ``scope``."""
        pieces = parse(text)
        self._single = pieces[0] if len(pieces) == 1 and isinstance(pieces[0], Expression) else None
        self._pieces: list[str | Secret | Expression] = []
        for piece in (_known(one, scope, names) for one in pieces):
            if isinstance(piece, str) and self._pieces and isinstance(self._pieces[-1], str):
                self._pieces[-1] += piece
            else:
                self._pieces.append(piece)

    def value(self, scope: Scope) -> Any:
        """The value in a scope."""
        if self._single is not None:
            return self._single.value(scope)
        return joined([one.text(scope) if isinstance(one, Expression) else one for one in self._pieces])


def _known(piece: str | Expression, scope: Scope, names: Container[str]) -> str | Secret | Expression:
    """The text of an expression that is the same each time; else itself, as what fails does so each time."""
    try:
        if isinstance(piece, Expression) and _is_same(piece, names):
            return piece.text(scope)
    except HieraError:
        pass
    return piece


def _is_same(expression: Expression, names: Container[str]) -> bool:
    """Whether it does not depend on ``names``, as far as that is plain to see."""
    match expression:
        case Constant():
            return True
        case Name(steps=(root, *_)):
            return root not in names
        case Lookup(path=path):
            return parse_path(path)[0] not in names
    return False
