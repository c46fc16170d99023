"""The state of one rendering: its output, its functions, its budget, its variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from puller.templates.govalue.types import MISSING
from puller.templates.limits import Budget, Pieces
from puller.templates.template_errors import FunctionError

_CHARACTERS_PER_ITEM: Final = 8  # what an item of a list takes of the memory that the limit is about


class Rendering:
    """One file being rendered, or one partial: where its text goes, and what its functions may reach."""

    __slots__ = ("_pieces", "budget", "environ", "functions", "texts")

    def __init__(
        self, functions: Mapping[str, Callable[..., Any]], environ: Mapping[str, Any], budget: Budget
    ) -> None:
        self.functions = functions
        self.environ = environ
        self.budget = budget
        self.texts: list[str] = []
        """What was written last; loops and calls see to it that it is gathered."""
        self._pieces = Pieces(budget)

    def gather(self) -> None:
        """Count what was written. Raises Exceeded when there is too much of it."""
        self._pieces.take(self.texts)

    def text(self) -> str:
        """All that was written. Raises Exceeded when it is too much."""
        self.gather()
        return self._pieces.joined()

    def spend(self, result: str | list[Any]) -> None:
        """Count a long result of a function. Raises Exceeded when there was too much of it."""
        self.budget.spend(len(result) if isinstance(result, str) else _CHARACTERS_PER_ITEM * len(result))

    def allow(self, characters: int) -> None:
        """Before a function makes a text of this length from a shorter one. Raises Exceeded when it is too long."""
        if characters > self.budget.limits.characters:
            self.budget.spend(characters)

    def host(self, name: str) -> Callable[..., Any]:
        """A function that whoever renders has given. Raises FunctionError when there is none."""
        try:
            return self.functions[name]
        except KeyError:
            raise FunctionError(f"{name} is not available here") from None


class Frame:
    """The variables of one call of one template, ``$`` first, and what they are rendered into."""

    __slots__ = ("rendering", "variables", "write")

    def __init__(self, rendering: Rendering, dot: Any, size: int) -> None:
        self.rendering = rendering
        self.write = rendering.texts.append
        self.variables = [MISSING] * size
        self.variables[0] = dot
