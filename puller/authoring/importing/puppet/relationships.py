"""Relationships of Puppet as ``require``, ``subscribe`` and ``reload``.

* A relationship is resolved after all units are mapped, because it can name a later resource.
* A refresh reaches services and commands. For other resources, it is only an order.
* A relationship with an object that the draft does not contain is left out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from puller.authoring.importing.draft import Draft, ManifestDraft, Resource

_REFRESHED: Final = frozenset({"service", "exec"})
_GUARDS: Final = frozenset({"creates", "onlyif", "unless"})
_NOT_ALWAYS: Final = "the manifest of the target can be applied without it"


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
