"""The parse tree of a Jet template.

* A node never changes. ``offset`` is its start in the template, for messages.
* ``str(node)`` of an expression is its source text with normalised spaces.
"""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """A single ``.name`` of a chain."""

    name: str
    offset: int


class Literal(NamedTuple):
    """A number (always a float), string or boolean, with its source ``text``."""

    offset: int
    value: float | str | bool
    text: str

    def __str__(self) -> str:
        return self.text


class Nil(NamedTuple):
    """``nil``."""

    offset: int

    def __str__(self) -> str:
        return "nil"


class Name(NamedTuple):
    """A variable, ``facts`` and similar names, or a function."""

    offset: int
    name: str

    def __str__(self) -> str:
        return self.name


class Dot(NamedTuple):
    """``.``, the current context."""

    offset: int

    def __str__(self) -> str:
        return "."


class Underscore(NamedTuple):
    """``_``: discards in an assignment, takes the piped value in a call."""

    offset: int

    def __str__(self) -> str:
        return "_"


class Field(NamedTuple):
    """``.a.b``: keys of the context, all required."""

    offset: int
    keys: tuple[Key, ...]

    def __str__(self) -> str:
        return "".join(f".{key.name}" for key in self.keys)


class Chain(NamedTuple):
    """``base.a.b``: keys of a value. The last key may be missing."""

    offset: int
    base: Expression
    keys: tuple[Key, ...]

    def __str__(self) -> str:
        return str(self.base) + "".join(f".{key.name}" for key in self.keys)


class Index(NamedTuple):
    """``base[position]``."""

    offset: int
    base: Expression
    position: Expression

    def __str__(self) -> str:
        return f"{self.base}[{self.position}]"


class Slice(NamedTuple):
    """``base[start:end]``, with ``None`` for an open bound."""

    offset: int
    base: Expression
    start: Expression | None
    end: Expression | None

    def __str__(self) -> str:
        return f"{self.base}[{self.start or ''}:{self.end or ''}]"


class Arguments(NamedTuple):
    """Arguments of a call. ``slot`` is true if an argument is ``_``."""

    expressions: tuple[Expression, ...]
    slot: bool

    def __str__(self) -> str:
        return ", ".join(map(str, self.expressions))


class Call(NamedTuple):
    """``base(arguments)``."""

    offset: int
    base: Expression
    arguments: Arguments

    def __str__(self) -> str:
        return f"{self.base}({self.arguments})"


class Sign(NamedTuple):
    """``-operand`` or ``+operand``."""

    offset: int
    operator: str
    operand: Expression

    def __str__(self) -> str:
        return f"{self.operator}{self.operand}"


class Not(NamedTuple):
    """``!operand``."""

    offset: int
    operand: Expression

    def __str__(self) -> str:
        return f"!{self.operand}"


class Binary(NamedTuple):
    """``left operator right``. ``offset`` is the operator's. ``and`` and ``or`` are ``&&`` and ``||``."""

    offset: int
    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


class Ternary(NamedTuple):
    """``condition ? yes : no``."""

    offset: int
    condition: Expression
    yes: Expression
    no: Expression

    def __str__(self) -> str:
        return f"{self.condition} ? {self.yes} : {self.no}"


Expression = (
    Literal
    | Nil
    | Name
    | Dot
    | Underscore
    | Field
    | Chain
    | Index
    | Slice
    | Call
    | Sign
    | Not
    | Binary
    | Ternary
)
Target = Name | Dot | Underscore | Field | Chain


class Command(NamedTuple):
    """A part of a pipeline: a value, or a function with ``arguments`` (``None`` if absent)."""

    offset: int
    base: Expression
    arguments: Arguments | None


class Assignment(NamedTuple):
    """``targets := values`` (``declares``) or ``targets = values``. ``looks_up``: ``value, found := map[key]``."""

    offset: int
    declares: bool
    targets: tuple[Target, ...]
    values: tuple[Expression, ...]
    looks_up: bool


class Text(NamedTuple):
    """Text outside of actions."""

    text: str


class Action(NamedTuple):
    """An assignment, a pipeline to print, or an assignment before a pipeline."""

    offset: int
    assignment: Assignment | None
    pipeline: tuple[Command, ...]


class If(NamedTuple):
    """``if``, with an optional assignment before the condition."""

    offset: int
    assignment: Assignment | None
    condition: Expression
    body: Body
    otherwise: Body | None


class Range(NamedTuple):
    """``range expression`` or ``range targets := expression``."""

    offset: int
    declares: bool
    targets: tuple[Target, ...]
    expression: Expression
    body: Body
    otherwise: Body | None


class Parameter(NamedTuple):
    """A parameter of a block or an argument of a yield. The name of a positional argument is empty."""

    offset: int
    name: str
    value: Expression | None

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.name and self.value else self.name or str(self.value)


class Block(NamedTuple):
    """``block``: a definition that also runs. ``content`` is passed to this run."""

    offset: int
    name: str
    parameters: tuple[Parameter, ...]
    context: Expression | None
    body: Body
    content: Body | None


class Yield(NamedTuple):
    """``yield name(arguments) context content``."""

    offset: int
    name: str
    arguments: tuple[Parameter, ...]
    context: Expression | None
    content: Body | None


class YieldContent(NamedTuple):
    """``yield content``: the body that was passed to the block."""

    offset: int
    context: Expression | None


class Include(NamedTuple):
    """``include path context``."""

    offset: int
    path: Expression
    context: Expression | None


class Return(NamedTuple):
    """``return value``."""

    offset: int
    value: Expression


class Catch(NamedTuple):
    """``catch name``: runs when the body of ``try`` fails. The name may be empty."""

    offset: int
    name: str
    body: Body


class Try(NamedTuple):
    """``try``: prints its complete output, or nothing."""

    offset: int
    body: Body
    catch: Catch | None


Statement = Text | Action | If | Range | Block | Yield | YieldContent | Include | Return | Try
Body = tuple[Statement, ...]


class Reference(NamedTuple):
    """``extends "path"`` or ``import "path"`` at the top of a template."""

    offset: int
    path: str


class Tree(NamedTuple):
    """A whole template. ``blocks`` has the last definition of each name, anywhere in the text."""

    extends: Reference | None
    imports: tuple[Reference, ...]
    body: Body
    blocks: dict[str, Block]
