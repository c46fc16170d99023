"""The names of Jet templates, followed through their parse tree.

* Arguments of ``isset`` and of conditions may be missing.
* An unknown function or variable fails only when it is reached, so lint reports it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final

from foundation.problems import ProblemCode
from puller.authoring.lint.known_names import (
    CAPITALS,
    UNKNOWN_FUNCTION,
    UNKNOWN_NAME,
    Guards,
    Judge,
    Known,
    Path,
)
from puller.authoring.lint.value_shapes import ANY, SCALAR, Shape, union
from puller.templates.jet.jet_engine import BUILTINS
from puller.templates.jet.nodes import (
    Action,
    Assignment,
    Binary,
    Block,
    Body,
    Call,
    Chain,
    Command,
    Dot,
    Expression,
    Field,
    If,
    Include,
    Index,
    Literal,
    Name,
    Not,
    Range,
    Return,
    Statement,
    Ternary,
    Tree,
    Try,
    Yield,
    YieldContent,
)
from puller.templates.jet.parser import parse
from puller.templates.template_errors import TemplateError, TemplateSource

_HOST: Final = ("file", "hiera", "lookup", "readFile", "render", "write")
Render = Callable[[str, Shape], None]
Value = tuple[Shape, Path]
_NOTHING: Final[Value] = (ANY, ())


@functools.lru_cache(maxsize=5000)
def parse_jet(name: str, text: str, delimiters: tuple[str, str]) -> Tree | None:
    """Return the tree of a file, or ``None`` if it does not parse."""
    left, right = delimiters
    try:
        return parse(TemplateSource(name, text), left or "[[", right or "]]")
    except TemplateError:
        return None


class JetNames:
    """The walk through one file."""

    def __init__(self, known: Known, judge: Judge, render: Render) -> None:
        self.known = known
        self.judge = judge
        self.render = render
        self.branches = 0
        self.set: set[str] = set()
        """All names that the file sets anywhere."""
        self.is_open = known.is_lenient

    def file(self, tree: Tree, dot: Shape | None) -> None:
        """Follow a whole file. A partial sees only its own ``dot``."""
        guards = Guards()
        for node in _all(tree):
            _note(node, guards, self.set)
        self.judge.guards = self.judge.guards.over(guards)
        # Blocks, and files that include this one, may set further names.
        self.is_open = self.is_open or tree.extends is not None or bool(tree.imports)
        top = dot or self.known.dot()
        self.is_open = self.is_open or top.is_open
        # Only a scope provides names. Other values provide keys of dot.
        is_scope = dot is None or "environ" in dot.keys
        names: dict[str, Value] = {}
        if is_scope:
            names.update((name, (item, (name,))) for name, item in top.keys.items())
        self._body(tree.body, (top, ()), names)

    # -- statements -------------------------------------------------------------------------------

    def _body(self, body: Body | None, dot: Value, names: dict[str, Value]) -> None:
        names = dict(names)
        for node in body or ():
            self._statement(node, dot, names)

    def _statement(self, node: Statement, dot: Value, names: dict[str, Value]) -> None:
        match node:
            case Action():
                if node.assignment is not None:
                    self._assign(node.assignment, dot, names)
                for command in node.pipeline:
                    self._command(command, dot, names)
            case If():
                if node.assignment is not None:
                    self._assign(node.assignment, dot, names)
                self._value(node.condition, dot, names)
                self.branches += 1
                self._body(node.body, dot, names)
                self._body(node.otherwise, dot, names)
                self.branches -= 1
            case Range():
                self._range(node, dot, names)
            case Block():
                self._block(node, dot, names)
            case Yield():
                values = (argument.value for argument in node.arguments)
                self._values((*values, node.context), dot, names)
                self._body(node.content, _NOTHING if node.context else dot, names)
            case YieldContent() | Return() | Include():
                self._values(
                    [argument for argument in node if isinstance(argument, _EXPRESSIONS)], dot, names
                )
            case Try():
                self.branches += 1
                self._body(node.body, dot, names)
                if node.catch is not None:
                    self._body(node.catch.body, dot, {**names, node.catch.name: _NOTHING})
                self.branches -= 1

    def _range(self, node: Range, dot: Value, names: dict[str, Value]) -> None:
        result, path = self._value(node.expression, dot, names)
        item: Value = (result.each(), (*path, "*"))
        inner = dict(names)
        for target in node.targets:
            if isinstance(target, Name):
                inner[target.name] = (SCALAR, ())
        # A single name is the index, as in Go, and dot is the item.
        if len(node.targets) == 2 and isinstance(target := node.targets[1], Name):
            inner[target.name] = item
        self._body(node.body, dot if len(node.targets) == 2 else item, inner)
        self._body(node.otherwise, dot, names)

    def _block(self, node: Block, dot: Value, names: dict[str, Value]) -> None:
        self._values((*(parameter.value for parameter in node.parameters), node.context), dot, names)
        inner = {**names, **{parameter.name: _NOTHING for parameter in node.parameters}}
        self._body(node.body, _NOTHING, inner)
        self._body(node.content, _NOTHING, inner)

    def _assign(self, node: Assignment, dot: Value, names: dict[str, Value]) -> None:
        results = [self._value(value, dot, names) for value in node.values]
        for target, value in zip(node.targets, results, strict=False):
            if isinstance(target, Name):
                names[target.name] = value if len(node.targets) == len(results) else _NOTHING

    # -- values -----------------------------------------------------------------------------------

    def _values(self, values: Iterable[Expression | None], dot: Value, names: dict[str, Value]) -> None:
        for value in values:
            if value is not None:
                self._value(value, dot, names)

    def _command(self, node: Command, dot: Value, names: dict[str, Value]) -> None:
        if node.arguments is None:
            self._value(node.base, dot, names)
        else:
            self._call(Call(node.offset, node.base, node.arguments), dot, names)

    def _value(self, node: Expression, dot: Value, names: dict[str, Value]) -> Value:
        match node:
            case Literal():
                return SCALAR, ()
            case Name():
                return self._name(node, names, UNKNOWN_NAME)
            case Dot():
                return dot
            case Field():
                return self._walk(dot, node)
            case Chain():
                return self._walk(self._value(node.base, dot, names), node)
            case Index():
                return self._index(node, dot, names)
            case Call():
                return self._call(node, dot, names)
            case Ternary():
                self._value(node.condition, dot, names)
                self.branches += 1
                results = [self._value(item, dot, names)[0] for item in (node.yes, node.no)]
                self.branches -= 1
                return union(results), ()
        self._values([item for item in node if isinstance(item, _EXPRESSIONS)], dot, names)
        return _NOTHING

    def _name(self, node: Name, names: dict[str, Value], rule: ProblemCode) -> Value:
        if node.name in names:
            return names[node.name]
        is_known = node.name in BUILTINS or node.name in _HOST or node.name in self.set
        if not is_known and not self.is_open and not self.judge.guards.cover_name(node.name):
            known = [name for name in (*names, *self.set, *BUILTINS, *_HOST) if name not in CAPITALS]
            self.judge.unknown(rule, node.name, "", known, line=0, offset=node.offset)
        return _NOTHING

    def _walk(self, start: Value, node: Field | Chain) -> Value:
        shape, path = start
        for key in node.keys:
            name = key.name
            if not path and not shape.child(name) and shape.child(name[:1].lower() + name[1:]):
                name = name[:1].lower() + name[1:]
            in_branch = self.branches > 0
            shape = self.judge.field(shape, path, name, in_branch=in_branch, offset=key.offset)
            path = (*path, name)
        return shape, path

    def _index(self, node: Index, dot: Value, names: dict[str, Value]) -> Value:
        shape, path = self._value(node.base, dot, names)
        self._value(node.position, dot, names)
        if isinstance(node.position, Literal) and isinstance(key := node.position.value, str):
            place = node.position.offset
            result = self.judge.field(shape, path, key, in_branch=self.branches > 0, offset=place)
            return result, (*path, key)
        return shape.each(), (*path, "*")

    def _call(self, node: Call, dot: Value, names: dict[str, Value]) -> Value:
        arguments = node.arguments.expressions
        results = [self._value(argument, dot, names) for argument in arguments]
        if not isinstance(node.base, Name):
            self._value(node.base, dot, names)
            return _NOTHING
        self._name(node.base, names, UNKNOWN_FUNCTION)
        if node.base.name == "render" and len(arguments) == 2 and isinstance(arguments[0], Literal):
            self.render(str(arguments[0].value), results[1][0])
        return _NOTHING


_EXPRESSIONS: Final = tuple(Expression.__args__)


def _all(value: Any) -> Iterable[Any]:
    """Yield a node and all nodes below it."""
    yield value
    if isinstance(value, tuple):
        for part in value:
            yield from _all(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _all(part)


def _note(node: Any, guards: Guards, names: set[str]) -> None:
    """Note the paths that a node reads with a guard, and the names that it sets."""
    match node:
        case Call(base=Name(name="isset"), arguments=arguments):
            _guard_all(arguments.expressions, guards)
        case Command(base=Name(name="isset"), arguments=arguments) if arguments is not None:
            _guard_all(arguments.expressions, guards)
        case If(condition=condition) | Ternary(condition=condition):
            _guard_all(_tested_values(condition), guards)
        case Call(base=Name(name="lookup" | "hiera"), arguments=arguments) if len(arguments.expressions) > 1:
            _guard_all(arguments.expressions, guards)
        case Assignment():
            names.update(target.name for target in node.targets if isinstance(target, Name))
        case Range():
            names.update(target.name for target in node.targets if isinstance(target, Name))
        case Block():
            names.update(parameter.name for parameter in node.parameters)
    if isinstance(node, Assignment) and node.looks_up:
        _guard_all(node.values, guards)


def _tested_values(condition: Expression) -> Iterable[Expression]:
    """Yield the values that a condition tests for existence, without a comparison."""
    if isinstance(condition, Not):
        yield from _tested_values(condition.operand)
    elif isinstance(condition, Binary) and condition.operator in ("&&", "||"):
        yield from _tested_values(condition.left)
        yield from _tested_values(condition.right)
    else:
        yield condition


def _guard_all(expressions: Iterable[Expression], guards: Guards) -> None:
    for expression in expressions:
        guards.add(_path(expression))


def _path(node: Expression) -> Path | None:
    match node:
        case Name():
            return (node.name,)
        case Field():
            return tuple(key.name for key in node.keys)
        case Chain():
            base = _path(node.base)
            return None if base is None else (*base, *(key.name for key in node.keys))
        case Index(position=Literal(value=value)):
            base = _path(node.base)
            return None if base is None else (*base, str(value))
    return None
