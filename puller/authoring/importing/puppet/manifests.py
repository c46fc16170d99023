"""Bodies of classes and defines as manifests of the draft.

* Each class and each define becomes a manifest. ``include`` becomes an ``apply`` of the class, and a resource of a
  define becomes an ``apply`` with data.
* Conditions become ``control``, loops become ``for``, and a statement without a counterpart becomes a comment.
* Relationships are collected, and resolved after all units are mapped (``relationships.py``).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from puller.authoring.importing.draft import (
    ManifestDraft,
    Origin,
    Outcome,
    Remark,
    Resource,
    slug,
    unique_name,
)
from puller.authoring.importing.puppet.declared_resource import Unfinished, Work, has_expression
from puller.authoring.importing.puppet.expression_texts import any_of, grouped, negated, python_regex
from puller.authoring.importing.puppet.expressions import Scope
from puller.authoring.importing.puppet.lexer import SyntaxProblem
from puller.authoring.importing.puppet.programs import Module, Program, Unit, assigned
from puller.authoring.importing.puppet.relationships import Endpoint, Relationships
from puller.authoring.importing.puppet.resources import map_resource
from puller.authoring.importing.puppet.scopes import UNKNOWN, Kind, table
from puller.authoring.importing.puppet.syntax import (
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
    HashLiteral,
    If,
    ListLiteral,
    Literal,
    Node,
    NodeDefinition,
    Opaque,
    Regex,
    ResourceBody,
    ResourceDeclaration,
    ResourceDefaults,
    ResourceOverride,
    Text,
    TypeName,
    Unary,
    Variable,
)
from puller.authoring.importing.puppet.templates import Converted, convert_template, template_name
from puller.authoring.importing.written_expressions import Untranslatable, all_of, literal, verify_expression
from puller.errors import SourceError

_METAPARAMETERS: Final = frozenset({"alias", "audit", "loglevel", "schedule", "stage", "tag"})
_RELATIONS: Final = ("require", "before", "notify", "subscribe")
_RESERVED: Final = frozenset(
    {"facts", "data", "hiera", "template", "file", "environ", "lookup", "read_file", "loop", "range", "dict"}
    | {
        "none",
        "true",
        "false",
        "not",
        "and",
        "or",
        "in",
        "is",
        "if",
        "else",
        "undef",
        "omit",
        "value",
        "render",
    }
)
_EXISTING: Final = "A condition on `defined` is left out: Puller accepts equal declarations of a resource"
_DECLARED: Final = (
    "The values of a class declaration are defaults of the data, so the Hiera tree overrides them"
)
_CONDITIONAL_CLASS: Final = (
    "The values of a class declaration apply whatever the condition of the declaration"
)


class Block(msgspec.Struct, frozen=True):
    """The place of a statement."""

    unit: Unit
    manifest: ManifestDraft
    scope: Scope
    conditions: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    defaults: Mapping[str, tuple[Attribute, ...]] = {}
    obstacle: str = ""
    """Why all resources here are only proposals."""

    def with_condition(self, condition: str) -> "Block":
        """Return the place in a branch."""
        return msgspec.structs.replace(self, conditions=(*self.conditions, condition))

    def blocked(self, reason: str) -> "Block":
        """Return the place in a branch whose condition has no counterpart."""
        return msgspec.structs.replace(self, obstacle=self.obstacle or reason)

    def origin(self, node: Node) -> Origin:
        """Return the place of a node in the source."""
        return Origin(self.unit.file, node.line)


class _Title(msgspec.Struct, frozen=True):
    value: str
    loop: str = ""
    local: Mapping[str, tuple[str, Kind]] = {}


class _Definition(msgspec.Struct, frozen=True):
    """A value of a variable with its condition."""

    condition: str
    plain: Any
    expression: str


class UnitMapper:
    """Maps all units of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.draft = program.draft
        self.links = Relationships(program.draft)
        self.definitions: dict[tuple[str, str], list[_Definition]] = {}
        """By unit and variable."""
        self.explicit: dict[tuple[str, str], Any] = {}
        """Parameters of class declarations, by class and parameter."""
        self.applied: dict[str, set[str]] = {}
        """Manifests that a manifest applies."""
        self._labels: set[str] = set()
        self._texts: dict[tuple[str, str], Node] = {}
        """Templates that a variable contains, by unit and variable."""
        self._converted: dict[tuple[str, str], str] = {}
        self._template_parameters: dict[str, Converted] = {}

    # Units.

    def map_unit(self, unit: Unit) -> None:
        """Add the manifest of a unit."""
        manifest = self.manifest(unit)
        scope = msgspec.structs.replace(self.program.scope_of(unit), render=self._render)
        defaults = {
            item.type.lower(): item.attributes for item in unit.body if isinstance(item, ResourceDefaults)
        }
        block = Block(unit, manifest, scope, defaults=defaults)
        if isinstance(unit.node, ClassDefinition) and unit.node.parent:
            parent = unit.node.parent.removeprefix("::")
            self._apply_class(parent, block, unit.node)
        self._parameters(unit, manifest, scope)
        self._texts |= {
            (scope.owner, name): values[0]
            for name, values in assigned(unit.body).items()
            if len(values) == 1 and isinstance(values[0], Call) and values[0].name in ("template", "epp")
        }
        self._statements(unit.body, block)
        self._variables(unit, manifest)

    def manifest(self, unit: Unit) -> ManifestDraft:
        """Return the manifest of a unit. The first call creates it."""
        if unit.path not in self.draft.manifests:
            comment = f"The {unit.kind} {unit.name}, from {unit.file}."
            self.draft.manifests[unit.path] = ManifestDraft(unit.path, [comment])
        return self.draft.manifests[unit.path]

    def _parameters(self, unit: Unit, manifest: ManifestDraft, scope: Scope) -> None:
        if unit.node is None:
            return
        for parameter in unit.node.parameters:
            key = self._key(unit, parameter.name)
            if parameter.default is None:
                manifest.data[key] = None
                continue
            try:
                manifest.data[key] = msgspec.structs.replace(scope, render=None).value(parameter.default)
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
            if len(definitions) == 1 and not definitions[0].condition:
                manifest.data[key] = definitions[0].plain
                continue
            result = "none"
            conditions = [definition.condition for definition in definitions]
            if len(conditions) > 1 and conditions[-1] == negated(any_of(conditions[:-1])):
                # The last branch is the only other case.
                definitions = [*definitions[:-1], msgspec.structs.replace(definitions[-1], condition="")]
            for definition in reversed(definitions):
                text = definition.expression
                text = f"({text})" if " if " in text else text
                result = (
                    f"{text} if {definition.condition} else {grouped(result)}"
                    if definition.condition
                    else text
                )
            manifest.data[key] = f"{{{{ {result} }}}}"

    # Statements.

    def _statements(self, body: Sequence[Node], block: Block) -> None:
        for node in body:
            self._statement(node, block)

    def _statement(self, node: Node, block: Block) -> list[Endpoint]:
        match node:
            case Assignment():
                self._assign(node, block)
            case ResourceDeclaration():
                return self._declare(node, block)
            case Call():
                return self._call(node, block)
            case If():
                self._if(node, block)
            case Case():
                self._case(node, block)
            case Chain():
                self._chain(node, block)
            case Access():
                return self._references(node, block)
            case ListLiteral():
                return [endpoint for item in node.items for endpoint in self._statement(item, block)]
            case ResourceOverride():
                self._unmapped(node, block, "an override of a resource", "", "change the declaration itself")
            case Collector():
                self._unmapped(
                    node,
                    block,
                    f"{node.type} <| {node.query} |>",
                    "",
                    "collectors have no counterpart. Use references",
                )
            case NodeDefinition():
                self._node(node, block)
            case (
                ResourceDefaults() | ClassDefinition() | Define() | Opaque() | Literal() | Variable() | Text()
            ):
                pass
            case _:
                self._unmapped(node, block, "a statement", "", "the statement has no counterpart")
        return []

    def _unmapped(self, node: Node, block: Block, subject: str, kind: str, reason: str) -> None:
        """Keep a statement as a comment."""
        self._propose(block, block.origin(node), subject, kind, [reason], [])

    def _propose(
        self,
        block: Block,
        origin: Origin,
        subject: str,
        kind: str,
        reasons: Sequence[str],
        resources: Sequence[Resource],
    ) -> None:
        comments = [f"Not mapped: {subject} ({origin})"]
        comments += [f"Reason: {' '.join(reason.split())}." for reason in reasons]
        proposals = [msgspec.structs.replace(resource, disabled=True) for resource in resources]
        if not proposals:
            proposals = [Resource("", "", disabled=True)]
        proposals[0].comments = comments
        block.manifest.resources += proposals
        self.draft.remarks.append(Remark(origin, subject, Outcome.UNMAPPED, tuple(reasons), kind))

    def _assign(self, node: Assignment, block: Block) -> None:
        if not isinstance(node.target, Variable):
            self._unmapped(
                node, block, "an assignment of several variables", "variable", "assign them one by one"
            )
            return
        name = node.target.name
        if (block.scope.owner, name) in self._texts:
            # The declarations that use the variable have the template.
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
        except Untranslatable as error:
            self._note_variable(block.unit, name, node.line, str(error))
            plain, expression = None, "none"
        condition = all_of(block.conditions) if block.conditions else ""
        self.definitions.setdefault((block.unit.path, name), []).append(
            _Definition(condition, plain, expression)
        )

    def _if(self, node: If, block: Block) -> None:
        previous: list[str] = []
        obstacle = ""
        for condition, body in node.branches:
            if _is_existence(condition):
                self.draft.assume(_EXISTING)
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
                    tests.append(f"{name} is search({literal(python_regex(item.pattern))})")
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
        self.draft.assume("A node matches by the fully qualified name of the host, not by its certificate")
        self._statements(node.body, block.with_condition(any_of(tests)))

    def _node_tests(self, block: Block) -> list[str]:
        tests = []
        for node in block.unit.body:
            for item in node.matches if isinstance(node, NodeDefinition) else ():
                if isinstance(item, Regex):
                    tests.append(f"facts.networking.fqdn is search({literal(item.pattern)})")
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

    # References.

    def _references(self, node: Node, block: Block) -> list[Endpoint]:
        """Return the objects that ``Type['title']`` or a list of references names."""
        if isinstance(node, ListLiteral):
            return [endpoint for item in node.items for endpoint in self._references(item, block)]
        if not isinstance(node, Access) or not isinstance(node.target, TypeName):
            return []
        kind = node.target.name.lower()
        endpoints = []
        for key in node.keys:
            for item in key.items if isinstance(key, ListLiteral) else (key,):
                try:
                    title = str(block.scope.value(item))
                except Untranslatable:
                    continue
                title = title.removeprefix("::") if kind == "class" else title
                endpoints.append(Endpoint(kind, title, block.manifest.path, path=self._class_path(title)))
        return endpoints

    def _class_path(self, name: str) -> str:
        unit = self.program.units.get(name)
        return unit.path if unit is not None and unit.kind == "class" else ""

    def _relate(self, attributes: dict[str, Node], own: Sequence[Endpoint], block: Block) -> list[str]:
        """Remove the relationships from the attributes, and record them. Returns remarks."""
        reasons = []
        for name in _RELATIONS:
            node = attributes.pop(name, None)
            if node is None or (isinstance(node, Literal) and node.value is None):
                continue
            others = self._references(node, block)
            if not others and not (isinstance(node, ListLiteral) and not node.items):
                reasons.append(f"{name} is variable, and is not mapped")
            if name in ("require", "subscribe"):
                self.links.add(others, own, refresh=name == "subscribe")
            else:
                self.links.add(own, others, refresh=name == "notify")
        return reasons

    # Resources.

    def _declare(self, node: ResourceDeclaration, block: Block) -> list[Endpoint]:
        kind = node.type.removeprefix("::").lower()
        base: list[Attribute] = []
        endpoints: list[Endpoint] = []
        for body in node.bodies:
            if isinstance(body.title, Literal) and body.title.value is Default.DEFAULT:
                base = list(body.attributes)
                continue
            merged = msgspec.structs.replace(body, attributes=(*base, *body.attributes))
            endpoints += self._declare_body(kind, node.form, merged, block)
        return endpoints

    def _declare_body(self, kind: str, form: str, body: ResourceBody, block: Block) -> list[Endpoint]:
        origin = block.origin(body)
        subject = f"{'::'.join(part.capitalize() for part in kind.split('::'))}[{_shown(body.title)}]"
        attributes = {item.name: item.value for item in block.defaults.get(kind, ())}
        attributes |= {item.name: item.value for item in body.attributes}
        for name in _METAPARAMETERS:
            attributes.pop(name, None)
        try:
            if form:
                raise Untranslatable(
                    "exported resources become exports"
                    if form == "@@"
                    else "virtual resources have no counterpart"
                )
            if isinstance(spread := attributes.pop("*", None), HashLiteral):
                attributes |= {
                    str(key.value): value for key, value in spread.pairs if isinstance(key, Literal)
                }
            elif spread is not None:
                raise Untranslatable("the attributes come from a variable mapping")
            if kind == "class":
                return self._declare_class(body, attributes, block)
            titles = self._titles(body.title, block)
        except Untranslatable as error:
            self._propose(block, origin, subject, kind, [str(error)], self._skeleton(kind, body.title, block))
            return []
        row = table()["types"].get(kind, {})
        if "none" in row:
            self.draft.note(origin, subject, Outcome.NO_CHANGE, str(row["none"]), kind)
            return []
        endpoints: list[Endpoint] = []
        reasons: list[str] = []
        for title in titles:
            try:
                endpoints += self._declare_title(
                    kind, title, dict(attributes), block, origin, subject, reasons
                )
            except Unfinished as unfinished:
                self._propose(block, origin, subject, kind, [str(unfinished)], unfinished.resources)
                return endpoints
            except Untranslatable as error:
                self._propose(
                    block, origin, subject, kind, [str(error)], self._skeleton(kind, body.title, block)
                )
                return endpoints
        outcome = Outcome.REMARK if reasons else Outcome.MAPPED
        self.draft.remarks.append(Remark(origin, subject, outcome, tuple(dict.fromkeys(reasons)), kind))
        return endpoints

    def _skeleton(self, kind: str, title: Node, block: Block) -> list[Resource]:
        """Return a proposal that names the counterpart of a type."""
        row = table()["types"].get(kind, {})
        target = row.get("type", row.get("counterpart", ""))
        if not target or not isinstance(title, Literal):
            return []
        return [Resource(target, str(title.value), {})]

    def _declare_title(
        self,
        kind: str,
        title: _Title,
        attributes: dict[str, Node],
        block: Block,
        origin: Origin,
        subject: str,
        reasons: list[str],
    ) -> list[Endpoint]:
        """Add the resources for one title. Raises ``Untranslatable``."""
        if block.obstacle:
            raise Untranslatable(block.obstacle)
        scope = block.scope.with_local(title.local)
        if title.local:
            name, kind_of = next(iter(title.local.values()))
            scope = scope.with_local({"title": (name, kind_of), "name": (name, kind_of)})
        noop = attributes.pop("noop", None)
        own = Endpoint(kind, title.value, block.manifest.path)
        related: dict[str, Node] = {name: attributes.pop(name) for name in _RELATIONS if name in attributes}
        unit = self.program.units.get(kind)
        if unit is not None and unit.kind == "define":
            resources = [self._apply_define(unit, title.value, attributes, scope, reasons)]
            self.applied.setdefault(block.manifest.path, set()).add(unit.path)
        else:
            work = Work(kind, title.value, attributes, scope, self._content, self._find_source)
            resources = map_resource(work)
            reasons += work.reasons
        if isinstance(noop, Literal) and noop.value is True:
            for resource in resources:
                resource.properties["noop"] = True
        self._add(resources, title, block, [f"{subject} ({origin})"])
        own.resources = resources
        self.links.register(own)
        reasons += self._relate(related, [own], msgspec.structs.replace(block, scope=scope))
        return [own]

    def _add(self, resources: Sequence[Resource], title: _Title, block: Block, comments: list[str]) -> None:
        """Add resources to the manifest, with the conditions and loops of their place."""
        loops = (*block.loops, title.loop) if title.loop else block.loops
        for resource in resources:
            if loops:
                resource.loop, resource.outer = loops[-1], loops[:-1]
            if block.conditions:
                resource.properties["control"] = {"if": all_of(block.conditions)}
            resource.comments = comments
        block.manifest.resources += resources

    def _titles(self, node: Node, block: Block) -> list[_Title]:
        """Return the titles of a declaration. A list in a variable becomes a loop. Raises ``Untranslatable``."""
        if isinstance(node, ListLiteral):
            return [title for item in node.items for title in self._titles(item, block)]
        scope = block.scope
        value = scope.value(node)
        if isinstance(node, (Literal, Text)):
            return [_Title(str(value))]
        kind = scope.kind(node)
        is_item = isinstance(node, Variable) and node.name in scope.local
        if kind.name in ("text", "number") or (is_item and kind.name == "unknown"):
            return [_Title(str(value))]
        if kind.name in ("hash", "boolean"):
            raise Untranslatable("the title is a mapping or boolean")
        expression = scope.expression(node)
        text = f"[{expression}] | flatten" if kind.name == "unknown" else expression
        if kind.name == "list" and kind.optional:
            text = f"{grouped(expression)} or []"
        variable = _free_name("item", scope)
        return [
            _Title(
                f"{{{{ {variable} }}}}", f"{variable} in {text}", {variable: (variable, Kind("text", False))}
            )
        ]

    # Classes and defines.

    def _apply_class(self, name: str, block: Block, node: Node) -> list[Endpoint]:
        name = name.removeprefix("::")
        origin = block.origin(node)
        unit = self.program.units.get(name)
        subject = f"Class[{name}]"
        if unit is None or unit.kind != "class":
            reason = "the class is not part of the source. Import its module separately"
            self._propose(block, origin, subject, "class", [reason], [])
            return []
        endpoint = Endpoint("class", name, block.manifest.path, path=unit.path)
        if block.obstacle:
            self._propose(block, origin, subject, "class", [block.obstacle], [])
            return [endpoint]
        if block.unit.kind == "define":
            self.draft.assume(
                "A class that a define includes must be applied by the manifest that uses the define"
            )
            self.draft.note(
                origin, subject, Outcome.REMARK, f"the define needs {unit.path} in the bundle", "class"
            )
            return [endpoint]
        if self.leads_to(unit.path, block.manifest.path):
            self.draft.assume("A class that includes a class above itself does not apply it again")
            self.draft.note(origin, subject, Outcome.MAPPED, "", "class")
            return [endpoint]
        self.applied.setdefault(block.manifest.path, set()).add(unit.path)
        resource = Resource("apply", f"bundle:{unit.path}")
        if block.loops:
            self.draft.assume("A class in a loop is applied once")
        self._add(
            [resource], _Title(name), msgspec.structs.replace(block, loops=()), [f"{subject} ({origin})"]
        )
        self.draft.note(origin, subject, Outcome.MAPPED, "", "class")
        return [endpoint]

    def leads_to(self, start: str, target: str) -> bool:
        """Return whether a manifest applies another manifest, directly or through children."""
        pending, seen = [start], set()
        while pending:
            path = pending.pop()
            if path == target:
                return True
            if path not in seen:
                seen.add(path)
                pending += self.applied.get(path, ())
        return False

    def _declare_class(self, body: ResourceBody, attributes: dict[str, Node], block: Block) -> list[Endpoint]:
        titles = self._titles(body.title, block)
        endpoints = []
        for title in titles:
            if title.loop or has_expression(title.value):
                raise Untranslatable("the name of the class is variable")
            name = title.value.removeprefix("::")
            unit = self.program.units.get(name)
            endpoints += self._apply_class(name, block, body)
            own = [Endpoint("class", name, block.manifest.path, path=self._class_path(name))]
            values = dict(attributes)
            for reason in self._relate(values, own, block):
                self.draft.note(block.origin(body), f"Class[{name}]", Outcome.REMARK, reason, "class")
            if unit is None or unit.kind != "class":
                continue
            for key, node in values.items():
                self._set_parameter(unit, key, node, block, body)
        return endpoints

    def _set_parameter(self, unit: Unit, key: str, node: Node, block: Block, body: ResourceBody) -> None:
        subject = f"{unit.name}::{key}"
        origin = Origin(block.unit.file, node.line or body.line)
        try:
            if unit.node is None or key not in {item.name for item in unit.node.parameters}:
                raise Untranslatable("the class has no such parameter")
            if block.loops or block.unit.kind == "define":
                raise Untranslatable("a class has one value, but the declaration is in a loop or define")
            if (unit.name, key) in self.explicit:
                raise Untranslatable("another declaration of the class sets this parameter")
            if isinstance(node, Literal) and node.value is None:
                return
            self.explicit[unit.name, key] = block.scope.value(node)
        except Untranslatable as error:
            self.draft.note(origin, subject, Outcome.UNMAPPED, str(error), "variable")
            block.manifest.comments.append(f"Not mapped: the value of {subject} ({origin}): {error}.")
            return
        self.draft.assume(_DECLARED)
        if block.conditions:
            self.draft.assume(_CONDITIONAL_CLASS)

    def _apply_define(
        self, unit: Unit, title: str, attributes: dict[str, Node], scope: Scope, reasons: list[str]
    ) -> Resource:
        """Return the child for a resource of a define. Raises ``Untranslatable``."""
        data: dict[str, Any] = {"title": title}
        names = {item.name for item in unit.node.parameters} if unit.node is not None else set()
        for name, node in attributes.items():
            if isinstance(node, Literal) and node.value is None:
                continue
            if name not in names:
                reasons.append(f"the define has no parameter {name}")
                continue
            data[name] = scope.value(node)
        for item in unit.node.parameters if unit.node is not None else ():
            if item.default is None and item.name not in data:
                data[item.name] = None
                reasons.append(f"the parameter {item.name} has no value")
        return Resource("apply", f"bundle:{unit.path}", {"data": data})

    # Calls.

    def _call(self, node: Call, block: Block) -> list[Endpoint]:
        name, arguments = node.name, node.arguments
        try:
            if name in ("include", "contain", "require", "hiera_include"):
                return self._include(node, block)
            if name == "each":
                self._each(node, block)
            elif name == "create_resources":
                self._create_resources(node, block)
            elif name in (
                "ensure_packages",
                "ensure_resource",
                "ensure_resources",
                "stdlib::ensure_packages",
            ):
                return self._ensure(node, block)
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
            self._unmapped(node, block, f"{name}()", "function", str(error))
        return []

    def _include(self, node: Call, block: Block) -> list[Endpoint]:
        endpoints: list[Endpoint] = []
        pending: list[Node] = list(node.arguments)
        if node.name == "hiera_include" and pending:
            pending = [Call("hiera_array", tuple(pending), line=node.line)]
        while pending:
            item = pending.pop(0)
            if isinstance(item, ListLiteral):
                pending = [*item.items, *pending]
            elif isinstance(item, Literal) and isinstance(item.value, str):
                endpoints += self._apply_class(item.value, block, node)
            elif (
                isinstance(item, Access) and isinstance(item.target, TypeName) and item.target.name == "Class"
            ):
                pending = [*item.keys, *pending]
            elif isinstance(item, Call) and item.name in ("lookup", "hiera_array", "hiera"):
                self._include_from_data(item, block, node)
            else:
                raise Untranslatable("the name of the class is variable")
        if node.name == "require":
            self.draft.assume("`require` of a class orders it only before the relationships of the source")
        return endpoints

    def _include_from_data(self, item: Call, block: Block, node: Node) -> None:
        if block.obstacle or block.loops:
            raise Untranslatable(block.obstacle or "classes from data in a loop")
        expression = block.scope.expression(item)
        verify_expression(expression)
        resource = Resource("apply", "bundle:classes/{{ class | replace('::', '/') }}.yaml")
        origin = block.origin(node)
        title = _Title("", f"class in {expression}")
        self._add([resource], title, block, [f"Classes from data ({origin})"])
        self.draft.note(origin, "classes from data", Outcome.MAPPED, "", "class")
        self.draft.check("Classes from data: each class that the data name needs a manifest in `classes`.")

    def _each(self, node: Call, block: Block) -> None:
        if node.block is None or not node.arguments:
            raise Untranslatable("each lacks a block")
        source, parameters = node.arguments[0], node.block.parameters
        loop, local = self._loop(source, [item.name for item in parameters], block.scope)
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
            elif isinstance(node, (If, Case)) and _assigns(node):
                block = block.blocked(f"a branch in line {node.line} sets a variable in a loop")
                self._statement(node, block)
            else:
                self._statement(node, block)

    def _loop(
        self, source: Node, names: Sequence[str], scope: Scope
    ) -> tuple[str, dict[str, tuple[str, Kind]]]:
        """Return the ``for`` of a loop, and its variables. Raises ``Untranslatable``."""
        kind, text = scope.kind(source), scope.expression(source)
        verify_expression(text)
        variables = [_free_name(name, scope) for name in names]
        local = {name: (variable, UNKNOWN) for name, variable in zip(names, variables, strict=True)}
        empty = "{}" if len(names) == 2 else "[]"
        if kind.optional and kind.name != "unknown":
            text = f"{grouped(text)} or {empty}"
        if len(names) == 1:
            if kind.name == "hash":
                raise Untranslatable("a loop over the pairs of a mapping with one variable")
            if kind.name == "unknown":
                text = f"[{text}] | flatten(1)"
            return f"{variables[0]} in {text}", local
        if len(names) != 2 or kind.name == "list":
            raise Untranslatable("a loop with the index of a list")
        if kind.name == "unknown":
            scope.draft.assume("A loop with two variables expects a mapping")
        local[names[0]] = (variables[0], Kind("text", optional=False))
        return f"{variables[0]}, {variables[1]} in {text}", local

    def _create_resources(self, node: Call, block: Block) -> None:
        if len(node.arguments) < 2 or not isinstance(node.arguments[0], Literal):
            raise Untranslatable("the type of create_resources is variable")
        kind = str(node.arguments[0].value).removeprefix("::").removeprefix("@").lower()
        source = node.arguments[1]
        base = node.arguments[2] if len(node.arguments) > 2 else HashLiteral(())
        if not isinstance(base, HashLiteral):
            raise Untranslatable("the defaults of create_resources are variable")
        defaults = {str(key.value): value for key, value in base.pairs if isinstance(key, Literal)}
        if isinstance(source, HashLiteral) and all(
            isinstance(value, HashLiteral) for _, value in source.pairs
        ):
            for title, value in source.pairs:
                pairs = value.pairs if isinstance(value, HashLiteral) else ()
                own = {str(key.value): item for key, item in pairs if isinstance(key, Literal)}
                items = tuple(
                    Attribute(name, item, line=node.line) for name, item in {**defaults, **own}.items()
                )
                body = ResourceBody(title, items, line=node.line)
                self._declare(ResourceDeclaration(kind, (body,), line=node.line), block)
            return
        unit = self.program.units.get(kind)
        if unit is None or unit.kind != "define" or unit.node is None:
            raise Untranslatable(f"create_resources with the type {kind}. Write a loop with its properties")
        if block.obstacle:
            raise Untranslatable(block.obstacle)
        scope = block.scope
        loop, local = self._loop(source, ["title", "attributes"], scope)
        name, attributes = local["title"][0], local["attributes"][0]
        data: dict[str, Any] = {"title": f"{{{{ {name} }}}}"}
        inner = self.program.scope_of(unit)
        for item in unit.node.parameters:
            default = defaults.get(item.name, item.default)
            text = "none"
            if default is not None:
                own_scope = scope if item.name in defaults else inner
                text = own_scope.expression(default)
                if own_scope is inner and re.search(r"\bdata\.", text):
                    raise Untranslatable(f"the default of {item.name} depends on another parameter of {kind}")
            data[item.name] = f"{{{{ {attributes}.get('{item.name}', {text}) }}}}"
        self.applied.setdefault(block.manifest.path, set()).add(unit.path)
        resource = Resource("apply", f"bundle:{unit.path}", {"data": data})
        origin = block.origin(node)
        self._add([resource], _Title("", loop), block, [f"create_resources({kind}) ({origin})"])
        self.draft.note(origin, f"create_resources({kind})", Outcome.MAPPED, "", kind)

    def _ensure(self, node: Call, block: Block) -> list[Endpoint]:
        """Map the functions of stdlib that declare a resource unless it is declared."""
        arguments = list(node.arguments)
        kind = "package"
        if not node.name.endswith("ensure_packages"):
            first = arguments.pop(0) if arguments else None
            if not isinstance(first, Literal):
                raise Untranslatable("the type is variable")
            kind = str(first.value)
        if not arguments:
            raise Untranslatable("the titles are missing")
        title = arguments[0]
        given = arguments[1] if len(arguments) > 1 else HashLiteral(())
        if not isinstance(given, HashLiteral) or isinstance(title, HashLiteral):
            raise Untranslatable("the attributes are variable")
        pairs = tuple(
            Attribute(str(key.value), value, line=node.line)
            for key, value in given.pairs
            if isinstance(key, Literal)
        )
        self.draft.assume(_EXISTING)
        body = ResourceBody(title, pairs, line=node.line)
        return self._declare(ResourceDeclaration(kind, (body,), line=node.line), block)

    # Files and templates.

    def _find_source(self, path: str) -> str:
        """Return the path in the draft for ``module/path``. Raises ``Untranslatable``."""
        name, _, inner = path.partition("/")
        module = self.program.modules.get(name)
        if module is None:
            raise Untranslatable(f"the module {name} is not part of the source")
        place = module.path("files", inner)
        if "{{" not in inner and not (
            self.program.tree.is_file(place) or self.program.tree.is_directory(place)
        ):
            raise Untranslatable(f"the file {place} is missing in the source")
        return f"bundle:files/{name}/{inner}"

    def _content(self, scope: Scope, node: Node) -> dict[str, Any]:
        """Return the properties for the content of a file. Raises ``Untranslatable``."""
        if isinstance(node, Variable) and (scope.owner, node.name) in self._texts:
            node = self._texts[scope.owner, node.name]
        if isinstance(node, Call) and node.name in ("template", "epp") and node.block is None:
            return self._template(scope, node)
        return {"content": scope.value(node)}

    def _template(self, scope: Scope, node: Call) -> dict[str, Any]:
        name = template_name(node)
        if name is None:
            raise Untranslatable("the name of the template is variable")
        passed = node.arguments[1] if len(node.arguments) > 1 else None
        if node.name == "template" and len(node.arguments) > 1:
            raise Untranslatable("the content joins several templates. Use fragments")
        path = self._convert(scope, name, is_ruby=node.name == "template")
        properties: dict[str, Any] = {"template": f"bundle:{path}"}
        parameters = self._template_parameters[path].parameters
        if passed is None and not parameters:
            return properties
        if passed is not None and not isinstance(passed, HashLiteral):
            raise Untranslatable("the values for the template are variable")
        data: dict[str, Any] = {}
        for item in parameters:
            if item.default is not None:
                data[item.name] = scope.value(item.default)
        for key, value in passed.pairs if passed is not None else ():
            if isinstance(key, Literal):
                data[str(key.value)] = scope.value(value)
        return {**properties, "data": data}

    def _render(self, scope: Scope, node: Call) -> str:
        """Return the expression for a template or a file in a value. Raises ``Untranslatable``."""
        name = template_name(node)
        if name is None or len(node.arguments) > 1:
            raise Untranslatable(f"{node.name} with variable arguments in a value")
        if node.name == "file":
            return f"read_file({literal(self._find_source(name))})"
        path = self._convert(scope, name, is_ruby=node.name == "template")
        if self._template_parameters[path].parameters:
            raise Untranslatable("a template with parameters in a value")
        return f"template({literal(f'bundle:{path}')})"

    def _convert(self, scope: Scope, name: str, *, is_ruby: bool) -> str:
        """Return the path of the converted template. Raises ``Untranslatable``."""
        if (name, scope.owner) in self._converted:
            return self._converted[name, scope.owner]
        module_name, _, inner = name.partition("/")
        module: Module | None = self.program.modules.get(module_name)
        if module is None:
            raise Untranslatable(f"the module {module_name} is not part of the source")
        source = module.path("templates", inner)
        try:
            text = self.program.tree.text(source)
        except SourceError as error:
            raise Untranslatable(f"the template cannot be read: {error.message}") from None
        unit_scope = msgspec.structs.replace(scope, local={}, render=None)
        try:
            converted = convert_template(text, unit_scope, is_ruby=is_ruby)
        except (Untranslatable, SyntaxProblem) as error:
            self.draft.files[f"templates/{name}"] = text.encode()
            self.draft.check(
                f"The template {source} is not converted: {error}. The draft contains the original."
            )
            raise Untranslatable(f"the template {source} is not plain: {error}") from None
        path = f"templates/{re.sub(r'[.](erb|epp)$', '', name)}.j2"
        if path in self.draft.files and self.draft.files[path] != converted.text.encode():
            path = f"templates/{slug(scope.owner)}/{re.sub(r'[.](erb|epp)$', '', name)}.j2"
        self.draft.files[path] = converted.text.encode()
        self._converted[name, scope.owner] = path
        self._template_parameters[path] = converted
        return path

    def label(self, resource: Resource) -> str:
        """Return the label of a resource in a loop."""
        if not resource.label:
            resource.label = unique_name(slug(f"{resource.type} {resource.name}"), self._labels)
        return resource.label


