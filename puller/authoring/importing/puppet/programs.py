"""The source of an import: modules, their manifests, and the names that they define.

* A module has ``manifests``. A control repository has modules in ``site``, ``site-modules``, ``modules`` or ``dist``.
* A file with invalid syntax is skipped and listed. All other files are imported.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from puller.authoring.importing.draft import Draft
from puller.authoring.importing.puppet.language.lexer import SyntaxProblem
from puller.authoring.importing.puppet.language.puppet_parser import parse
from puller.authoring.importing.puppet.language.syntax import (
    Assignment,
    Case,
    ClassDefinition,
    Define,
    If,
    Node,
    NodeDefinition,
    Opaque,
    Variable,
)
from puller.authoring.importing.puppet.puppet_expressions import Scope
from puller.authoring.importing.puppet.scopes import Kind, Names, parameters_kinds
from puller.authoring.importing.reading import SourceTree
from puller.errors import SourceError

_MODULE_DIRECTORIES: Final = ("site", "site-modules", "modules", "dist")


class Module(msgspec.Struct):
    """A module of the source."""

    name: str
    directory: str
    """Its path in the source. Empty for the source itself."""

    def path(self, *parts: str) -> str:
        """Return a path of the source in the module."""
        return "/".join(part for part in (self.directory, *parts) if part)


class Unit(msgspec.Struct):
    """A class, a define, or the statements outside of classes."""

    name: str
    kind: str
    """``class``, ``define`` or ``top``."""
    module: str
    file: str
    path: str
    """Path of the manifest in the draft."""
    node: ClassDefinition | Define | None
    body: tuple[Node, ...]
    own: dict[str, Kind] = {}


class Program(msgspec.Struct):
    """Everything that the source defines."""

    tree: SourceTree
    draft: Draft
    modules: dict[str, Module] = {}
    units: dict[str, Unit] = {}
    """Classes and defines by name."""
    tops: list[Unit] = []
    names: Names = msgspec.field(default_factory=Names)
    is_repository: bool = False
    metadata: dict[str, Any] = {}

    def scope_of(self, unit: Unit) -> Scope:
        """Return the names for the body of a unit."""
        return Scope(
            self.names,
            self.draft,
            owner="" if unit.kind == "top" else unit.name,
            is_define=unit.kind == "define",
            module=unit.module,
            own=unit.own,
        )


def load_program(tree: SourceTree, draft: Draft, single: str = "") -> Program:
    """Read a module, a control repository, or a single manifest. Raises ``SourceError``."""
    program = Program(tree, draft)
    if single:
        module = Module(re.sub(r"\W", "_", single.removesuffix(".pp")), "")
        program.modules[module.name] = module
        _load_file(program, module, single)
    else:
        _find_modules(program)
        for module in program.modules.values():
            for path in tree.files(module.path("manifests")):
                if path.endswith(".pp"):
                    _load_file(program, module, path)
            for path in tree.files(module.path("types")):
                if path.endswith(".pp"):
                    _load_file(program, module, path)
        if program.is_repository:
            site = Module("", "")
            for path in tree.files("manifests"):
                if path.endswith(".pp"):
                    _load_file(program, site, path)
    _index(program)
    return program


def _find_modules(program: Program) -> None:
    tree = program.tree
    for directory in _MODULE_DIRECTORIES:
        names = {path.split("/")[1] for path in tree.files(directory) if path.count("/") > 1}
        for name in sorted(names):
            place = f"{directory}/{name}"
            if any(tree.is_directory(f"{place}/{folder}") for folder in ("manifests", "files", "templates")):
                program.modules.setdefault(name, Module(name, place))
    if program.modules:
        program.is_repository = True
        return
    if not tree.is_directory("manifests"):
        raise SourceError(f"{tree.root}: is neither a module nor a control repository: it has no manifests")
    name = ""
    if tree.is_file("metadata.json"):
        try:
            value = json.loads(tree.text("metadata.json"))
        except (ValueError, RecursionError) as error:
            program.draft.note_unreadable("metadata.json", str(error))
        else:
            program.metadata = value if isinstance(value, dict) else {}
            name = re.split(r"[-/]", str(program.metadata.get("name", "")), maxsplit=1)[-1]
    if not re.fullmatch(r"[a-z]\w*", name):
        name = re.sub(r"\W", "_", tree.root.name.rpartition("-")[2]) or "module"
    program.modules[name] = Module(name, "")


def _load_file(program: Program, module: Module, path: str) -> None:
    try:
        statements = parse(program.tree.text(path))
    except SyntaxProblem as problem:
        program.draft.note_unreadable(path, f"line {problem.line}: {problem.message}")
        return
    except SourceError as error:
        program.draft.note_unreadable(path, error.message)
        return
    others = [item for item in statements if not _add_definition(program, module, path, item)]
    if others:
        program.tops.append(Unit("", "top", module.name, path, "manifest.yaml", None, tuple(others)))


def _add_definition(program: Program, module: Module, path: str, statement: Node, outer: str = "") -> bool:
    if isinstance(statement, Opaque):
        if statement.kind == "type" and statement.value is not None:
            program.names.aliases[statement.name] = statement.value
        else:
            program.draft.check(
                f"{path}:{statement.line}: the {statement.kind} {statement.name} is not imported."
            )
        return True
    if not isinstance(statement, (ClassDefinition, Define)):
        return False
    kind = "class" if isinstance(statement, ClassDefinition) else "define"
    name = statement.name.removeprefix("::")
    name = f"{outer}::{name}" if outer and "::" not in name else name
    folder = "classes" if kind == "class" else "defines"
    place = f"{folder}/{name.replace('::', '/')}.yaml"
    if name in program.units:
        program.draft.check(
            f"{path}:{statement.line}: {name} is defined twice. The first definition is imported."
        )
        return True
    program.units[name] = Unit(name, kind, module.name, path, place, statement, statement.body)
    for inner in statement.body:
        _add_definition(program, module, path, inner, name)
    return True


def _index(program: Program) -> None:
    """Record the variables of all units, with their kinds."""
    units = [*program.tops, *program.units.values()]
    for unit in units:
        if unit.kind == "class":
            program.names.classes.add(unit.name)
            if isinstance(unit.node, ClassDefinition) and unit.node.parent:
                program.names.parents[unit.name] = unit.node.parent.removeprefix("::")
        for name in assigned(unit.body):
            unit.own[name] = Kind()
        if unit.node is not None:
            unit.own |= parameters_kinds(program.scope_of(unit), unit.node.parameters)
        _publish(program, unit)
    # The kind of a variable can depend on another variable.
    for _ in range(2):
        for unit in units:
            scope = program.scope_of(unit)
            for name, nodes in assigned(unit.body).items():
                kinds = [scope.kind(node) for node in nodes]
                if len({kind.name for kind in kinds}) == 1:
                    unit.own[name] = Kind(kinds[0].name, any(kind.optional for kind in kinds))
            if unit.node is not None:
                for parameter in unit.node.parameters:
                    if unit.own[parameter.name].name == "unknown" and parameter.type is None:
                        unit.own[parameter.name] = scope.kind(parameter.default)
            _publish(program, unit)


def _publish(program: Program, unit: Unit) -> None:
    if unit.kind == "class":
        program.names.kinds |= {f"{unit.name}::{name}": kind for name, kind in unit.own.items()}
    elif unit.kind == "top":
        program.names.kinds |= unit.own


def assigned(body: Sequence[Node]) -> dict[str, list[Node]]:
    """Return the values of all variables that a body sets outside of loops."""
    result: dict[str, list[Node]] = {}
    for node in _assignments(body):
        if isinstance(node.target, Variable):
            result.setdefault(node.target.name, []).append(node.value)
    return result


def _assignments(body: Sequence[Node]) -> Iterator[Assignment]:
    for node in body:
        if isinstance(node, Assignment):
            yield node
        elif isinstance(node, If):
            for _, inner in node.branches:
                yield from _assignments(inner)
            yield from _assignments(node.otherwise)
        elif isinstance(node, Case):
            for _, inner in node.options:
                yield from _assignments(inner)
        elif isinstance(node, NodeDefinition):
            yield from _assignments(node.body)
