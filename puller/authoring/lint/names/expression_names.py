"""Names in ``{{ expressions }}`` of YAML texts, and in conditions and loops, which have no braces.

Each text is parsed once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

import msgspec
from jinja2 import Environment, nodes

from foundation.problems import Problem, ProblemCode
from hiera.errors import HieraError
from hiera.expressions import expressions
from hiera.expressions.expressions import Constant, Expression, Lookup, Name
from hiera.expressions.jinja import tree_of
from hiera.values.plain import MISSING, parse_path
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.names.jinja_guards import note
from puller.authoring.lint.names.jinja_values import JinjaValues, Used, looked_up
from puller.authoring.lint.names.known_names import UNKNOWN_NAME, Guards, Judge, Known
from puller.authoring.lint.names.places import UNPLACED, Path, TextPart
from puller.authoring.lint.value_shapes import ANY, SCALAR, Shape

_SHOWN: Final = 80


class Parsed(msgspec.Struct, frozen=True):
    """One text: its expressions, and its problem."""

    pieces: tuple[str | Expression, ...] = ()
    trees: tuple[tuple[nodes.Expr, Environment], ...] = ()
    """Trees of the expressions other than names and constants."""
    guards: Guards = msgspec.field(default_factory=Guards)
    problem: Problem | None = None

    @property
    def expressions(self) -> Iterable[Expression]:
        """Its expressions in order."""
        return (piece for piece in self.pieces if isinstance(piece, Expression))


def follow(
    parsed: Parsed, known: Known, guards: Guards, used: Used, part: TextPart = UNPLACED
) -> tuple[Shape, list[Finding]]:
    """Return the shape of a text's value, and its findings. ``part`` is the text."""
    if parsed.problem is not None:
        return ANY, [part.finding(ProblemCode.EXPRESSION_SYNTAX, Severity.ERROR, parsed.problem.message)]
    judge = Judge(guards.over(parsed.guards), known.facts, part)
    trees = iter(parsed.trees)
    result = ANY
    for piece in parsed.expressions:
        result = _value(piece, known, judge) or _of_tree(*next(trees), known, judge, used)
    is_one = len(parsed.pieces) == 1 and not isinstance(parsed.pieces[0], str)
    return (result if is_one else SCALAR), judge.findings


@functools.lru_cache(maxsize=20_000)
def parse_text(text: str) -> Parsed:
    """Return the expressions of a text."""
    try:
        return _parsed(expressions.parse(text))
    except HieraError as error:
        return Parsed(problem=error.problems[0])


@functools.lru_cache(maxsize=20_000)
def parse_condition(source: str, *, is_check: bool = False) -> Parsed:
    """Return an expression with optional braces. ``is_check`` marks an expression of ``@validate``."""
    text = source.strip()
    try:
        if text.startswith("{{") and not is_check:
            pieces = expressions.parse(text)
            if len(pieces) != 1 or isinstance(pieces[0], str):
                message = f"{_shown(text)!r} is text, expected an expression"
                return Parsed(problem=Problem(code=ProblemCode.EXPRESSION_SYNTAX, message=message))
            return _parsed(pieces)
        return _parsed([Expression(text)], is_check=is_check)
    except HieraError as error:
        return Parsed(problem=error.problems[0])


def constants_of(parsed: Parsed) -> list[str]:
    """Return all constant texts in the expressions of a text."""
    results = [piece.constant for piece in parsed.expressions if isinstance(piece, Constant)]
    for tree, _ in parsed.trees:
        results += [
            node.value for node in (tree, *tree.find_all(nodes.Const)) if isinstance(node, nodes.Const)
        ]
    return [value for value in results if isinstance(value, str)]


def _parsed(pieces: Iterable[str | Expression], *, is_check: bool = False) -> Parsed:
    results = tuple(pieces)
    guards, trees = Guards(), []
    for piece in results:
        if isinstance(piece, Lookup) and piece.default is not MISSING:
            guards.add(_steps(piece.path))
        elif type(piece) is Expression:
            tree, environment = _tree(piece, is_check=is_check)
            trees.append((tree, environment))
            guards = guards.over(note(tree).guards)
    return Parsed(results, tuple(trees), guards)


def _tree(piece: Expression, *, is_check: bool) -> tuple[nodes.Expr, Environment]:
    try:
        return tree_of(piece.source, is_check=is_check)
    except HieraError as error:
        raise error.at(f"{{{{ {_shown(piece.source)} }}}}") from None


def _value(piece: Expression, known: Known, judge: Judge) -> Shape | None:
    """Return the shape of a simple expression, or ``None`` for one with a tree."""
    if isinstance(piece, Constant):
        return ANY if piece.constant is None else SCALAR
    if isinstance(piece, Lookup):
        result = looked_up(judge, dict(known.names), _steps(piece.path) or ("",), False, 0)
        return result if piece.default is MISSING else ANY
    if not isinstance(piece, Name):
        return None
    if piece.steps[0] not in known.names and not known.is_lenient:
        judge.unknown(
            UNKNOWN_NAME, piece.steps[0], "", [name for name in known.names if name.islower()], line=0
        )
        return ANY
    return looked_up(judge, dict(known.names), piece.steps, False, 0)


def _of_tree(tree: nodes.Expr, environment: Environment, known: Known, judge: Judge, used: Used) -> Shape:
    return JinjaValues(environment, known, judge, used).expression(tree)


def _steps(path: str) -> Path | None:
    try:
        return tuple(map(str, parse_path(path)))
    except HieraError:
        return None


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
