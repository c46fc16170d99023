"""The paths that a text of Jinja2 asks for with care, and those that stand in its tree as constants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jinja2 import nodes

from hiera.errors import HieraError
from hiera.values.paths import parse_path
from puller.authoring.lint.names.known import Guards, Path

DEFAULTS: Final = frozenset({"d", "default", "mandatory", "ternary"})
DEFINED: Final = frozenset({"defined", "undefined"})
_KINDS: Final = frozenset({"boolean", "iterable", "mapping", "none", "number", "sequence", "string"})


def path_of(node: nodes.Node) -> Path | None:
    """The steps of ``a.b['c']``, an index that is no constant as ``*``; ``None`` for anything else."""
    steps: list[str] = []
    while isinstance(node, nodes.Getattr | nodes.Getitem):
        steps.append(node.attr if isinstance(node, nodes.Getattr) else constant(node.arg, "*"))
        node = node.node
    return (node.name, *reversed(steps)) if isinstance(node, nodes.Name) else None


def constant(node: nodes.Node, otherwise: str) -> str:
    """The text of a constant."""
    return str(node.value) if isinstance(node, nodes.Const) else otherwise


def called(node: nodes.Call) -> str:
    """The name of the function that is called; empty for anything else."""
    return node.node.name if isinstance(node.node, nodes.Name) else ""


def guards_of(tree: nodes.Node) -> Guards:
    """All paths that may be missing, from anywhere in a text."""
    guards = Guards()
    for node in _all(tree):
        match node:
            case nodes.Filter(name=name, node=operand) if operand and _short(name) in DEFAULTS:
                guards.add(path_of(operand))
            case nodes.Test(name=name, node=operand) if name in DEFINED:
                guards.add(path_of(operand))
            case nodes.Test(name=name, node=operand) if name in _KINDS:
                guards.add_kind(path_of(operand))
            case nodes.Compare(expr=nodes.Const(value=value), ops=ops):
                for operand in (one.expr for one in ops if one.op in ("in", "notin")):
                    guards.add(_with(path_of(operand), value))
            case nodes.Call(
                node=nodes.Getattr(attr="get", node=operand), args=[nodes.Const(value=value), *_]
            ):
                guards.add(_with(path_of(operand), value))
            case nodes.Call() if called(node) in ("lookup", "hiera") and _has_default(node):
                guards.add(_looked_up(node))
    return guards


def _all(tree: nodes.Node) -> Iterator[nodes.Node]:
    yield tree
    for child in tree.iter_child_nodes():
        yield from _all(child)


def _short(name: str) -> str:
    return name.removeprefix("ansible.builtin.")


def _with(path: Path | None, value: object) -> Path | None:
    return None if path is None else (*path, str(value))


def _has_default(node: nodes.Call) -> bool:
    return len(node.args) > 1 or any(one.key == "default" for one in node.kwargs)


def _looked_up(node: nodes.Call) -> Path | None:
    if not node.args or not isinstance(value := getattr(node.args[0], "value", None), str):
        return None
    if called(node) == "hiera":
        return ("data", value.partition(".")[0])
    try:
        return tuple(map(str, parse_path(value)))
    except HieraError:
        return None
