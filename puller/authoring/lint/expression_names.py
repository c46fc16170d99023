"""Names in ``{{ expressions }}``, in conditions and loops, and in the Hiera tree of a bundle.

Each text of an expression is parsed once. Conditions and loops have no braces.

The Hiera tree has the keys that its files have on any host, and names in its interpolations:

* All files below the directories of its levels count, whichever host reads them.
* A level with data outside the bundle may have any key.
* An unknown variable is empty on hosts and causes no error there, so lint reports it.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from jinja2 import Environment, nodes

from bundles.filesystem.trees import walk_directories
from foundation.problems import Problem, ProblemCode
from hiera import parsing
from hiera.errors import HieraError
from hiera.expressions import expressions
from hiera.expressions.expressions import Constant, Expression, Lookup, Name
from hiera.expressions.jinja import tree_of
from hiera.tree import explain
from hiera.tree.hiera_yaml import load_config
from hiera.tree.layers import module_path
from hiera.tree.locations import Files
from hiera.tree.schema import ENVIRONMENT, MODULE, Config, LevelConfig
from hiera.values import MISSING, parse_path
from puller.authoring.lint.findings import Finding, read_text
from puller.authoring.lint.jinja_values import JinjaValues, Used, looked_up, note
from puller.authoring.lint.known_names import (
    UNKNOWN_NAME,
    UNPLACED,
    Guards,
    Judge,
    Known,
    Path,
    TextPart,
    YamlText,
)
from puller.authoring.lint.value_shapes import ANY, SCALAR, Shape, of_value, union

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
        return ANY, [part.finding(ProblemCode.EXPRESSION_SYNTAX, parsed.problem.message)]
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


TREE: Final = "hiera.yaml"
_MARK: Final = "%{"
_READ: Final = frozenset({"eyaml_lookup_key", "json_data", "yaml_data"})
_ENDINGS: Final = (".yaml", ".yml", ".json", ".eyaml")
_INTERPOLATION: Final = re.compile(r"%\{([^}\n]*)\}")
_CALL: Final = re.compile(r"""(\w+)\((?:"([^"]+)"|'([^']+)')\)""", re.ASCII)
_OWN: Final = frozenset(
    {"caller_module_name", "environment", "module_name", "name", "server_facts", "title", "trusted"}
)


def tree_shape(root: str) -> Shape | None:
    """Return all keys of the tree in a directory, ``None`` without a tree, or any shape if they are unknown."""
    if not os.path.exists(os.path.join(root, TREE)):
        return None
    shapes: list[Shape] = []
    for config in _configs(root):
        directories = _directories(config)
        if directories is None or not all(_is_within(directory, root) for directory in directories):
            return ANY
        shapes += (_shape(path) for directory in directories for path in _files(directory))
    return union(shapes) if shapes else ANY


def tree_files(root: str) -> list[str]:
    """Return the ``hiera.yaml`` files and the data files of the tree in a directory."""
    result: dict[str, None] = {}
    for config in _configs(root):
        if config.path is not None:
            result[config.path] = None
        for directory in _directories(config) or ():
            result.update(dict.fromkeys(_files(directory)))
    return [path for path in result if _is_within(path, root)]


def levels_of(root: str) -> Iterator[tuple[list[LevelConfig], list[str]]]:
    """Yield the levels of each ``hiera.yaml`` below a directory, and their data files.

    Trees with data outside files below the directory are skipped.
    """
    for config in _configs(root):
        directories = _directories(config)
        if directories is None:
            continue
        if all(
            _is_within(directory, root) and not os.path.samefile(directory, root)
            for directory in directories
            if os.path.isdir(directory)
        ):
            files = dict.fromkeys(path for directory in directories for path in _files(directory))
            yield [*config.levels, *(config.default_levels or ())], list(files)


def follow_interpolations(
    yaml: YamlText, facts: Shape, tree: Shape, at_hand: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield the findings in all interpolations of a file."""
    for match in _INTERPOLATION.finditer(yaml.text):
        line = yaml.text.count("\n", 0, match.start()) + 1
        judge = Judge(Guards(), at_hand, yaml.line_part(line))
        _interpolation(match[1].strip(), facts, tree, judge)
        yield from judge.findings


def _interpolation(written: str, facts: Shape, tree: Shape, judge: Judge) -> None:
    call = _CALL.fullmatch(written)
    method, argument = (call[1], call[2] or call[3]) if call else ("scope", written)
    segments = explain.split(argument)
    if segments is None or method == "literal":
        return
    if method in ("alias", "hiera", "lookup"):
        _walk(judge, tree, ("data",), segments)
    elif method == "scope":
        root = str(segments[0]).lstrip(":")
        if root == "facts":
            _walk(judge, facts, ("facts",), segments[1:])
        elif root and root not in _OWN and "::" not in root:
            _walk(judge, facts, ("facts",), (root, *segments[1:]))


def _walk(judge: Judge, shape: Shape, path: tuple[str, ...], steps: tuple[str | int, ...]) -> None:
    for step in steps:
        shape = judge.step(shape, path, step, in_branch=False, line=0)
        path = (*path, str(step))


def _configs(root: str) -> Iterator[Config]:
    """Yield the readable configurations of the environment and its modules."""
    files, places = Files(), [(os.path.join(root, TREE), ENVIRONMENT)]
    try:
        for path in module_path(root, files):
            places += ((os.path.join(path, entry.name, TREE), MODULE) for entry in files.entries(path))
    except HieraError:
        pass
    for path, place in places:
        try:
            config = load_config(path, files, place, _unheard) if os.path.exists(path) else None
        except HieraError:
            continue
        if config is not None:
            yield config


def _directories(config: Config) -> list[str] | None:
    """Return the data directories of its levels, or ``None`` for other sources of data."""
    result: dict[str, None] = {}
    for level in (*config.levels, *(config.default_levels or ())):
        if level.function not in _READ or any(place.startswith("/") for place in level.places):
            return None
        result[
            level.datadir.partition(_MARK)[0].rpartition("/")[0] if _MARK in level.datadir else level.datadir
        ] = None
    return list(result)


def _files(directory: str) -> Iterator[str]:
    for place, names, files in walk_directories(directory):
        names.sort()
        yield from (os.path.join(place, name) for name in sorted(files) if name.endswith(_ENDINGS))


def _shape(path: str) -> Shape:
    text = read_text(path)
    try:
        value = None if text is None else parsing.load_yaml(text, path)
    except HieraError:
        return ANY
    if text is None:
        return ANY
    return of_value(value, _MARK) if isinstance(value, Mapping) and value else Shape()


def _is_within(path: str, root: str) -> bool:
    real, base = os.path.realpath(path), os.path.realpath(root)
    return real == base or real.startswith(base + "/")


def _unheard(warning: Problem) -> None:
    """Ignore warnings of a configuration, because the opener of the tree reports them."""
