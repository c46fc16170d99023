"""The names of Go templates, followed through their parse tree.

* A missing key prints ``<no value>`` on hosts and causes no error there, so lint reports it.
* Arguments of conditions, and of functions that accept missing values, may be missing.
* Another check reports templates that do not parse, also because of an unknown function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from puller.authoring.lint.known_names import Guards, Judge, Known, Path
from puller.authoring.lint.value_shapes import ANY, SCALAR, Shape
from puller.templates.gotemplate.go_functions import unknown_function_message
from puller.templates.gotemplate.nodes import (
    Action,
    Body,
    Boolean,
    Branch,
    Call,
    Chain,
    Command,
    Dot,
    Field,
    Identifier,
    Number,
    Operand,
    Pipeline,
    Range,
    String,
    Variable,
)
from puller.templates.gotemplate.parser import parse
from puller.templates.template_errors import TemplateError, TemplateSource

_LENIENT: Final = frozenset(
    {
        *(
            "and",
            "any",
            "all",
            "coalesce",
            "default",
            "dig",
            "empty",
            "fail",
            "get",
            "hasKey",
            "hiera",
            "kindIs",
        ),
        *("kindOf", "lookup", "not", "or", "required", "ternary", "typeIs", "typeOf"),
    }
)
"""The functions that accept missing values."""

Render = Callable[[str, Shape], None]


@functools.lru_cache(maxsize=5000)
def parse_go(name: str, text: str, delimiters: tuple[str, str]) -> dict[str, Body] | None:
    """Return the trees of a file by name, or ``None`` if it does not parse."""
    left, right = delimiters
    try:
        return parse(
            TemplateSource(name, text), unknown_function_message, left or "{{", right or "}}", root=name
        )
    except (TemplateError, RecursionError):
        return None


class GoNames:
    """The walk through one file."""

    def __init__(self, bodies: Mapping[str, Body], known: Known, judge: Judge, render: Render) -> None:
        self.bodies = bodies
        self.known = known
        self.judge = judge
        self.render = render
        self.branches = 0
        self.calling: list[str] = []

    def file(self, root: str, dot: Shape | None) -> None:
        """Follow the tree of the file. A partial has its own ``dot``."""
        guards = Guards()
        for body in self.bodies.values():
            _guards(body, guards)
        self.judge.guards = self.judge.guards.over(guards)
        top = dot or self.known.dot()
        if root in self.bodies:
            self._body(self.bodies[root], top, (), {"$": (top, ())})

    def _body(self, body: Body, dot: Shape, at: Path, names: dict[str, tuple[Shape, Path]]) -> None:
        names = dict(names)
        for node in body:
            match node:
                case Action():
                    self._pipeline(node.pipeline, dot, at, names)
                case Branch():
                    self._branch(node, dot, at, names)
                case Range():
                    self._range(node, dot, at, names)
                case Call():
                    self._call(node, dot, at, names)

    def _branch(self, node: Branch, dot: Shape, at: Path, names: dict[str, tuple[Shape, Path]]) -> None:
        inner = dict(names)
        for pipeline, body in node.arms:
            result, path = (dot, at) if pipeline is None else self._pipeline(pipeline, dot, at, inner)
            sets_dot = node.sets_dot and pipeline is not None
            self.branches += 1
            self._body(body, result if sets_dot else dot, path if sets_dot else at, inner)
            self.branches -= 1

    def _range(self, node: Range, dot: Shape, at: Path, names: dict[str, tuple[Shape, Path]]) -> None:
        inner = dict(names)
        result, path = self._pipeline(node.pipeline, dot, at, inner)
        item, place = result.each(), (*path, "*")
        declared = node.pipeline.declared
        for name in declared:
            inner[name] = SCALAR, ()
        if declared:
            inner[declared[-1]] = item, place
        self._body(node.body, item, place, inner)
        self._body(node.otherwise, dot, at, names)

    def _call(self, node: Call, dot: Shape, at: Path, names: dict[str, tuple[Shape, Path]]) -> None:
        inner, path = (ANY, ()) if node.pipeline is None else self._pipeline(node.pipeline, dot, at, names)
        if node.name in self.calling or node.name not in self.bodies:
            return
        self.calling.append(node.name)
        self._body(self.bodies[node.name], inner, path, {"$": (inner, path)})
        self.calling.pop()

    # -- values -----------------------------------------------------------------------------------

    def _pipeline(
        self, node: Pipeline, dot: Shape, at: Path, names: dict[str, tuple[Shape, Path]]
    ) -> tuple[Shape, Path]:
        results: tuple[Shape, Path] = (ANY, ())
        for command in node.commands:
            results = self._command(command, dot, at, names)
        if len(node.commands) > 1:
            results = ANY, ()
        for name in node.declared:
            names[name] = results
        return results

    def _command(
        self, node: Command, dot: Shape, at: Path, names: dict[str, tuple[Shape, Path]]
    ) -> tuple[Shape, Path]:
        results = [self._operand(word, dot, at, names) for word in node.words]
        if isinstance(first := node.words[0], Identifier):
            return self._function(first.name, node.words[1:], results[1:])
        return results[0] if len(results) == 1 else (ANY, ())

    def _function(
        self, name: str, words: Sequence[Operand], found: Sequence[tuple[Shape, Path]]
    ) -> tuple[Shape, Path]:
        if name == "render" and len(words) == 2 and isinstance(words[0], String):
            self.render(words[0].value, found[1][0])
        if name == "index" and len(words) == 2:
            shape, path = found[0]
            if isinstance(words[1], String):
                key, place = words[1].value, words[1].position
                return self._step(shape, path, key, place), (*path, key)
            return shape.each(), (*path, "*")
        return ANY, ()

    def _operand(
        self, node: Operand, dot: Shape, at: Path, names: dict[str, tuple[Shape, Path]]
    ) -> tuple[Shape, Path]:
        match node:
            case Dot():
                return dot, at
            case Field():
                return self._walk(dot, at, node.path, node.position)
            case Variable():
                shape, path = names.get(node.name, (ANY, ()))
                return self._walk(shape, path, node.path, node.position)
            case Chain():
                shape, path = self._operand(node.operand, dot, at, names)
                return self._walk(shape, path, node.path, node.position)
            case Pipeline():
                return self._pipeline(node, dot, at, dict(names))
            case String() | Number() | Boolean():
                return SCALAR, ()
        return ANY, ()

    def _walk(self, shape: Shape, at: Path, steps: Path, position: int) -> tuple[Shape, Path]:
        path = at
        for step in steps:
            shape = self._step(shape, path, step, position)
            path = (*path, step)
        return shape, path

    def _step(self, shape: Shape, path: Path, key: str, position: int) -> Shape:
        if not path and not shape.child(key):
            key = key[:1].lower() + key[1:] if shape.child(key[:1].lower() + key[1:]) else key
        return self.judge.field(shape, path, key, in_branch=self.branches > 0, offset=position)


# -- guards ---------------------------------------------------------------------------------------


def _guards(body: Body, guards: Guards, at: Path = ()) -> None:
    """Note all paths that a body reads with a guard. ``at`` is the path of its dot, or the top if unknown."""
    for node in body:
        match node:
            case Action():
                _of_pipeline(node.pipeline, guards, at, is_condition=False)
            case Branch():
                for pipeline, inner in node.arms:
                    if pipeline is not None:
                        _of_pipeline(pipeline, guards, at, is_condition=True)
                    _guards(inner, guards, _dot(pipeline, at) if node.sets_dot else at)
            case Range():
                _of_pipeline(node.pipeline, guards, at, is_condition=False)
                _guards(node.body, guards, (*_dot(node.pipeline, at), "*"))
                _guards(node.otherwise, guards, at)
            case Call() if node.pipeline is not None:
                _of_pipeline(node.pipeline, guards, at, is_condition=False)


def _of_pipeline(node: Pipeline, guards: Guards, at: Path, *, is_condition: bool) -> None:
    for command, following in zip(node.commands, (*node.commands[1:], None), strict=True):
        first = command.words[0]
        name = first.name if isinstance(first, Identifier) else ""
        taken = following is not None and isinstance(following.words[0], Identifier)
        passes = taken and following is not None and getattr(following.words[0], "name", "") in _LENIENT
        for word in command.words:
            if isinstance(word, Pipeline):
                alone = is_condition and len(command.words) == 1
                _of_pipeline(word, guards, at, is_condition=alone or name in _LENIENT)
            elif passes or name in _LENIENT or (is_condition and len(command.words) == 1):
                guards.add(_path(word, at))
        match command.words:
            case (Identifier(name="hasKey"), mapping, String(value=key)) if path := _path(mapping, at):
                guards.add((*path, key))


def _path(word: Operand, at: Path) -> Path | None:
    if isinstance(word, Field):
        return (*at, *word.path)
    return word.path if isinstance(word, Variable) and word.name == "$" else None


def _dot(pipeline: Pipeline | None, at: Path) -> Path:
    """Return the path of dot in a body below a pipeline, if it is a plain path."""
    if pipeline is None or len(pipeline.commands) != 1 or len(pipeline.commands[0].words) != 1:
        return at
    word = pipeline.commands[0].words[0]
    return at if isinstance(word, Dot) else _path(word, at) or ("…",)
