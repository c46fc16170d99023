"""A text that is resolved for each item of a loop. Constant parts are resolved once."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from hiera.errors import HieraError
from hiera.expressions.expressions import Constant, Expression, Lookup, Name, Scope, joined, parse
from hiera.values.plain import parse_path
from hiera.values.secrets import Secret


class Repeated:
    """A text with expressions. Its results and errors are the same as from ``resolve``."""

    __slots__ = ("_pieces", "_single")

    def __init__(self, text: str, scope: Scope, names: Container[str]) -> None:
        """``names`` have other values each time. All other names have the values in ``scope``."""
        pieces = parse(text)
        self._single = pieces[0] if len(pieces) == 1 and isinstance(pieces[0], Expression) else None
        self._pieces: list[str | Secret | Expression] = []
        for piece in (_known(one, scope, names) for one in pieces):
            if isinstance(piece, str) and self._pieces and isinstance(self._pieces[-1], str):
                self._pieces[-1] += piece
            else:
                self._pieces.append(piece)

    def value(self, scope: Scope) -> Any:
        """Return the value in a scope."""
        if self._single is not None:
            return self._single.value(scope)
        return joined(
            [piece.text(scope) if isinstance(piece, Expression) else piece for piece in self._pieces]
        )


def _known(piece: str | Expression, scope: Scope, names: Container[str]) -> str | Secret | Expression:
    """Return the text of a constant expression. A failing or changing expression is returned unchanged."""
    try:
        if isinstance(piece, Expression) and _is_same(piece, names):
            return piece.text(scope)
    except HieraError:
        pass
    return piece


def _is_same(expression: Expression, names: Container[str]) -> bool:
    """Return whether the expression is obviously independent of ``names``."""
    match expression:
        case Constant():
            return True
        case Name(steps=(root, *_)):
            return root not in names
        case Lookup(path=path):
            return parse_path(path)[0] not in names
    return False
