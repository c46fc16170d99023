"""The names of templates of Jinja2: statements, and the names that they set.

* A name that a template sets anywhere is one of its own: where exactly it is set, is not followed.
* Names of loops, macros and ``with`` are those of their bodies.
"""

from __future__ import annotations

from collections.abc import Iterable

from jinja2 import nodes

from puller.authoring.lint.names.jinja_values import OWN, JinjaValues
from puller.authoring.lint.shapes import ANY, SCALAR, Shape, union


class JinjaNames(JinjaValues):
    """The walk through a whole template."""

    def template(self, tree: nodes.Template, stored: frozenset[str]) -> None:
        """Follow a whole template; ``stored`` are the names that it sets for what comes after."""
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
        # Whoever calls it has set more by then than stands above it.
        own = {name: ANY for name in self.stored if name not in self.known.names}
        self._body(node.body, {**names, **own, **dict.fromkeys((one.name for one in node.args), ANY)})

    def _included(
        self, node: nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends, names: dict[str, Shape]
    ) -> None:
        self._value(node.template, names)
        own = {name: ANY for name in (*self.stored, *OWN) if name not in self.known.names}
        further = {name: shape for name, shape in names.items() if self.known.names.get(name) is not shape}
        written = node.template
        for one in written.items if isinstance(written, nodes.List | nodes.Tuple) else [written]:
            if isinstance(path := getattr(one, "value", None), str):
                self.used(path, {**own, **further}, False)
