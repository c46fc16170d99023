"""The names of Jinja2 expressions, followed through the parse tree.

* Nothing is compiled or evaluated. A value that requires evaluation has any shape.
* Filters, tests and functions are those of the environment on hosts.
* Paths that the text reads with a guard (``is defined``, ``default``) may be missing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, get_type_hints

from jinja2 import Environment, nodes

from foundation.problems import ProblemCode
from foundation.suggestions import meant
from hiera.errors import HieraError
from hiera.expressions.refused import refused
from hiera.expressions.sandbox import MAPPING_METHODS, TEXT_METHODS
from hiera.tree import explain
from hiera.values import parse_path
from puller.authoring.lint.known_names import UNKNOWN_FUNCTION, UNKNOWN_NAME, Guards, Judge, Known, Path
from puller.authoring.lint.value_shapes import ANY, SCALAR, Shape, union

DEFAULTS: Final = frozenset({"d", "default", "mandatory", "ternary"})
DEFINED: Final = frozenset({"defined", "undefined"})
_KINDS: Final = frozenset({"boolean", "iterable", "mapping", "none", "number", "sequence", "string"})


def path_of(node: nodes.Node) -> Path | None:
    """Return the steps of ``a.b['c']``, with ``*`` for a computed index, or ``None`` for other nodes."""
    steps: list[str] = []
    while isinstance(node, nodes.Getattr | nodes.Getitem):
        steps.append(node.attr if isinstance(node, nodes.Getattr) else constant(node.arg, "*"))
        node = node.node
    return (node.name, *reversed(steps)) if isinstance(node, nodes.Name) else None


def constant(node: nodes.Node, otherwise: str) -> str:
    """Return the text of a constant, or ``otherwise``."""
    return str(node.value) if isinstance(node, nodes.Const) else otherwise


def called(node: nodes.Call) -> str:
    """Return the name of the called function. Empty for other calls."""
    return node.node.name if isinstance(node.node, nodes.Name) else ""


class Noted(NamedTuple):
    """Guards and names of one tree, from one walk through it."""

    guards: Guards
    """The paths that may be missing, from anywhere in the text."""
    stored: frozenset[str]
    """The names that a template sets anywhere, except names of loops."""


def note(tree: nodes.Node) -> Noted:
    """Return the guards of a text, and the names that it sets."""
    guards = Guards()
    stored: set[str] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        waiting.extend(node.iter_child_nodes())
        if (noting := _NOTING.get(type(node))) is not None:
            noting(node, guards)
        elif (storing := _STORING.get(type(node))) is not None:
            stored.update(storing(node))
    return Noted(guards, frozenset(stored))


def _of_filter(node: Any, guards: Guards) -> None:
    if node.node is not None and _short(node.name) in DEFAULTS:
        guards.add(path_of(node.node))


def _of_test(node: Any, guards: Guards) -> None:
    if node.name in DEFINED:
        guards.add(path_of(node.node))
    elif node.name in _KINDS:
        guards.add_kind(path_of(node.node))


def _of_comparison(node: Any, guards: Guards) -> None:
    if isinstance(node.expr, nodes.Const):
        for operand in (item.expr for item in node.ops if item.op in ("in", "notin")):
            guards.add(_with(path_of(operand), node.expr.value))


def _of_call(node: Any, guards: Guards) -> None:
    if isinstance(node.node, nodes.Getattr) and node.node.attr == "get":
        if node.args and isinstance(node.args[0], nodes.Const):
            guards.add(_with(path_of(node.node.node), node.args[0].value))
    elif called(node) in ("lookup", "hiera") and _has_default(node):
        guards.add(_looked_up(node))


def _set_by(node: Any) -> Iterator[str]:
    if isinstance(node.target, nodes.Name):
        yield node.target.name
    yield from (name.name for name in node.target.find_all(nodes.Name))


def _imported_by(node: Any) -> Iterator[str]:
    yield from (name[1] if isinstance(name, tuple) else name for name in node.names)


_NOTING: Final[dict[type, Callable[[Any, Guards], None]]] = {
    nodes.Filter: _of_filter,
    nodes.Test: _of_test,
    nodes.Compare: _of_comparison,
    nodes.Call: _of_call,
}
_STORING: Final[dict[type, Callable[[Any], Iterable[str]]]] = {
    nodes.Assign: _set_by,
    nodes.AssignBlock: _set_by,
    nodes.FromImport: _imported_by,
    nodes.Import: lambda node: [node.target],
    nodes.Macro: lambda node: [node.name],
}


def _short(name: str) -> str:
    return name.removeprefix("ansible.builtin.")


def _with(path: Path | None, value: object) -> Path | None:
    return None if path is None else (*path, str(value))


def _has_default(node: nodes.Call) -> bool:
    return len(node.args) > 1 or any(kwarg.key == "default" for kwarg in node.kwargs)


def _looked_up(node: nodes.Call) -> Path | None:
    if not node.args or not isinstance(value := getattr(node.args[0], "value", None), str):
        return None
    if called(node) == "hiera":
        return ("data", value.partition(".")[0])
    try:
        return tuple(map(str, parse_path(value)))
    except HieraError:
        return None


OWN: Final = frozenset({"caller", "kwargs", "loop", "self", "super", "varargs"})
_SAME: Final = frozenset(
    {"list", "reject", "rejectattr", "reverse", "select", "selectattr", "sort", "unique"}
)
_NAMED: Final = {"map": 0, "reject": 0, "rejectattr": 1, "select": 0, "selectattr": 1}
"""By filter: the position of the argument that names a filter or test."""
_OF_MAP: Final = ("attribute", "default")
_KEYWORDS: Final = {"hiera": ("key", "default", "merge"), "lookup": ("path", "default")}
_ONE: Final = frozenset({"first", "last", "max", "min", "random"})
_PAIRS: Final = frozenset({"dictsort", "items"})

Used = Callable[[str, dict[str, Shape], bool], None]
"""Receives the path of a used template, its names beside the surrounding ones, and whether it may have further
names.
"""


class JinjaValues:
    """The walk through the expressions of one text."""

    def __init__(self, environment: Environment, known: Known, judge: Judge, used: Used) -> None:
        self.environment = environment
        self.known = known
        self.judge = judge
        self.used = used
        self.stored: frozenset[str] = frozenset()
        self.branches = 0
        """Number of surrounding branches that may never be reached."""

    def expression(self, tree: nodes.Node) -> Shape:
        """Follow an expression, and return the shape of its value."""
        return self._value(tree, dict(self.known.names))

    # -- values -----------------------------------------------------------------------------------

    def _value(self, node: nodes.Node, names: dict[str, Shape]) -> Shape:
        match node:
            case nodes.Name():
                return self._name(node, names, UNKNOWN_NAME)
            case nodes.Getattr():
                inner = self._value(node.node, names)
                return self._step(node, inner, node.attr)
            case nodes.Getitem():
                return self._item(node, names)
            case nodes.Filter():
                return self._filter(node, names)
            case nodes.Test():
                return self._test(node, names)
            case nodes.Call():
                return self._call(node, names)
            case nodes.CondExpr():
                return self._choice(node, names)
            case nodes.And() | nodes.Or():
                left = self._value(node.left, names)
                with self._branch():
                    right = self._value(node.right, names)
                return union([left, right])
            case nodes.Const():
                return ANY if node.value is None else SCALAR
            case nodes.List() | nodes.Tuple():
                return Shape(items=union([self._value(item, names) for item in node.items]))
            case nodes.Dict():
                return self._mapping(node, names)
        self._children(node, names)
        return ANY

    def _children(self, node: nodes.Node, names: dict[str, Shape]) -> None:
        for child in node.iter_child_nodes():
            self._value(child, names)

    def _name(self, node: nodes.Name, names: dict[str, Shape], rule: ProblemCode) -> Shape:
        name = node.name
        if name in names:
            return names[name]
        is_known = name in self.environment.globals or name in self.stored or name in OWN
        if not is_known and not self.known.is_lenient and not self.judge.guards.cover_name(name):
            known = [item for item in {*names, *self.stored, *self.environment.globals} if item.islower()]
            self.judge.unknown(rule, name, "", known, line=node.lineno)
        return ANY

    def _step(self, node: nodes.Getattr | nodes.Getitem, inner: Shape, key: str | int) -> Shape:
        if isinstance(node, nodes.Getattr) and inner.child(key) is None:
            is_text = inner.is_scalar and key in TEXT_METHODS | {"format", "join", "replace"}
            if is_text or (inner.keys and key in MAPPING_METHODS):
                return ANY
        path = path_of(node.node)
        return self.judge.step(inner, path, key, in_branch=self.branches > 0, line=node.lineno)

    def _item(self, node: nodes.Getitem, names: dict[str, Shape]) -> Shape:
        inner = self._value(node.node, names)
        if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str | int):
            return self._step(node, inner, node.arg.value)
        self._value(node.arg, names)
        return ANY if isinstance(node.arg, nodes.Slice) else inner.each()

    def _filter(self, node: nodes.Filter, names: dict[str, Shape]) -> Shape:
        inner = ANY if node.node is None else self._value(node.node, names)
        arguments = [self._value(argument, names) for argument in node.args]
        for keyword in node.kwargs:
            self._value(keyword.value, names)
        name = node.name.removeprefix("ansible.builtin.")
        if node.name not in self.environment.filters:
            self._no_function("filter", node.name, node, self.environment.filters)
        else:
            self._filter_keywords(node)
        if name in DEFAULTS:
            return union([inner, *arguments]) if arguments else ANY
        if name in _SAME:
            self._named_function(name, node)
            return inner if inner.items is not None else ANY
        if name == "map":
            self._named_function(name, node)
        return _filtered(name, inner)

    def _test(self, node: nodes.Test, names: dict[str, Shape]) -> Shape:
        if node.name not in self.environment.tests:
            self._no_function("test", node.name, node, self.environment.tests)
        if node.name in DEFINED and isinstance(node.node, nodes.Name):
            return ANY
        self._children(node, names)
        return ANY

    def _no_function(
        self, kind: str, name: str, node: nodes.Filter | nodes.Test, known: Iterable[str]
    ) -> None:
        if why := refused(name, is_filter=kind == "filter"):
            self.judge.refuse(UNKNOWN_FUNCTION, name, why, line=node.lineno)
            return
        simple = [item for item in known if "." not in item]
        self.judge.unknown(UNKNOWN_FUNCTION, name, f"{kind} ", simple, line=node.lineno)

    def _named_function(self, name: str, node: nodes.Filter) -> None:
        """Check the filter or test that ``map('upper')`` or ``select('match', …)`` names."""
        position = _NAMED.get(name, -1)
        if not 0 <= position < len(node.args) or not isinstance(provided := node.args[position], nodes.Const):
            return
        kind, table = ("filter", "filters") if name == "map" else ("test", "tests")
        known: Mapping[str, Any] = getattr(self.environment, table)
        if str(provided.value) not in known:
            self._no_function(kind, str(provided.value), node, known)

    def _filter_keywords(self, node: nodes.Filter) -> None:
        if not node.kwargs or (node.name == "map" and node.args):
            return  # further arguments belong to the filter that map names
        expected = _OF_MAP if node.name == "map" else _arguments_of(self.environment.filters[node.name])
        for keyword in node.kwargs if expected else ():
            if keyword.key not in expected:
                message, names = (
                    f"unknown argument {keyword.key!r} of {node.name}",
                    meant(str(keyword.key), expected),
                )
                self.judge.refuse(UNKNOWN_NAME, str(keyword.key), message, line=node.lineno, **names)

    def _choice(self, node: nodes.CondExpr, names: dict[str, Shape]) -> Shape:
        self._value(node.test, names)
        with self._branch():
            results = [self._value(item, names) for item in (node.expr1, node.expr2) if item is not None]
        return union(results)

    def _mapping(self, node: nodes.Dict, names: dict[str, Shape]) -> Shape:
        keys: dict[str, Shape] = {}
        is_told = True
        for pair in node.items:
            value = self._value(pair.value, names)
            if isinstance(pair.key, nodes.Const):
                keys[str(pair.key.value)] = value
            else:
                self._value(pair.key, names)
                is_told = False
        return Shape(keys) if is_told and keys else Shape(keys, union([*keys.values(), ANY]))

    # -- calls ------------------------------------------------------------------------------------

    def _call(self, node: nodes.Call, names: dict[str, Shape]) -> Shape:
        for argument in (*node.args, *(keyword.value for keyword in node.kwargs)):
            self._value(argument, names)
        for further in (node.dyn_args, node.dyn_kwargs):
            if further is not None:
                self._value(further, names)
        if isinstance(node.node, nodes.Getattr) and node.node.attr in MAPPING_METHODS:
            return self._method(node, node.node, names)
        name = called(node)
        if not name:
            self._value(node.node, names)
            return ANY
        assert isinstance(node.node, nodes.Name)  # noqa: S101  ``called`` has a name of nothing else
        self._name(node.node, names, UNKNOWN_FUNCTION)
        self._keywords(name, node, names)
        return self._answer(name, node, names)

    def _keywords(self, name: str, node: nodes.Call, names: dict[str, Shape]) -> None:
        desired = _KEYWORDS.get(name)
        for keyword in node.kwargs if desired and name in names else ():
            if keyword.key not in (desired or ()):
                message, similar = (
                    f"unknown argument {keyword.key!r} of {name}",
                    meant(keyword.key, desired or ()),
                )
                self.judge.refuse(UNKNOWN_NAME, keyword.key, message, line=node.lineno, **similar)

    def _answer(self, name: str, node: nodes.Call, names: dict[str, Shape]) -> Shape:
        first = getattr(node.args[0], "value", None) if node.args else None
        if name == "template" and name in names and isinstance(first, str):
            self.used(first, {kwarg.key: self._value(kwarg.value, names) for kwarg in node.kwargs}, False)
        if name == "render" and name in names and isinstance(first, str) and len(node.args) > 1:
            value = self._value(node.args[1], names)
            self.used(first, {**value.keys, "value": value}, value.is_open)
        if name == "lookup" and isinstance(first, str):
            return self._looked_up(first, node, names)
        if name == "hiera" and name in names and isinstance(first, str):
            return hiera_value(self.judge, names["data"], first, self.branches > 0, node.lineno)
        return ANY

    def _looked_up(self, written: str, node: nodes.Call, names: dict[str, Shape]) -> Shape:
        try:
            steps = parse_path(written)
        except HieraError:
            return ANY
        has_default = len(node.args) > 1 or bool(node.kwargs)
        result = looked_up(self.judge, names, steps, self.branches > 0, node.lineno)
        return ANY if has_default else result

    def _method(self, node: nodes.Call, method: nodes.Getattr, names: dict[str, Shape]) -> Shape:
        inner = self._value(method.node, names)
        if inner.child(method.attr) not in (None, ANY):
            return ANY
        if method.attr == "values":
            return Shape(items=inner.each())
        if method.attr == "items":
            return _pairs(inner)
        if method.attr == "get" and node.args and isinstance(node.args[0], nodes.Const):
            return ANY if len(node.args) > 1 else inner.child(str(node.args[0].value)) or ANY
        return ANY

    @contextmanager
    def _branch(self, is_one: bool = True) -> Iterator[None]:
        self.branches += is_one
        try:
            yield
        finally:
            self.branches -= is_one


@functools.cache
def _arguments_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a filter's keyword arguments. Empty if it accepts any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is not parameter.VAR_KEYWORD:
            names.append(parameter.name)
        elif "Unpack[" in str(parameter.annotation):
            names += get_type_hints(get_type_hints(function)[parameter.name].__args__[0])
        else:
            return ()
    return tuple(names)


def looked_up(judge: Judge, names: dict[str, Shape], steps: Path, in_branch: bool, line: int) -> Shape:
    """Return the shape at the path of a ``lookup`` call."""
    shape = names.get(steps[0])
    if shape is None:
        return ANY  # the result for an invalid path depends on the path
    for index, key in enumerate(steps[1:], start=1):
        if key == "#":
            return SCALAR
        path = tuple(map(str, steps[:index]))
        shape = judge.step(shape, path, str(key), in_branch=in_branch, line=line)
    return shape


def hiera_value(judge: Judge, data: Shape, written: str, in_branch: bool, line: int) -> Shape:
    """Return the shape of a key in Puppet's notation: dots descend, except in quotes."""
    try:
        key = explain.parse(written)
    except HieraError:
        return ANY
    shape = data
    path: Path = ("data",)
    for step in (key.root, *key.segments):
        shape = judge.step(shape, path, step, in_branch=in_branch, line=line)
        path = (*path, str(step))
    return shape


def _filtered(name: str, inner: Shape) -> Shape:
    if name in _ONE:
        return inner.each() if inner.items is not None else ANY
    if name in _PAIRS:
        return _pairs(inner)
    if name == "items2dict" and inner.items is not None:
        return Shape(others=inner.items.child("value") or ANY)
    if name == "dict2items":
        return Shape(items=Shape({"key": SCALAR, "value": inner.each()}))
    return ANY


def _pairs(inner: Shape) -> Shape:
    """Return the shape of a list of keys and values."""
    return Shape(items=Shape({"0": ANY, "1": inner.each()}))
