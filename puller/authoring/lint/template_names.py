"""Names in template files, with the scope of each use of a file.

* Each template is parsed once, and followed once for each different scope.
* Templates that it includes, renders or calls by a constant path are followed with the scope of the call.
* Another check reports syntax errors of templates.
* In Jinja2, a name that a template sets anywhere is a name of the template, whatever the place. Names of loops,
  macros and ``with`` belong to their bodies.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
from jinja2 import nodes

from hiera.errors import HieraError
from hiera.expressions.sandbox import Sandbox
from puller.authoring.lint.findings import Finding, read_text
from puller.authoring.lint.go_names import GoNames, parse_go
from puller.authoring.lint.jet_names import JetNames, parse_jet
from puller.authoring.lint.jinja_values import OWN, JinjaValues, Noted, note
from puller.authoring.lint.known_names import Guards, Judge, Known, template_part
from puller.authoring.lint.value_shapes import ANY, SCALAR, Shape, union
from puller.bundle_paths import BundleFiles
from puller.templates.jinja import JinjaEngine, read_header
from puller.templates.rendering import named_engine


class JinjaNames(JinjaValues):
    """The walk through a whole template."""

    def template(self, tree: nodes.Template, stored: frozenset[str]) -> None:
        """Follow a whole template. ``stored`` are the names that it sets anywhere."""
        self.stored = stored
        self._body(tree.body, dict(self.known.names))

    def _body(self, body: Iterable[nodes.Node], names: dict[str, Shape]) -> None:
        for node in body:
            self._statement(node, names)

    def _statement(self, node: nodes.Node, names: dict[str, Shape]) -> None:
        match node:
            case nodes.For():
                self._for(node, names)
            case nodes.If():
                self._if(node, names)
            case nodes.Assign():
                self._assign(node.target, self._value(node.node, names), names)
            case nodes.AssignBlock():
                self._body(node.body, dict(names))
                self._assign(node.target, ANY, names)
            case nodes.Macro() | nodes.CallBlock():
                self._macro(node, names)
            case nodes.With():
                inner = dict(names)
                for target, value in zip(node.targets, node.values, strict=False):
                    self._assign(target, self._value(value, names), inner)
                self._body(node.body, inner)
            case nodes.FilterBlock():
                self._filter(node.filter, names)
                self._body(node.body, dict(names))
            case nodes.Include() | nodes.Import() | nodes.FromImport() | nodes.Extends():
                self._included(node, names)
            case nodes.Block() | nodes.Scope() | nodes.ScopedEvalContextModifier():
                self._body(node.body, dict(names))
            case nodes.Stmt():
                for child in node.iter_child_nodes():
                    self._statement(child, names)
            case _:
                self._value(node, names)

    def _for(self, node: nodes.For, names: dict[str, Shape]) -> None:
        iterated = self._value(node.iter, names)
        inner = dict(names)
        is_list = iterated.items is not None or iterated.is_open
        self._assign(node.target, iterated.each() if is_list else SCALAR, inner)
        if node.test is not None:
            self._value(node.test, inner)
        with self._branch(bool(node.test)):
            self._body(node.body, inner)
        self._body(node.else_, dict(names))

    def _if(self, node: nodes.If, names: dict[str, Shape]) -> None:
        self._value(node.test, names)
        with self._branch():
            self._body(node.body, names)
            self._body(node.elif_, names)
            self._body(node.else_, names)

    def _assign(self, target: nodes.Node, value: Shape, names: dict[str, Shape]) -> None:
        if isinstance(target, nodes.Name):
            is_maybe = self.branches > 0 and target.name in names
            names[target.name] = union([names[target.name], value]) if is_maybe else value
        elif isinstance(target, nodes.Tuple):
            for index, item in enumerate(target.items):
                self._assign(item, value.child(index) or ANY, names)

    def _macro(self, node: nodes.Macro | nodes.CallBlock, names: dict[str, Shape]) -> None:
        for default in node.defaults:
            self._value(default, names)
        if isinstance(node, nodes.CallBlock):
            self._value(node.call, names)
        # At the time of a call, names that are set below this place may exist.
        own = {name: ANY for name in self.stored if name not in self.known.names}
        self._body(node.body, {**names, **own, **dict.fromkeys((arg.name for arg in node.args), ANY)})

    def _included(
        self, node: nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends, names: dict[str, Shape]
    ) -> None:
        self._value(node.template, names)
        own = {name: ANY for name in (*self.stored, *OWN) if name not in self.known.names}
        further = {name: shape for name, shape in names.items() if self.known.names.get(name) is not shape}
        written = node.template
        for item in written.items if isinstance(written, nodes.List | nodes.Tuple) else [written]:
            if isinstance(path := getattr(item, "value", None), str):
                self.used(path, {**own, **further}, False)


_DEEPEST = 20  # templates within one another
_SIZE_LIMIT = 1024 * 1024  # bytes of a template
Delimiters = tuple[str, str]


class Use(msgspec.Struct, frozen=True):
    """One use of a template."""

    path: str
    """The real path of its file."""
    engine: str
    known: Known
    files: BundleFiles
    """The base of its paths."""
    guards: Guards = msgspec.field(default_factory=Guards)
    delimiters: Delimiters = ("", "")
    tree: str = ""
    """The scaffold directory that contains it, as the base of paths."""
    dot: Shape | None = None
    """Of a partial: its argument, if it differs from the scope."""

    @property
    def key(self) -> object:
        """Equal for two uses with equal findings."""
        names = tuple(sorted((name, id(shape)) for name, shape in self.known.names.items()))
        guards = frozenset(self.guards.paths), frozenset(self.guards.kinds)
        return self.path, self.engine, self.delimiters, names, guards, id(self.dot)


class Templates:
    """All templates of one bundle that were followed so far."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        """``name_of`` returns the name of a file in findings, by its real path."""
        self._name_of = name_of
        self._texts: dict[str, str | None] = {}
        self._done: dict[object, Use] = {}
        """The uses are stored, because their keys contain identities of objects."""
        self.reached: set[str] = set()
        """The real paths of all used templates."""

    def follow(self, use: Use, depth: int = 0) -> Iterator[Finding]:
        """Yield the findings in a template, and in the templates that it uses."""
        self.reached.add(use.path)
        if depth > _DEEPEST or use.key in self._done:
            return
        self._done[use.key] = use
        text = self.text(use.path)
        if text is None:
            return
        further: list[Use] = []
        name = self._name_of(use.path)
        yield from _WALKS[use.engine](use, text, lambda path, inner: further.append(inner), self._inner, name)
        for inner in further:
            yield from self.follow(inner, depth + 1)

    def text(self, path: str) -> str | None:
        """Return the text of a file, or ``None`` if it is unreadable."""
        if path not in self._texts:
            self._texts[path] = read_text(path, _SIZE_LIMIT)
        return self._texts[path]

    @staticmethod
    def _inner(use: Use, path: str) -> str | None:
        """Return the file of a path in a template."""
        if use.tree and not use.files.is_prefixed(path):
            return os.path.join(use.tree, os.path.normpath(f"./{path}"))
        try:
            return use.files.find(path)
        except HieraError:
            return None


Tell = Callable[[str, Use], None]
Find = Callable[[Use, str], str | None]


def _jinja(use: Use, text: str, tell: Tell, find: Find, name: str) -> list[Finding]:
    parsed = parse_jinja(text, use.delimiters)
    if parsed is None:
        return []
    guards = parsed.noted.guards.over(use.guards)

    def used(path: str, names: Mapping[str, Shape], is_open: bool) -> None:
        if result := find(use, path):
            known = use.known.with_names(names)
            inner = msgspec.structs.replace(
                use,
                path=result,
                engine=named_engine(result) or "jinja",
                known=msgspec.structs.replace(known, is_lenient=known.is_lenient or is_open),
                guards=guards,
                files=use.files.within(result),
            )
            tell(path, inner)

    part = template_part(name, text, skipped=parsed.skipped)
    judge = Judge(guards, use.known.facts, part)
    JinjaNames(parsed.sandbox, use.known, judge, used).template(parsed.tree, parsed.noted.stored)
    return judge.findings


class ParsedJinja(NamedTuple):
    """A parsed Jinja2 template."""

    tree: nodes.Template
    sandbox: Sandbox
    """The environment that renders it."""
    skipped: int
    """Number of lines before the tree."""
    noted: Noted


@functools.lru_cache(maxsize=5000)
def parse_jinja(text: str, delimiters: Delimiters = ("", "")) -> ParsedJinja | None:
    """Return the tree of a template, or ``None`` if it does not parse."""
    try:
        sandbox, header = _sandbox(delimiters), read_header(text)
        if header is not None:
            sandbox = sandbox.overlay(**header.options)
        tree = sandbox.parse(text if header is None else header.text)
    except Exception:  # noqa: BLE001  the parser of another project, on any text
        return None
    return ParsedJinja(tree, sandbox, int(header is not None), note(tree))


@functools.lru_cache(maxsize=20)
def _sandbox(delimiters: Delimiters) -> Sandbox:
    return JinjaEngine(*delimiters).sandbox


def _go(use: Use, text: str, tell: Tell, find: Find, name: str) -> list[Finding]:
    bodies = parse_go(os.path.basename(use.path), text, use.delimiters)
    if bodies is None:
        return []
    judge = Judge(Guards().over(use.guards), use.known.facts, template_part(name, text))
    names = GoNames(bodies, use.known, judge, _rendered(use, tell, find, judge))
    names.file(os.path.basename(use.path), use.dot)
    return judge.findings


def _jet(use: Use, text: str, tell: Tell, find: Find, name: str) -> list[Finding]:
    tree = parse_jet(use.path, text, use.delimiters)
    if tree is None:
        return []
    judge = Judge(Guards().over(use.guards), use.known.facts, template_part(name, text))
    JetNames(use.known, judge, _rendered(use, tell, find, judge)).file(tree, use.dot)
    return judge.findings


def _rendered(use: Use, tell: Tell, find: Find, judge: Judge) -> Callable[[str, Shape], None]:
    """Return a function that receives the path and the argument of a partial."""

    def render(path: str, dot: Shape) -> None:
        if use.tree and (result := find(use, path)):
            tell(path, msgspec.structs.replace(use, path=result, dot=dot, guards=judge.guards))

    return render


_WALKS: Mapping[str, Callable[[Use, str, Tell, Find, str], list[Finding]]] = {
    "jinja": _jinja,
    "go": _go,
    "jet": _jet,
}
