"""The files that templates and expressions ask for by constant paths, in calls of functions and statements.

Only the trees of the parsers are looked at; what an expression gives as a path is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from jinja2 import nodes

from puller.templates.functions import OF_FILES
from puller.templates.gotemplate.syntax import nodes as go
from puller.templates.jet import nodes as jet

RENDER: Final = "render"
"""The function of scaffolds whose paths are partials of the tree."""
_TEMPLATE: Final = "template"


class Called(NamedTuple):
    """One path, and where it stands in the text."""

    path: str
    function: str
    line: int = 1
    offset: int = -1
    """Of the text; -1 where only the line is known."""


def of_jinja(tree: nodes.Node) -> Iterator[Called]:
    """The calls of a template of Jinja2, or of an expression; of a name that the template sets itself none."""
    found = [tree] if isinstance(tree, nodes.Call) else []
    own = {node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"} | {*_imported(tree)}
    for call in (*found, *tree.find_all(nodes.Call)):
        if not isinstance(call.node, nodes.Name) or call.node.name in own or not call.args:
            continue
        name, first = call.node.name, call.args[0]
        if name in (*OF_FILES, RENDER) and isinstance(first, nodes.Const) and _is_path(first.value, name):
            yield Called(first.value, name, call.lineno)


def _imported(tree: nodes.Node) -> Iterator[str]:
    """The names of macros that a template defines or imports."""
    for node in tree.find_all((nodes.Macro, nodes.FromImport)):
        if isinstance(node, nodes.Macro):
            yield node.name
        elif isinstance(node, nodes.FromImport):
            yield from (name if isinstance(name, str) else name[1] for name in node.names)


def of_go(value: Any) -> Iterator[Called]:
    """The calls of a template of Go, which may be piped: ``"motd" | readFile``."""
    for node in _all(value):
        if isinstance(node, go.Command):
            yield from _of_words(node.words)
        elif isinstance(node, go.Pipeline):
            for one, following in zip(node.commands, node.commands[1:], strict=False):
                if len(following.words) == 1:
                    yield from _of_words((following.words[0], one.words[-1]))


def _of_words(words: tuple[go.Operand, ...]) -> Iterator[Called]:
    match words:
        case (go.Identifier(name=name), go.String(value=path, position=position), *_):
            if name in (*OF_FILES, RENDER) and name != _TEMPLATE:
                yield Called(path, name, offset=position)


def undefined_in_go(bodies: dict[str, go.Body]) -> Iterator[tuple[str, int]]:
    """The names that ``{{ template "name" }}`` asks for and the file does not define, each with its offset."""
    for node in _all(bodies):
        if isinstance(node, go.Call) and node.name not in bodies:
            yield node.name, node.position


def of_jet(value: Any) -> Iterator[Called]:
    """The calls of a template of Jet outside of ``try``, and its includes."""
    for node in _outside_of_try(value):
        match node:
            case jet.Include(path=jet.Literal(value=str(path)), offset=offset):
                yield Called(path, "include", offset=offset)
            case (
                jet.Call(base=jet.Name(name=name), arguments=arguments)
                | jet.Command(base=jet.Name(name=name), arguments=arguments)
            ) if arguments is not None:
                yield from _of_arguments(name, arguments)


def _of_arguments(name: str, arguments: jet.Arguments) -> Iterator[Called]:
    if name not in (*OF_FILES, RENDER) or name == _TEMPLATE:
        return
    match arguments.expressions:
        case (jet.Literal(value=str(path), offset=offset), *_):
            yield Called(path, name, offset=offset)


def _is_path(value: Any, function: str) -> bool:
    """Whether a constant is a path; ``template`` also takes text."""
    if not isinstance(value, str) or not value:
        return False
    return function != _TEMPLATE or not ("\n" in value or "{{" in value)


def _all(value: Any) -> Iterator[Any]:
    """A node and all that is below it."""
    yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ():
        yield from _all(part)


def _outside_of_try(value: Any) -> Iterator[Any]:
    if isinstance(value, jet.Try):
        return
    yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ():
        yield from _outside_of_try(part)
