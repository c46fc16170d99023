"""The tree of a template: small frozen values.

The ``position`` of each node is an offset into the template's text, for messages.
"""

from __future__ import annotations

from typing import NamedTuple


class Dot(NamedTuple):
    """``.``."""

    position: int


class Nil(NamedTuple):
    """``nil``."""

    position: int


class Boolean(NamedTuple):
    """``true`` or ``false``."""

    position: int
    value: bool


class String(NamedTuple):
    """A quoted or raw string. ``value`` is without its quotes."""

    position: int
    value: str


class Number(NamedTuple):
    """A constant without a type. Each of the three values is set if the constant can be read that way."""

    position: int
    text: str
    integer: int | None
    real: float | None
    imaginary: complex | None

    @property
    def ideal(self) -> int | float | complex | None:
        """The constant without a required type, or ``None`` if it is too large for Go's ``int``."""
        if self.imaginary is not None:
            return self.imaginary
        is_hexadecimal = self.text[:2] in ("0x", "0X") and "p" not in self.text.lower()
        if not is_hexadecimal and self.text[0] != "'" and any(c in ".eEpP" for c in self.text):
            return self.real
        return self.integer


class Identifier(NamedTuple):
    """The name of a function."""

    position: int
    name: str


class Field(NamedTuple):
    """``.a.b``: fields of dot."""

    position: int
    path: tuple[str, ...]


class Variable(NamedTuple):
    """``$x.a.b``: a variable, ``$`` included in its name, and fields of its value."""

    position: int
    name: str
    path: tuple[str, ...] = ()


class Chain(NamedTuple):
    """``(pipeline).a.b``, or a function's name before the fields."""

    position: int
    operand: Operand
    path: tuple[str, ...]


class Command(NamedTuple):
    """A first word and its arguments."""

    position: int
    words: tuple[Operand, ...]


class Pipeline(NamedTuple):
    """Commands, each the last argument of the next. ``declared`` variables take the result.

    ``assigns`` is true for ``=`` and false for ``:=``.
    """

    position: int
    declared: tuple[str, ...]
    assigns: bool
    commands: tuple[Command, ...]


Operand = Dot | Nil | Boolean | String | Number | Identifier | Field | Variable | Chain | Pipeline


class Text(NamedTuple):
    """Text outside of actions."""

    position: int
    text: str


class Action(NamedTuple):
    """A pipeline that is printed, unless it declares or assigns a variable."""

    position: int
    pipeline: Pipeline


class Branch(NamedTuple):
    """``if`` and ``with``, with an arm for each ``else if``. ``with`` sets dot to the value.

    A plain ``else`` is the last arm, without a pipeline.
    """

    position: int
    sets_dot: bool
    arms: tuple[tuple[Pipeline | None, Body], ...]


class Range(NamedTuple):
    """``range``: ``body`` for each element of the pipeline's value, ``otherwise`` for an empty value."""

    position: int
    pipeline: Pipeline
    body: Body
    otherwise: Body


class Break(NamedTuple):
    """``break``: leaves the innermost ``range``."""

    position: int


class Continue(NamedTuple):
    """``continue``: the next element of the innermost ``range``."""

    position: int


class Call(NamedTuple):
    """``{{ template "name" pipeline }}``. Without a pipeline, dot is *no value* there."""

    position: int
    name: str
    pipeline: Pipeline | None


Node = Text | Action | Branch | Range | Break | Continue | Call
Body = tuple[Node, ...]


def is_blank(body: Body) -> bool:
    """Return whether a body contains only white space: such a definition never replaces another one."""
    return all(isinstance(node, Text) and not node.text.strip() for node in body)
