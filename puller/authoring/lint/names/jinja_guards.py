"""The paths that a Jinja2 text reads with a guard, and constant paths in its tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from jinja2 import nodes

from hiera.errors import HieraError
from hiera.values.plain import parse_path
from puller.authoring.lint.names.known_names import Guards
from puller.authoring.lint.names.places import Path

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
