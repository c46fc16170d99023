"""Declarations as resources of Puller: titles, defaults, metaparameters, and functions that declare resources.

* The table ``types.yaml`` maps each attribute, and can name a function that completes the resource.
* Relationships are recorded here, and resolved by ``classes.py``.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from puller.authoring.importing.draft import (
    Origin,
    Outcome,
    Remark,
    Resource,
)
from puller.authoring.importing.puppet import file_types, system_types
from puller.authoring.importing.puppet.attributes import (
    Contents,
    Unfinished,
    Work,
    as_text,
    expression_of,
    has_expression,
)
from puller.authoring.importing.puppet.blocks import (
    Block,
    Title,
    loop_over,
    shown_title,
    titles_of,
)
from puller.authoring.importing.puppet.classes import RELATIONS, Classes, Endpoint, Relationships
from puller.authoring.importing.puppet.language.syntax import (
    Access,
    Attribute,
    Call,
    Default,
    HashLiteral,
    ListLiteral,
    Literal,
    Node,
    ResourceBody,
    ResourceDeclaration,
)
from puller.authoring.importing.puppet.programs import Program
from puller.authoring.importing.puppet.scopes import table
from puller.authoring.importing.written_expressions import Untranslatable, grouped

_METAPARAMETERS: Final = frozenset({"audit", "loglevel", "tag"})
"""Metaparameters that change nothing on a host."""
_REMARKS: Final = {
    "alias": "alias is not mapped: relationships need the title",
    "schedule": "schedule is not mapped: Puller applies the resource in each run",
    "stage": "stage is not mapped. Use `require` between children",
}
EXISTING: Final = "A condition on `defined` is left out: Puller accepts equal declarations of a resource"
PASSED: Final = "The value of a variable for `ensure` or `enable` passes unchanged"
FUNCTIONS: Final[Mapping[str, Callable[[Work, list[Resource]], list[Resource]]]] = {
    "apt_source": system_types.apt_source,
    "archive": file_types.archive,
    "authorized_key": system_types.authorized_key,
    "concat": file_types.concat,
    "concat_fragment": file_types.concat_fragment,
    "cron": system_types.cron,
    "exec_command": system_types.exec_command,
    "file": file_types.file,
    "file_line": file_types.file_line,
    "host": system_types.host,
    "ini_setting": file_types.ini_setting,
    "mailalias": system_types.mailalias,
    "package": system_types.package,
    "service": system_types.service,
    "alternative": system_types.alternative,
    "dropin_file": file_types.dropin_file,
    "unit_file": file_types.unit_file,
    "user": system_types.user,
    "vcsrepo": file_types.vcsrepo,
    "yumrepo": system_types.yumrepo,
}


class Declarations:
    """Maps declarations, and registers them for relationships."""

    def __init__(self, program: Program, links: Relationships, classes: Classes, contents: Contents) -> None:
        self.program = program
        self.draft = program.draft
        self.links = links
        self.classes = classes
        self.contents = contents

    def declare(self, node: ResourceDeclaration, block: Block) -> list[Endpoint]:
        """Map all bodies of a declaration, and return their objects."""
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
        subject = f"{'::'.join(part.capitalize() for part in kind.split('::'))}[{shown_title(body.title)}]"
        attributes = {item.name: item.value for item in block.defaults.get(kind, ())}
        attributes |= {item.name: item.value for item in body.attributes}
        reasons = [text for name, text in _REMARKS.items() if attributes.pop(name, None) is not None]
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
            elif spread is not None and self._is_define(kind):
                attributes |= self._spread(kind, spread, attributes)
            elif spread is not None:
                raise Untranslatable("the attributes come from a variable mapping")
            if kind == "class":
                return self.classes.declare_class(body, attributes, block)
            titles = titles_of(body.title, block)
        except Untranslatable as error:
            block.propose(origin, subject, kind, [str(error)], self._skeleton(kind, body.title, block))
            return []
        row = table()["types"].get(kind, {})
        if "none" in row:
            self.draft.note(origin, subject, Outcome.NO_CHANGE, str(row["none"]), kind)
            return []
        endpoints: list[Endpoint] = []
        for title in titles:
            try:
                endpoints += self._declare_title(
                    kind, title, dict(attributes), block, origin, subject, reasons
                )
            except Unfinished as unfinished:
                block.propose(origin, subject, kind, [str(unfinished)], unfinished.resources)
                return endpoints
            except Untranslatable as error:
                block.propose(origin, subject, kind, [str(error)], self._skeleton(kind, body.title, block))
                return endpoints
        outcome = Outcome.REMARK if reasons else Outcome.MAPPED
        self.draft.remarks.append(Remark(origin, subject, outcome, tuple(dict.fromkeys(reasons)), kind))
        return endpoints

    def _is_define(self, kind: str) -> bool:
        unit = self.program.units.get(kind)
        return unit is not None and unit.kind == "define"

    def _spread(self, kind: str, source: Node, attributes: Mapping[str, Node]) -> dict[str, Node]:
        """Return the parameters of a define from a variable mapping, with their defaults. Raises ``Untranslatable``."""
        unit = self.program.units[kind]
        result: dict[str, Node] = {}
        for item in unit.node.parameters if unit.node is not None else ():
            if item.name in attributes:
                continue
            if item.default is not None and not isinstance(item.default, (Literal, ListLiteral, HashLiteral)):
                raise Untranslatable(
                    f"the default of {item.name} of {kind} is variable, beside a variable mapping"
                )
            value: Node = Access(source, (Literal(item.name),), line=source.line)
            if item.default is not None and not (
                isinstance(item.default, Literal) and item.default.value is None
            ):
                value = Call("pick_default", (value, item.default), line=source.line)
            result[item.name] = value
        return result

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
        title: Title,
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
        related: dict[str, Node] = {name: attributes.pop(name) for name in RELATIONS if name in attributes}
        unit = self.program.units.get(kind)
        if unit is not None and unit.kind == "define":
            resources = [self.classes.apply_define(unit, title.value, attributes, scope, reasons)]
            self.classes.applied.setdefault(block.manifest.path, set()).add(unit.path)
        else:
            work = Work(
                kind, title.value, attributes, scope, self.contents.content_of, self.contents.find_source
            )
            resources = map_resource(work)
            reasons += work.reasons
        if isinstance(noop, Literal) and noop.value is True:
            for resource in resources:
                resource.properties["noop"] = True
        elif noop is not None and not isinstance(noop, Literal):
            reasons.append("a variable noop is not mapped: Puller changes the resource")
        block.add(resources, title, [f"{subject} ({origin})"])
        own.resources = resources
        self.links.register(own)
        reasons += self.classes.relate(related, [own], msgspec.structs.replace(block, scope=scope))
        return [own]

    def create_resources(self, node: Call, block: Block) -> None:
        """Map ``create_resources`` with a literal mapping, or of a define. Raises ``Untranslatable``."""
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
                self.declare(ResourceDeclaration(kind, (body,), line=node.line), block)
            return
        unit = self.program.units.get(kind)
        if unit is None or unit.kind != "define" or unit.node is None:
            raise Untranslatable(f"create_resources with the type {kind}. Write a loop with its properties")
        if block.obstacle:
            raise Untranslatable(block.obstacle)
        scope = block.scope
        loop, local = loop_over(source, ["title", "attributes"], scope)
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
        self.classes.applied.setdefault(block.manifest.path, set()).add(unit.path)
        resource = Resource("apply", f"bundle:{unit.path}", {"data": data})
        origin = block.origin(node)
        block.add([resource], Title("", loop), [f"create_resources({kind}) ({origin})"])
        self.draft.note(origin, f"create_resources({kind})", Outcome.MAPPED, "", kind)

    def declare_missing(self, node: Call, block: Block) -> list[Endpoint]:
        """Map the functions of stdlib that declare a resource unless it is declared. Raises ``Untranslatable``."""
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
        self.draft.assume(EXISTING)
        body = ResourceBody(title, pairs, line=node.line)
        return self.declare(ResourceDeclaration(kind, (body,), line=node.line), block)


def map_resource(work: Work) -> list[Resource]:
    """Return the resources for a declaration. Raises ``Untranslatable``."""
    row = table()["types"].get(work.type)
    if row is None:
        raise Untranslatable("the type has no counterpart")
    if "missing" in row:
        raise Untranslatable(row["missing"])
    resources = [_from_row(row, work)] if "attributes" in row else []
    if "function" in row:
        resources = FUNCTIONS[row["function"]](work, resources)
    work.finish()
    return resources


def _from_row(row: Mapping[str, Any], work: Work) -> Resource:
    properties: dict[str, Any] = {}
    name = work.name(row["name"]) if "name" in row else work.title
    for attribute, target in row["attributes"].items():
        node = work.raw(attribute)
        if node is None or target == "ignore":
            continue
        if isinstance(target, str):
            properties[target] = work.scope.value(node)
            continue
        if "remark" in target:
            work.remark(target["remark"])
            continue
        value = _converted(target, attribute, work, node)
        if value is not None:
            properties[target["to"]] = value
    return Resource(row["type"], name, {**row.get("default", {}), **properties})


def _converted(target: Mapping[str, Any], attribute: str, work: Work, node: Node) -> Any:
    value = work.scope.value(node)
    if "values" in target:
        values = target["values"]
        if has_expression(value):
            if target["to"] == "provider":
                work.remark("provider is variable, and is not mapped")
                return None
            work.scope.draft.assume(PASSED)
            return value
        if as_text(value) not in values:
            raise Untranslatable(f"{attribute} is {value!r}")
        return values[as_text(value)]
    form = target["as"]
    if form == "text":
        return as_text(value) if not isinstance(value, (list, dict)) else _refuse(attribute)
    if form == "boolean":
        return value in ("true", "yes") if value in ("true", "yes", "false", "no") else value
    if form == "number":
        return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value) else value
    expression = expression_of(value)
    if form == "list":
        if expression is not None and work.scope.kind(node).name != "list":
            return f"{{{{ [{expression}] | flatten }}}}"
        return value if isinstance(value, list) or expression is not None else [value]
    if form == "commas":
        if expression is not None:
            return f"{{{{ {grouped(expression)}.split(',') }}}}"
        return value if isinstance(value, list) else [part.strip() for part in str(value).split(",")]
    return value


def _refuse(attribute: str) -> Any:
    raise Untranslatable(f"{attribute} is a list or mapping")
