"""Classes and defines, and their relationships: ``include``, declarations of classes, references, and orders.

* Relationships become ``require``, ``subscribe`` and ``reload``. They are resolved after all units are mapped, because
  they can name a later resource.
* A refresh reaches services and commands. For other resources, it is only an order.
* A relationship with an object that the draft does not contain is left out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from puller.authoring.importing.draft import Draft, ManifestDraft, Origin, Outcome, Resource
from puller.authoring.importing.puppet.attributes import has_expression
from puller.authoring.importing.puppet.blocks import Block, Title, titles_of
from puller.authoring.importing.puppet.language.syntax import (
    Access,
    Call,
    ListLiteral,
    Literal,
    Node,
    ResourceBody,
    TypeName,
)
from puller.authoring.importing.puppet.programs import Program, Unit
from puller.authoring.importing.puppet.puppet_expressions import Scope
from puller.authoring.importing.written_expressions import Untranslatable, verify_expression

_REFRESHED: Final = frozenset({"service", "exec"})
_GUARDS: Final = frozenset({"creates", "onlyif", "unless"})
_NOT_ALWAYS: Final = "the manifest of the target can be applied without it"
RELATIONS: Final = ("require", "before", "notify", "subscribe")
_DECLARED: Final = (
    "The values of a class declaration are defaults of the data, so the Hiera tree overrides them"
)
_CONDITIONAL_CLASS: Final = (
    "The values of a class declaration apply whatever the condition of the declaration"
)


class Endpoint(msgspec.Struct):
    """An object of a relationship: a resource by type and title, or a class by its manifest."""

    type: str
    title: str
    manifest: str
    """Path of the manifest that names it."""
    resources: list[Resource] = []
    path: str = ""
    """Path of the manifest of a class."""


class _Link(msgspec.Struct, frozen=True):
    first: Sequence[Endpoint]
    second: Sequence[Endpoint]
    refresh: bool


class Relationships:
    """All relationships of a draft."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._links: list[_Link] = []
        self._leads_to: Callable[[str, str], bool] = lambda start, target: start == target
        self._declared: dict[tuple[str, str], list[Endpoint]] = {}

    def add(self, first: Sequence[Endpoint], second: Sequence[Endpoint], *, refresh: bool) -> None:
        """Record that the first objects come before the second objects."""
        if first and second:
            self._links.append(_Link(first, second, refresh))

    def register(self, endpoint: Endpoint) -> None:
        """Record the resources of a declaration."""
        self._declared.setdefault((endpoint.type, endpoint.title), []).append(endpoint)

    def resolve(self, label: Callable[[Resource], str], leads_to: Callable[[str, str], bool]) -> None:
        """Write all relationships into the resources. ``leads_to`` returns whether a manifest applies another one."""
        self._leads_to = leads_to
        homes = {
            id(resource): manifest
            for manifest in self.draft.manifests.values()
            for resource in manifest.resources
        }
        for link in self._links:
            for target, target_home in self._targets(link.second, homes, refresh=link.refresh):
                references = []
                for endpoint in link.first:
                    references += self._references(endpoint, target, target_home, homes, label)
                if references:
                    _extend(target, references, refresh=link.refresh)
                    if link.refresh and target.type == "apply" and self._has_hidden_services(target):
                        self.draft.check(
                            f"{target_home}: a refresh of {target.type}#{target.name} reaches no services and commands "
                            "of its children. Let them subscribe."
                        )

    def _resources(self, endpoint: Endpoint) -> list[Resource]:
        if endpoint.resources:
            return endpoint.resources
        candidates = self._declared.get((endpoint.type, endpoint.title), [])
        own = [item for item in candidates if item.manifest == endpoint.manifest]
        return [resource for item in own or candidates for resource in item.resources]

    def _applies(self, path: str) -> list[Resource]:
        return [
            resource
            for manifest in self.draft.manifests.values()
            for resource in manifest.resources
            if resource.type == "apply" and resource.name == f"bundle:{path}" and not resource.disabled
        ]

    def _targets(
        self, endpoints: Sequence[Endpoint], homes: Mapping[int, ManifestDraft], *, refresh: bool
    ) -> list[tuple[Resource, str]]:
        targets: list[tuple[Resource, str]] = []
        for endpoint in endpoints:
            if endpoint.type != "class":
                targets += [
                    (resource, homes[id(resource)].path)
                    for resource in self._resources(endpoint)
                    if id(resource) in homes and not resource.disabled
                ]
                continue
            if not endpoint.path:
                continue
            targets += [(resource, homes[id(resource)].path) for resource in self._applies(endpoint.path)]
            manifest = self.draft.manifests.get(endpoint.path)
            if refresh and manifest is not None:
                targets += [
                    (resource, manifest.path)
                    for resource in manifest.resources
                    if resource.type in _REFRESHED and not resource.disabled
                ]
        return targets

    def _references(
        self,
        endpoint: Endpoint,
        target: Resource,
        target_home: str,
        homes: Mapping[int, ManifestDraft],
        label: Callable[[Resource], str],
    ) -> list[str]:
        if endpoint.type == "class":
            manifest = self.draft.manifests.get(endpoint.path)
            is_known = manifest is not None and bool(self._applies(endpoint.path))
            if not is_known:
                self._leave_out(
                    target, target_home, f"class {endpoint.title}", "the draft does not apply the class"
                )
                return []
            if self._contains(endpoint.path, target, target_home):
                return []
            if not self._is_visible(endpoint.path, target_home):
                self._leave_out(target, target_home, f"class {endpoint.title}", _NOT_ALWAYS)
                return []
            return [f"apply#bundle:{endpoint.path}"]
        references: list[str] = []
        resources = self._resources(endpoint)
        if not resources:
            name = f"{endpoint.type} {endpoint.title}"
            self._leave_out(target, target_home, name, "the draft has no such resource")
        for resource in resources:
            home = homes.get(id(resource))
            if home is None or resource.disabled or resource.identity == target.identity:
                # A declaration of a key and its user are one resource.
                continue
            if target.type == "apply" and self._leads_to(target.name.removeprefix("bundle:"), home.path):
                continue
            if resource.type == "apply" and self._leads_to(
                resource.name.removeprefix("bundle:"), target_home
            ):
                continue
            name = f"{resource.type}#{resource.name} of {home.path}"
            if not self._is_visible(home.path, target_home):
                self._leave_out(target, target_home, name, _NOT_ALWAYS)
                continue
            if home.path.startswith("defines/") and home.path != target_home:
                self._leave_out(target, target_home, name, "a define is applied several times")
                continue
            is_same_loop = resource.loop == target.loop and resource.outer == target.outer
            if (resource.loop and not is_same_loop) or resource.type == "apply":
                references.append(f"label#{label(resource)}")
            else:
                references.append(f"{resource.type}#{resource.name}")
        return references

    def _has_hidden_services(self, target: Resource) -> bool:
        """Return whether a child has services or commands that a refresh of the child does not reach."""
        manifest = self.draft.manifests.get(target.name.removeprefix("bundle:"))
        kinds = {item.type for item in manifest.resources if not item.disabled} if manifest else set()
        return "apply" in kinds or (target.name.startswith("bundle:defines/") and bool(kinds & _REFRESHED))

    def _leave_out(self, target: Resource, home: str, first: str, reason: str) -> None:
        """Name an order that the draft lacks."""
        self.draft.check(
            f"{home}: the order of {target.type}#{target.name} after {first} is left out, because {reason}."
        )

    def _contains(self, path: str, target: Resource, target_home: str) -> bool:
        """Return whether a class and a target contain each other."""
        inner = target.name.removeprefix("bundle:") if target.type == "apply" else target_home
        return self._leads_to(path, target_home) or self._leads_to(inner, path)

    def _is_visible(self, path: str, home: str) -> bool:
        """Return whether the resources of a manifest exist wherever the manifest with the target is applied."""
        return path == home or self._leads_to("manifest.yaml", path)