def _free_name(name: str, scope: Scope) -> str:
    """Return a name for a loop variable that no other name hides."""
    taken = {expression for expression, _ in scope.local.values()} | _RESERVED
    result, number = name.lstrip("_") or "item", 2
    while result in taken:
        result, number = f"{name}_{number}", number + 1
    return result


def _is_existence(node: Node) -> bool:
    """Return whether a condition only tests whether a resource is not declared."""
    if not isinstance(node, Unary) or node.operator != "!" or not isinstance(node.operand, Call):
        return False
    call = node.operand
    return (
        call.name in ("defined", "defined_with_params")
        and len(call.arguments) >= 1
        and isinstance(call.arguments[0], Access)
    )


def _assigns(node: If | Case) -> bool:
    bodies = [body for _, body in (node.branches if isinstance(node, If) else node.options)]
    bodies += [node.otherwise] if isinstance(node, If) else []
    return any(
        isinstance(item, Assignment) or (isinstance(item, (If, Case)) and _assigns(item))
        for body in bodies
        for item in body
    )


def _shown(node: Node) -> str:
    """Return a title for messages."""
    match node:
        case Literal():
            return str(node.value)
        case Variable():
            return f"${node.name}"
        case Text():
            return "".join(
                part if isinstance(part, str) else f"${{{_shown(part).removeprefix('$')}}}"
                for part in node.parts
            )
        case ListLiteral():
            return ", ".join(_shown(item) for item in node.items)
        case Access():
            return f"{_shown(node.target)}[{', '.join(_shown(key) for key in node.keys)}]"
    return "…"
