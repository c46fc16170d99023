"""Places of statements: the manifest, the conditions and loops around them, and the titles of declarations."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from puller.authoring.importing.draft import ManifestDraft, Origin, Outcome, Remark, Resource
from puller.authoring.importing.puppet.language.syntax import (
    Access,
    Assignment,
    Attribute,
    Call,
    Case,
    If,
    ListLiteral,
    Literal,
    Node,
    Text,
    Unary,
    Variable,
)
from puller.authoring.importing.puppet.programs import Unit
from puller.authoring.importing.puppet.puppet_expressions import Scope
from puller.authoring.importing.puppet.scopes import UNKNOWN, Kind
from puller.authoring.importing.written_expressions import (
    Untranslatable,
    all_of,
    any_of,
    grouped,
    negated,
    verify_expression,
)

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

    def unmapped(self, node: Node, subject: str, kind: str, reason: str) -> None:
        """Keep a statement as a comment."""
        self.propose(self.origin(node), subject, kind, [reason], [])

    def propose(
        self,
        origin: Origin,
        subject: str,
        kind: str,
        reasons: Sequence[str],
        resources: Sequence[Resource],
    ) -> None:
        """Keep resources as comments, with the reasons."""
        comments = [f"Not mapped: {subject} ({origin})"]
        comments += [f"Reason: {' '.join(reason.split())}." for reason in reasons]
        proposals = [msgspec.structs.replace(resource, disabled=True) for resource in resources]
        if not proposals:
            proposals = [Resource("", "", disabled=True)]
        proposals[0].comments = comments
        self.manifest.resources += proposals
        self.scope.draft.remarks.append(Remark(origin, subject, Outcome.UNMAPPED, tuple(reasons), kind))

    def add(self, resources: Sequence[Resource], title: "Title", comments: list[str]) -> None:
        """Add resources to the manifest, with the conditions and loops of their place."""
        loops = (*self.loops, title.loop) if title.loop else self.loops
        for resource in resources:
            if loops:
                resource.loop, resource.outer = loops[-1], loops[:-1]
            if self.conditions:
                resource.properties["control"] = {"if": all_of(self.conditions)}
            resource.comments = comments
        self.manifest.resources += resources


class Definition(msgspec.Struct, frozen=True):
    """A value of a variable with its condition."""

    condition: str
    plain: Any
    expression: str


def chosen(definitions: Sequence[Definition]) -> str:
    """Return the conditional expression for a variable that branches set. Without a branch, it is none."""
    result = "none"
    conditions = [definition.condition for definition in definitions]
    if len(conditions) > 1 and conditions[-1] == negated(any_of(conditions[:-1])):
        # The last branch is the only other case.
        definitions = [*definitions[:-1], msgspec.structs.replace(definitions[-1], condition="")]
    for definition in reversed(definitions):
        text = f"({definition.expression})" if " if " in definition.expression else definition.expression
        result = f"{text} if {definition.condition} else {grouped(result)}" if definition.condition else text
    return result


class Title(msgspec.Struct, frozen=True):
    """A title of a declaration, with the loop over titles from a list."""

    value: str
    loop: str = ""
    local: Mapping[str, tuple[str, Kind]] = {}


def titles_of(node: Node, block: Block) -> list[Title]:
    """Return the titles of a declaration. A list in a variable becomes a loop. Raises ``Untranslatable``."""
    if isinstance(node, ListLiteral):
        return [title for item in node.items for title in titles_of(item, block)]
    scope = block.scope
    value = scope.value(node)
    if isinstance(node, (Literal, Text)):
        return [Title(str(value))]
    kind = scope.kind(node)
    is_item = isinstance(node, Variable) and node.name in scope.local
    if kind.name in ("text", "number") or (is_item and kind.name == "unknown"):
        return [Title(str(value))]
    if kind.name in ("hash", "boolean"):
        raise Untranslatable("the title is a mapping or boolean")
    expression = scope.expression(node)
    text = f"[{expression}] | flatten" if kind.name == "unknown" else expression
    if kind.name == "list" and kind.optional:
        text = f"{grouped(expression)} or []"
    variable = free_name("item", scope)
    return [
        Title(f"{{{{ {variable} }}}}", f"{variable} in {text}", {variable: (variable, Kind("text", False))})
    ]


def loop_over(source: Node, names: Sequence[str], scope: Scope) -> tuple[str, dict[str, tuple[str, Kind]]]:
    """Return the ``for`` of a loop, and its variables. Raises ``Untranslatable``."""
    kind, text = scope.kind(source), scope.expression(source)
    verify_expression(text)
    variables = [free_name(name, scope) for name in names]
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


def free_name(name: str, scope: Scope) -> str:
    """Return a name for a loop variable that no other name hides."""
    taken = {expression for expression, _ in scope.local.values()} | _RESERVED
    result, number = name.lstrip("_") or "item", 2
    while result in taken:
        result, number = f"{name}_{number}", number + 1
    return result


def is_existence_test(node: Node) -> bool:
    """Return whether a condition only tests whether a resource is not declared."""
    if not isinstance(node, Unary) or node.operator != "!" or not isinstance(node.operand, Call):
        return False
    call = node.operand
    return (
        call.name in ("defined", "defined_with_params")
        and len(call.arguments) >= 1
        and isinstance(call.arguments[0], Access)
    )


def has_assignment(node: If | Case) -> bool:
    """Return whether a branch sets a variable."""
    bodies = [body for _, body in (node.branches if isinstance(node, If) else node.options)]
    bodies += [node.otherwise] if isinstance(node, If) else []
    return any(
        isinstance(item, Assignment) or (isinstance(item, (If, Case)) and has_assignment(item))
        for body in bodies
        for item in body
    )


def shown_title(node: Node) -> str:
    """Return a title for messages."""
    match node:
        case Literal():
            return str(node.value)
        case Variable():
            return f"${node.name}"
        case Text():
            return "".join(
                part if isinstance(part, str) else f"${{{shown_title(part).removeprefix('$')}}}"
                for part in node.parts
            )
        case ListLiteral():
            return ", ".join(shown_title(item) for item in node.items)
        case Access():
            return f"{shown_title(node.target)}[{', '.join(shown_title(key) for key in node.keys)}]"
    return "…"
