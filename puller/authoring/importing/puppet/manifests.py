"""Bodies of classes and defines as manifests of the draft.

* Each class and each define becomes a manifest. ``include`` becomes an ``apply`` of the class, and a resource of a
  define becomes an ``apply`` with data.
* Conditions become ``control``, loops become ``for``, and a statement without a counterpart becomes a comment.
* Relationships are collected, and resolved after all units are mapped (``classes.py``).
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from puller.authoring.importing.draft import ManifestDraft, Origin, Outcome, Resource, slug, unique_name
from puller.authoring.importing.puppet.attributes import Contents, is_template
from puller.authoring.importing.puppet.blocks import (
    Block,
    Definition,
    chosen,
    has_assignment,
    is_existence_test,
    loop_over,
)
from puller.authoring.importing.puppet.classes import Classes, Endpoint, Relationships
from puller.authoring.importing.puppet.declarations import EXISTING, Declarations
from puller.authoring.importing.puppet.language.syntax import (
    Access,
    Assignment,
    Attribute,
    Call,
    Case,
    Chain,
    ClassDefinition,
    Collector,
    Default,
    Define,
    If,
    ListLiteral,
    Literal,
    Node,
    NodeDefinition,
    Opaque,
    Regex,
    ResourceDeclaration,
    ResourceDefaults,
    ResourceOverride,
    Text,
    Variable,
)
from puller.authoring.importing.puppet.programs import Program, Unit, assigned
from puller.authoring.importing.puppet.puppet_expressions import Scope
from puller.authoring.importing.puppet.scopes import table
from puller.authoring.importing.written_expressions import (
    Untranslatable,
    all_of,
    any_of,
    grouped,
    literal,
    negated,
    verify_expression,
)

_DEFAULTS: Final = (
    "Defaults of resources in a class apply to its own declarations. "
    "In Puppet, they also apply to classes and defines that it uses, unless these set own values"
)
_SAME_KEY: Final = "the lookup has the key of the variable. The Hiera tree sets it"
_TYPES: Final = "The types of parameters are not checked. Use annotations in data"


class UnitMapper:
    """Maps all units of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.draft = program.draft
        self.links = Relationships(program.draft)
        self.classes = Classes(program, self.links)
        self.contents = Contents(program)
        self.declarations = Declarations(program, self.links, self.classes, self.contents)
        self.definitions: dict[tuple[str, str], list[Definition]] = {}
        """By unit and variable."""
        self._labels: set[str] = set()

    # Units.

    def map_unit(self, unit: Unit) -> None:
        """Add the manifest of a unit."""
        manifest = self.manifest(unit)
        scope = msgspec.structs.replace(
            self.program.scope_of(unit), render=self.contents.render, inlined=self.contents.inlined
        )
        defaults = self._defaults(unit)
        block = Block(unit, manifest, scope, defaults=defaults)
        if isinstance(unit.node, ClassDefinition) and unit.node.parent:
            parent = unit.node.parent.removeprefix("::")
            self.classes.apply_class(parent, block, unit.node)
        self._parameters(unit, manifest, scope)
        self.contents.texts |= {
            (scope.owner, name): values[0]
            for name, values in assigned(unit.body).items()
            if len(values) == 1 and is_template(values[0])
        }
        self.contents.choices |= {
            (scope.owner, name): []
            for name, values in assigned(unit.body).items()
            if len(values) > 1 and any(is_template(value) for value in values)
        }
        self._statements(unit.body, block)
        self._variables(unit, manifest)

    def _defaults(self, unit: Unit) -> dict[str, tuple[Attribute, ...]]:
        """Return the defaults of resources: those of the unit, and of the statements outside of classes."""
        defaults: dict[str, tuple[Attribute, ...]] = {}
        for source in [*(top for top in self.program.tops if top is not unit), unit]:
            for item in source.body:
                if isinstance(item, ResourceDefaults):
                    kind = item.type.lower()
                    defaults[kind] = (*defaults.get(kind, ()), *item.attributes)
                    if source is unit and unit.kind == "class":
                        self.draft.assume(_DEFAULTS)
        return defaults

    def manifest(self, unit: Unit) -> ManifestDraft:
        """Return the manifest of a unit. The first call creates it."""
        if unit.path not in self.draft.manifests:
            comment = f"The {unit.kind} {unit.name}, from {unit.file}."
            self.draft.manifests[unit.path] = ManifestDraft(unit.path, [comment])
        return self.draft.manifests[unit.path]

    def _parameters(self, unit: Unit, manifest: ManifestDraft, scope: Scope) -> None:
        if unit.node is None:
            return
        if any(parameter.type is not None for parameter in unit.node.parameters):
            self.draft.assume(_TYPES)
        for parameter in unit.node.parameters:
            key = self._key(unit, parameter.name)
            if parameter.default is None:
                manifest.data[key] = None
                continue
            try:
                value = msgspec.structs.replace(scope, render=None).value(parameter.default)
                if f"data['{key}']" in str(value):
                    raise Untranslatable(_SAME_KEY)
                manifest.data[key] = value
            except Untranslatable as error:
                manifest.data[key] = None
                self._note_variable(unit, parameter.name, parameter.line or unit.node.line, str(error))
        if unit.kind == "define":
            manifest.data.setdefault("title", None)

    @staticmethod
    def _key(unit: Unit, name: str) -> str:
        return f"{unit.name}::{name}" if unit.kind == "class" else name

    def _note_variable(self, unit: Unit, name: str, line: int, reason: str) -> None:
        origin = Origin(unit.file, line)
        self.draft.note(origin, f"${name}", Outcome.UNMAPPED, reason, "variable")
        comment = f"Not mapped: the value of {self._key(unit, name)} ({origin}): {reason}."
        self.draft.manifests[unit.path].comments.append(comment)

    def _variables(self, unit: Unit, manifest: ManifestDraft) -> None:
        """Add the variables of the unit to its data. Branches become one conditional expression."""
        for (place, name), definitions in self.definitions.items():
            if place != unit.path or (unit.kind == "top" and name not in unit.own):
                continue
            key = self._key(unit, name)
            if self.contents.inlined("" if unit.kind == "top" else unit.name, name) is not None:
                continue
            if len(definitions) == 1 and not definitions[0].condition:
                manifest.data[key] = definitions[0].plain
                continue
            manifest.data[key] = f"{{{{ {chosen(definitions)} }}}}"

    # Statements.

    def _statements(self, body: Sequence[Node], block: Block) -> None:
        for node in body:
            self._statement(node, block)

    def _statement(self, node: Node, block: Block) -> list[Endpoint]:
        match node:
            case Assignment():
                self._assign(node, block)
            case ResourceDeclaration():
                return self.declarations.declare(node, block)
            case Call():
                return self._call(node, block)
            case If():
                self._if(node, block)
            case Case():
                self._case(node, block)
            case Chain():
                self._chain(node, block)
            case Access():
                return self.classes.references(node, block)
            case ListLiteral():
                return [endpoint for item in node.items for endpoint in self._statement(item, block)]
            case ResourceOverride():
                block.unmapped(node, "an override of a resource", "", "change the declaration itself")
            case Collector():
                block.unmapped(
                    node,
                    f"{node.type} <| {node.query} |>",
                    "",
                    "collectors have no counterpart. Use references",
                )
            case NodeDefinition():
                self._node(node, block)
            case ResourceDefaults() if block.conditions or block.loops or block.obstacle:
                reason = "defaults in a branch have no counterpart. Write them into the declarations"
                block.unmapped(node, f"defaults of {node.type}", "", reason)
            case (
                ResourceDefaults() | ClassDefinition() | Define() | Opaque() | Literal() | Variable() | Text()
            ):
                pass
            case _:
                block.unmapped(node, "a statement", "", "the statement has no counterpart")
        return []

    def _assign(self, node: Assignment, block: Block) -> None:
        if not isinstance(node.target, Variable):
            block.unmapped(node, "an assignment of several variables", "variable", "assign them one by one")
            return
        name = node.target.name
        if (block.scope.owner, name) in self.contents.texts:
            # The declarations that use the variable have the template.
            return
        if (choices := self.contents.choices.get((block.scope.owner, name))) is not None:
            self._choose(node, name, choices, block)
            return
        if block.loops:
            return  # _statements_of_loop has added it to the scope.
        try:
            if block.obstacle:
                raise Untranslatable(block.obstacle)
            # Data have no function `template`.
            scope = msgspec.structs.replace(block.scope, render=None)
            plain = scope.value(node.value)
            expression = scope.expression(node.value)
            verify_expression(expression)
            if f"data['{self._key(block.unit, name)}']" in expression:
                raise Untranslatable(_SAME_KEY)
        except Untranslatable as error:
            self._note_variable(block.unit, name, node.line, str(error))
            plain, expression = None, "none"
        condition = all_of(block.conditions) if block.conditions else ""
        self.definitions.setdefault((block.unit.path, name), []).append(
            Definition(condition, plain, expression)
        )

    def _choose(self, node: Assignment, name: str, choices: list[Definition], block: Block) -> None:
        """Record a branch of a variable that can contain a template."""
        expression = "none"
        try:
            if block.obstacle:
                raise Untranslatable(block.obstacle)
            expression = block.scope.expression(node.value)
            verify_expression(expression)
        except Untranslatable as error:
            self._note_variable(block.unit, name, node.line, str(error))
        condition = all_of(block.conditions) if block.conditions else ""
        choices.append(Definition(condition, None, expression))
        self.definitions[block.unit.path, name] = choices

    def _if(self, node: If, block: Block) -> None:
        previous: list[str] = []
        obstacle = ""
        for condition, body in node.branches:
            if is_existence_test(condition):
                self.draft.assume(EXISTING)
                self._statements(body, self._branch(block, previous, obstacle))
                continue
            try:
                text = block.scope.condition(condition)
                verify_expression(text)
            except Untranslatable as error:
                obstacle = f"the condition in line {condition.line} has no counterpart: {error}"
                self._statements(body, block.blocked(obstacle))
                continue
            inner = self._branch(block, previous, obstacle)
            self._statements(body, inner.with_condition(text) if text != "true" else inner)
            previous.append(text)
        if node.otherwise:
            self._statements(node.otherwise, self._branch(block, previous, obstacle))

    @staticmethod
    def _branch(block: Block, previous: Sequence[str], obstacle: str) -> Block:
        """Return the place of a branch after other branches."""
        if obstacle:
            block = block.blocked(obstacle)
        return block.with_condition(negated(any_of(previous))) if previous else block

    def _case(self, node: Case, block: Block) -> None:
        tests: list[str] = []
        obstacle = ""
        branches: list[tuple[str, tuple[Node, ...]]] = []
        default: tuple[Node, ...] = ()
        for options, body in node.options:
            is_default = any(
                isinstance(option, Literal) and option.value is Default.DEFAULT for option in options
            )
            if is_default:
                default = body
                continue
            try:
                text = any_of([block.scope.test(node.subject, option) for option in options])
                verify_expression(text)
            except Untranslatable as error:
                obstacle = f"the case in line {node.line} has no counterpart: {error}"
                self._statements(body, block.blocked(obstacle))
                continue
            branches.append((text, body))
        for text, body in branches:
            inner = block.blocked(obstacle) if obstacle else block
            self._statements(body, inner.with_condition(text))
            tests.append(text)
        if default:
            self._statements(default, self._branch(block, tests, obstacle))

    def _node(self, node: NodeDefinition, block: Block) -> None:
        name = "facts.networking.fqdn"
        tests = []
        for item in node.matches:
            if isinstance(item, Regex):
                try:
                    tests.append(f"{name} is search({literal(block.scope.regex(item.pattern))})")
                except Untranslatable as error:
                    self._statements(node.body, block.blocked(str(error)))
                    return
            elif isinstance(item, Literal) and item.value is not Default.DEFAULT:
                tests.append(f"{name} == {literal(item.value)}")
        if any(isinstance(item, Literal) and item.value is Default.DEFAULT for item in node.matches):
            others = self._node_tests(block)
            inner = block.with_condition(negated(any_of(others))) if others else block
            self._statements(node.body, inner)
            return
        self.draft.assume(
            "A node matches by the fully qualified name of the host, not by its certificate. "
            "If several nodes match a host, the draft applies all of them, and Puppet only one"
        )
        self._statements(node.body, block.with_condition(any_of(tests)))

    def _node_tests(self, block: Block) -> list[str]:
        tests = []
        for node in block.unit.body:
            for item in node.matches if isinstance(node, NodeDefinition) else ():
                if isinstance(item, Regex):
                    tests.append(
                        f"facts.networking.fqdn is search({literal(block.scope.regex(item.pattern))})"
                    )
                elif isinstance(item, Literal) and item.value is not Default.DEFAULT:
                    tests.append(f"facts.networking.fqdn == {literal(item.value)}")
        return tests

    def _chain(self, node: Chain, block: Block) -> None:
        groups = [self._statement(operand, block) for operand in node.operands]
        for index, operator in enumerate(node.operators):
            first, second = groups[index], groups[index + 1]
            if operator in ("<-", "<~"):
                first, second = second, first
            self.links.add(first, second, refresh=operator in ("~>", "<~"))

    def _call(self, node: Call, block: Block) -> list[Endpoint]:
        name, arguments = node.name, node.arguments
        try:
            if name in ("include", "contain", "require", "hiera_include"):
                return self.classes.include(node, block)
            if name == "each":
                self._each(node, block)
            elif name == "create_resources":
                self.declarations.create_resources(node, block)
            elif name in (
                "ensure_packages",
                "ensure_resource",
                "ensure_resources",
                "stdlib::ensure_packages",
            ):
                return self.declarations.declare_missing(node, block)
            elif name == "fail":
                reason = "a check: use `@validate` in data"
                self.draft.note(block.origin(node), "fail", Outcome.NO_CHANGE, reason, name)
            elif name in table()["checks"]:
                self.draft.note(block.origin(node), name, Outcome.NO_CHANGE, "a check or a message", name)
            elif name == "realize":
                raise Untranslatable("virtual resources have no counterpart")
            elif name in ("with", "then") and node.block is not None and arguments:
                raise Untranslatable(f"the function {name} has a block")
            elif name in ("return", "break", "next"):
                raise Untranslatable(f"{name} ends the evaluation. Use a condition")
            else:
                raise Untranslatable(f"the function {name} has no counterpart")
        except Untranslatable as error:
            block.unmapped(node, f"{name}()", "function", str(error))
        return []

    def _each(self, node: Call, block: Block) -> None:
        if node.block is None or not node.arguments:
            raise Untranslatable("each lacks a block")
        source, parameters = node.arguments[0], node.block.parameters
        loop, local = loop_over(source, [item.name for item in parameters], block.scope)
        inner = msgspec.structs.replace(
            block, scope=block.scope.with_local(local), loops=(*block.loops, loop)
        )
        self._statements_of_loop(node.block.body, inner)

    def _statements_of_loop(self, body: Sequence[Node], block: Block) -> None:
        """Map the statements of a loop. Its variables are replaced by their expressions."""
        for node in body:
            if isinstance(node, Assignment) and isinstance(node.target, Variable):
                try:
                    text, kind = block.scope.expression(node.value), block.scope.kind(node.value)
                    verify_expression(text)
                except Untranslatable as error:
                    block = block.blocked(f"${node.target.name} in line {node.line} is not mapped: {error}")
                    continue
                scope = block.scope.with_local({node.target.name: (grouped(text), kind)})
                block = msgspec.structs.replace(block, scope=scope)
            elif isinstance(node, (If, Case)) and has_assignment(node):
                block = block.blocked(f"a branch in line {node.line} sets a variable in a loop")
                self._statement(node, block)
            else:
                self._statement(node, block)

    def label(self, resource: Resource) -> str:
        """Return the label of a resource in a loop."""
        if not resource.label:
            resource.label = unique_name(slug(f"{resource.type} {resource.name}"), self._labels)
        return resource.label
