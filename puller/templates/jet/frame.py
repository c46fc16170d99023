"""The state of a Jet template while it renders.

* Code is compiled to functions of one :class:`Frame`. Each returns a value, or the text that it prints.
* Variables live in cells, and a new scope is a copy of the outer scope's cells: an assignment reaches the outer
  variable, a declaration does not.
* A block uses the variables of the place that yields it, and content uses the variables of the place that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from puller.templates.govalue.types import MISSING
from puller.templates.scope import TemplateScope
from puller.templates.template_errors import Budget

ROOT_NAMES: Final = frozenset(("facts", "data", "environ", "Facts", "Data", "Environ"))

Cells = dict[str, list[Any]]


class Content(NamedTuple):
    """The body of ``yield content``, which a yield passes to its block, with the variables and content of its place."""

    body: Output
    variables: Cells
    outer: Content | None


class Context(NamedTuple):
    """A value that becomes ``.``. ``is_dot`` marks ``.`` itself, which stays boxed if it was."""

    value: Value
    is_dot: bool


class BlockCode(NamedTuple):
    """A compiled block. A parameter without a default has ``None``. ``path`` is the template that defines it.

    ``context`` and ``content`` are for the run at the definition itself.
    """

    name: str
    parameters: tuple[tuple[str, Value | None], ...]
    context: Context | None
    body: Output
    content: Output | None
    signature: str
    path: str


class Program(NamedTuple):
    """A compiled template: the body to run (the extended template's, if any), and all its blocks."""

    body: Output
    blocks: Mapping[str, BlockCode]


class Frame:
    """The state of a rendering. ``boxed``: for Go, ``dot`` is *any value*, like the items of a list."""

    __slots__ = (
        "blocks",
        "boxed",
        "budget",
        "content",
        "dot",
        "functions",
        "load",
        "returned",
        "scope",
        "variables",
    )

    def __init__(
        self, dot: Any, functions: Mapping[str, Any], program: Program, load: Load, budget: Budget
    ) -> None:
        self.dot = dot
        self.boxed = False
        self.scope = dot if isinstance(dot, TemplateScope) else None
        self.functions = functions
        self.blocks = program.blocks
        self.load = load
        self.budget = budget
        self.variables: Cells = {}
        self.content: Content | None = None
        self.returned: Any = MISSING

    def inner(self, program: Program) -> Frame:
        """Return the frame of an included template, with the same variables and additional blocks."""
        frame = Frame(self.dot, self.functions, program, self.load, self.budget)
        frame.boxed = self.boxed
        frame.scope = self.scope
        frame.blocks = {**self.blocks, **program.blocks} if program.blocks else self.blocks
        frame.variables = self.variables  # declarations copy them first
        frame.content = self.content
        return frame

    def names(self) -> list[str]:
        """Return every defined name."""
        return [*self.variables, *(self.scope or ()), *self.functions]


Value = Callable[[Frame], Any]
"""Compiled expression."""

Output = Callable[[Frame], str]
"""Compiled statement or body: returns the text that it prints."""

Load = Callable[[str, str], Program | None]
"""Returns the template at a path, relative to another path, or ``None``. Raises TemplateError."""
