"""The syntax tree of the Puppet language.

* Each node has the line of its first token, from 1.
* A text with ``${…}`` is a list of parts. The lexer reads the text, and the parser reads the inner expressions.
"""

from enum import Enum
from typing import Any

import msgspec


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the tree."""

    line: int = 0


class Default(Enum):
    """The keyword ``default``."""

    DEFAULT = "default"


class Literal(Node, frozen=True):
    """A number, a boolean, ``undef``, ``default``, or a text without ``${…}``."""

    value: Any
    bare: bool = False
    """Whether a text is a word without quotes."""


class Text(Node, frozen=True):
    """A text with inner expressions."""

    parts: tuple["str | Node", ...]


class Regex(Node, frozen=True):
    """A regular expression of Ruby."""

    pattern: str


class Variable(Node, frozen=True):
    """A variable, without ``$`` and without leading ``::``."""

    name: str


class TypeName(Node, frozen=True):
    """A word with a capital letter, such as ``File`` or ``Apache::Vhost``."""

    name: str


class ListLiteral(Node, frozen=True):
    """``[a, b]``."""

    items: tuple[Node, ...]


class HashLiteral(Node, frozen=True):
    """``{a => b}``."""

    pairs: tuple[tuple[Node, Node], ...]


class Access(Node, frozen=True):
    """``target[key]``."""

    target: Node
    keys: tuple[Node, ...]


class Unary(Node, frozen=True):
    """``!x``, ``-x`` or ``*x``."""

    operator: str
    operand: Node


class Binary(Node, frozen=True):
    """Two operands with an operator."""

    operator: str
    left: Node
    right: Node


class Selector(Node, frozen=True):
    """``subject ? {value => result}``."""

    subject: Node
    options: tuple[tuple[Node, Node], ...]


class Parameter(Node, frozen=True):
    """A parameter of a class, define, lambda or template."""

    name: str
    type: Node | None = None
    default: Node | None = None


class Lambda(Node, frozen=True):
    """``|$a, $b| {…}``."""

    parameters: tuple[Parameter, ...]
    body: tuple[Node, ...]


class Call(Node, frozen=True):
    """A function call. For ``a.name(b)``, the arguments are ``a`` and ``b``."""

    name: str
    arguments: tuple[Node, ...]
    block: Lambda | None = None


class If(Node, frozen=True):
    """``if``, ``elsif`` and ``else``. The condition of ``unless`` is negated."""

    branches: tuple[tuple[Node, tuple[Node, ...]], ...]
    otherwise: tuple[Node, ...]


class Case(Node, frozen=True):
    """``case subject { values: {…} }``."""

    subject: Node
    options: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]


class Assignment(Node, frozen=True):
    """``$name = value``."""

    target: Node
    value: Node


class Attribute(Node, frozen=True):
    """``name => value``. The name ``*`` is a mapping of attributes."""

    name: str
    value: Node


class ResourceBody(Node, frozen=True):
    """One title with its attributes."""

    title: Node
    attributes: tuple[Attribute, ...]


class ResourceDeclaration(Node, frozen=True):
    """``type { title: attributes }``. The form is ``@`` for virtual and ``@@`` for exported resources."""

    type: str
    bodies: tuple[ResourceBody, ...]
    form: str = ""


class ResourceDefaults(Node, frozen=True):
    """``File { owner => root }``."""

    type: str
    attributes: tuple[Attribute, ...]


class ResourceOverride(Node, frozen=True):
    """``File['/x'] { mode => '0600' }``."""

    reference: Node
    attributes: tuple[Attribute, ...]


class Collector(Node, frozen=True):
    """``Type <| query |>``."""

    type: str
    query: str
    attributes: tuple[Attribute, ...] = ()


class Chain(Node, frozen=True):
    """Operands with ``->``, ``~>``, ``<-`` and ``<~`` between them."""

    operands: tuple[Node, ...]
    operators: tuple[str, ...]


class ClassDefinition(Node, frozen=True):
    """``class name (parameters) inherits parent {…}``."""

    name: str
    parameters: tuple[Parameter, ...]
    parent: str
    body: tuple[Node, ...]


class Define(Node, frozen=True):
    """``define name (parameters) {…}``."""

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Node, ...]


class NodeDefinition(Node, frozen=True):
    """``node 'name' {…}``."""

    matches: tuple[Node, ...]
    body: tuple[Node, ...]


class Opaque(Node, frozen=True):
    """A definition without a counterpart: a function, a plan or a type alias."""

    kind: str
    name: str
    value: Node | None = None
