"""The state of one rendering: its output, its functions, its budget, its variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from puller.templates.govalue.types import MISSING
from puller.templates.limits import Budget, Pieces
from puller.templates.template_errors import FunctionError

_CHARACTERS_PER_ITEM: Final = 8  # memory of a list item, in characters


class Rendering:
    """The rendering of a file or partial: its output, and the functions that it can use."""

    __slots__ = ("_pieces", "budget", "environ", "functions", "texts")

    def __init__(
        self, functions: Mapping[str, Callable[..., Any]], environ: Mapping[str, Any], budget: Budget
    ) -> None:
        self.functions = functions
        self.environ = environ
        self.budget = budget
        self.texts: list[str] = []
        """The latest output. Loops and calls gather it."""
        self._pieces = Pieces(budget)

    def gather(self) -> None:
        """Count the latest output. Raises Exceeded if it is too much."""
        self._pieces.take(self.texts)

    def text(self) -> str:
        """Return the whole output. Raises Exceeded if it is too much."""
        self.gather()
        return self._pieces.joined()

    def spend(self, result: str | list[Any]) -> None:
        """Count a long result of a function. Raises Exceeded if it is too much."""
        self.budget.spend(len(result) if isinstance(result, str) else _CHARACTERS_PER_ITEM * len(result))

    def allow(self, characters: int) -> None:
        """Check the length of a text before a function expands a shorter one. Raises Exceeded if it is too long."""
        if characters > self.budget.limits.characters:
            self.budget.spend(characters)

    def host(self, name: str) -> Callable[..., Any]:
        """Return a function of the renderer. Raises FunctionError if it does not exist."""
        try:
            return self.functions[name]
        except KeyError:
            raise FunctionError(f"{name} is not available here") from None


class Frame:
    """The variables of one call of a template, ``$`` first, and the output of the call."""

    __slots__ = ("rendering", "variables", "write")

    def __init__(self, rendering: Rendering, dot: Any, size: int) -> None:
        self.rendering = rendering
        self.write = rendering.texts.append
        self.variables = [MISSING] * size
        self.variables[0] = dot