def _extend(target: Resource, references: Sequence[str], *, refresh: bool) -> None:
    key = "require"
    if refresh and target.type in _REFRESHED:
        key = "reload" if "reload" in target.properties else "subscribe"
        if target.type == "exec" and _GUARDS & set(target.properties):
            # In Puppet, the guards of a command also decide about a refresh.
            target.properties["guard_refresh"] = True
    present = target.properties.setdefault(key, [])
    present += [reference for reference in references if reference not in present]


class Classes:
    """Applies the manifests of classes and defines."""

    def __init__(self, program: Program, links: Relationships) -> None:
        self.program = program
        self.draft = program.draft
        self.links = links
        self.explicit: dict[tuple[str, str], Any] = {}
        """Parameters of class declarations, by class and parameter."""
        self.applied: dict[str, set[str]] = {}
        """Manifests that a manifest applies."""

    def apply_class(self, name: str, block: Block, node: Node) -> list[Endpoint]:
        """Apply a class, and return it as the object of relationships."""
        name = name.removeprefix("::")
        origin = block.origin(node)
        unit = self.program.units.get(name)
        subject = f"Class[{name}]"
        if unit is None or unit.kind != "class":
            reason = "the class is not part of the source. Import its module separately"
            block.propose(origin, subject, "class", [reason], [])
            return []
        endpoint = Endpoint("class", name, block.manifest.path, path=unit.path)
        if block.obstacle:
            block.propose(origin, subject, "class", [block.obstacle], [])
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
        msgspec.structs.replace(block, loops=()).add([resource], Title(name), [f"{subject} ({origin})"])
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

    def declare_class(self, body: ResourceBody, attributes: dict[str, Node], block: Block) -> list[Endpoint]:
        """Apply the classes of a declaration, and set their parameters. Raises ``Untranslatable``."""
        titles = titles_of(body.title, block)
        endpoints = []
        for title in titles:
            if title.loop or has_expression(title.value):
                raise Untranslatable("the name of the class is variable")
            name = title.value.removeprefix("::")
            unit = self.program.units.get(name)
            endpoints += self.apply_class(name, block, body)
            own = [Endpoint("class", name, block.manifest.path, path=self._class_path(name))]
            values = dict(attributes)
            for reason in self.relate(values, own, block):
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

    def apply_define(
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

    def include(self, node: Call, block: Block) -> list[Endpoint]:
        """Apply the classes of ``include`` and its relatives. Raises ``Untranslatable``."""
        endpoints: list[Endpoint] = []
        pending: list[Node] = list(node.arguments)
        if node.name == "hiera_include" and pending:
            pending = [Call("hiera_array", tuple(pending), line=node.line)]
        while pending:
            item = pending.pop(0)
            if isinstance(item, ListLiteral):
                pending = [*item.items, *pending]
            elif isinstance(item, Literal) and isinstance(item.value, str):
                endpoints += self.apply_class(item.value, block, node)
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
        title = Title("", f"class in {expression}")
        block.add([resource], title, [f"Classes from data ({origin})"])
        self.draft.note(origin, "classes from data", Outcome.MAPPED, "", "class")
        self.draft.check("Classes from data: each class that the data name needs a manifest in `classes`.")

    def references(self, node: Node, block: Block) -> list[Endpoint]:
        """Return the objects that ``Type['title']`` or a list of references names."""
        if isinstance(node, ListLiteral):
            return [endpoint for item in node.items for endpoint in self.references(item, block)]
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

    def relate(self, attributes: dict[str, Node], own: Sequence[Endpoint], block: Block) -> list[str]:
        """Remove the relationships from the attributes, and record them. Returns remarks."""
        reasons = []
        for name in RELATIONS:
            node = attributes.pop(name, None)
            if node is None or (isinstance(node, Literal) and node.value is None):
                continue
            others = self.references(node, block)
            if not others and not (isinstance(node, ListLiteral) and not node.items):
                reasons.append(f"{name} is variable, and is not mapped")
            if name in ("require", "subscribe"):
                self.links.add(others, own, refresh=name == "subscribe")
            else:
                self.links.add(own, others, refresh=name == "notify")
        return reasons
