"""The catalog of a host: the manifests of all its bundles, joined in the order of its configuration.

* A manifest can require and subscribe to resources of earlier manifests. Its own resources have priority.
* A resource of two manifests is one resource and belongs to the earlier manifest. Both declarations must agree, or
  the later manifest is not joined. ``apply`` resources refer to files of their bundle and are never shared.
* Joining does not change the joined manifests, so a caller can try a manifest and then use another one.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from foundation.problems import Problem
from puller.errors import ManifestError
from puller.manifest.declaration import Declaration
from puller.manifest.graph.agreement import Disagreement, agreed
from puller.manifest.graph.catalog import Catalog, CycleError, Links, ordered, with_last
from puller.manifest.graph.contradictions import Key, find_contradictions, key_of, objects_of, spellings_of
from puller.manifest.graph.links import APPLY, cycle_problem
from puller.manifest.graph.parts import link_outside_parts
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest, ManifestSource
from puller.values.common_properties import Reference, reload_of


class HostCatalog(Catalog, kw_only=True, dict=True):
    """The resources of several manifests. The number of a manifest is its place among them."""

    manifests: list[Manifest]
    owners: list[int]
    """The number of the manifest of each resource and reversal, by its index."""
    shared: dict[int, list[int]]
    """The numbers of later manifests that also declare a resource, by its index."""

    @classmethod
    def of(cls, manifests: Iterable[Manifest] = ()) -> "HostCatalog":
        """Return the catalog of these manifests. Raise ``ManifestError`` if they do not fit together."""
        catalog = cls([], [], manifests=[], owners=[], shared={})
        for manifest in manifests:
            catalog = catalog.joined(manifest)
        return catalog

    def references(self) -> "References":
        """Return the names and aliases that a later manifest may refer to, with the indexes of their resources."""
        return self._references

    @cached_property
    def _references(self) -> "References":
        references = References(self.declarations)
        references.of_no_item = frozenset().union(*(manifest.of_no_item for manifest in self.manifests))
        for index, declaration in enumerate(self.declarations):
            if declaration.type.type_name != APPLY:
                for name in declaration.names():
                    references.setdefault(name, index)
        return references

    def resources_of(self, number: int) -> list[int]:
        """Return the indexes of a manifest's own resources, in the order of application."""
        if len(self.manifests) == 1:
            return self.order
        return [index for index in self.order if self.owners[index] == number]

    def concerns(self, number: int) -> list[int]:
        """Return the indexes of all resources that concern a manifest, in the order of application.

        They are its own resources, those that it shares or has parts of, and those of other manifests that it
        refreshes.
        """
        if len(self.manifests) == 1:
            return self.order
        part = {index for index, owner in enumerate(self.owners) if owner == number}
        part |= {index for index, numbers in self.shared.items() if number in numbers}
        part |= {index for index, parts in self.links.parts.items() if not part.isdisjoint(parts)}
        refreshed = (*self.links.subscriptions.items(), *self.links.reloads.items())
        part |= {index for index, others in refreshed if not part.isdisjoint(others)}
        return [index for index in self.order if index in part]

    def numbers_of(self, declaration: Declaration) -> list[int]:
        """Return the numbers of the manifests that declare a resource. Its owner is the first."""
        return self._numbers[id(declaration)]

    @cached_property
    def _numbers(self) -> dict[int, list[int]]:
        declared = zip([*self.declarations, *self.reversals], self.owners, strict=True)
        return {
            id(declaration): [owner, *self.shared.get(index, ())]
            for index, (declaration, owner) in enumerate(declared)
        }

    def owners_of_subscribers(self, names: Sequence[str]) -> dict[str, str]:
        """Return the resources with subscriptions, each with the name of its manifest. ``names`` are by number."""
        result = (*self.links.subscriptions.items(), *self.links.reloads.items())
        return {str(self.declarations[index].reference): names[self.owners[index]] for index, _ in result}

    def joined(self, manifest: Manifest) -> "HostCatalog":
        """Return a catalog with one more manifest. Raise ``ManifestError`` if it does not fit.

        1. Require that each shared resource agrees with its earlier declaration.
        2. Add the links within the manifest, and to resources of earlier manifests.
        3. Keep the order of the manifests, except for resources that wait for others.
        """
        if not self.manifests:
            owners = [0] * len(manifest.declarations)
            return HostCatalog(
                manifest.declarations,
                manifest.order,
                manifest.links,
                manifests=[manifest],
                owners=owners,
                shared={},
            )
        return _Joining(self, manifest).catalog()


class References(dict[Reference, int]):
    """Names with the indexes of their resources. Unevaluated loops may provide more names."""

    def __init__(self, declarations: Sequence[Declaration]) -> None:
        super().__init__()
        self._loops = [(index, found) for index, found in enumerate(declarations) if found.loop is not None]
        self.of_no_item: frozenset[Reference] = frozenset()
        """Names of entries whose loops have no items here. They refer to no resource."""

    def __contains__(self, reference: object) -> bool:
        is_known = super().__contains__(reference) or reference in self.of_no_item
        return is_known or self._loop_of(reference) is not None

    def __missing__(self, reference: Reference) -> int:
        if (index := self._loop_of(reference)) is None:
            raise KeyError(reference)
        return index

    def _loop_of(self, reference: object) -> int | None:
        return next((index for index, loop in self._loops if loop.may_expand_to(str(reference))), None)


def load_together(sources: Iterable[ManifestSource], inputs: Inputs) -> HostCatalog:
    """Return the catalog of these manifests. Each may refer to resources of earlier manifests.

    Raise ``SourceError`` and ``ManifestError``.
    """
    catalog = HostCatalog.of()
    for source in sources:
        known = catalog.references()
        catalog = catalog.joined(load_manifest(source.path, source.name, inputs, known))
    return catalog


class _Joining:
    """The addition of one manifest to a catalog."""

    def __init__(self, before: HostCatalog, manifest: Manifest) -> None:
        self.before = before
        self.manifest = manifest
        self.number = len(before.manifests)
        self.known = before.references()
        self.declarations = list(before.declarations)
        self.owners = list(before.owners)
        self.shared = {index: list(numbers) for index, numbers in before.shared.items()}
        every = (*before.declarations, *manifest.declarations)
        self._spellings = spellings_of(every, manifest.scope.facts)
        self._objects = objects_of(every, self._spellings)
        self.places: list[int] = []
        """The index in the catalog of each resource of the manifest."""
        self.problems: list[Problem] = []

    def catalog(self) -> HostCatalog:
        """Return the new catalog. Raise ``ManifestError``."""
        # 1. Earlier declarations and contradictions
        for declaration in self.manifest.declarations:
            self._place(declaration)
        contradictions = find_contradictions(self.declarations, self._spellings)
        self.problems += [between.problem() for between in contradictions]
        if self.problems:
            raise ManifestError(self.problems)
        # 2. Links
        links = self._links()
        if self.problems:
            raise ManifestError(self.problems)
        # 3. Order
        order = self._order(links)
        return HostCatalog(
            self.declarations,
            order,
            links,
            manifests=[*self.before.manifests, self.manifest],
            owners=self.owners,
            shared=self.shared,
        )

    def _place(self, declaration: Declaration) -> None:
        is_apply = declaration.type.type_name == APPLY
        index = None if is_apply else self._index_of(declaration)
        if index is None:
            self.places.append(len(self.declarations))
            self.declarations.append(declaration)
            self.owners.append(self.number)
            return
        self.places.append(index)
        self.shared.setdefault(index, []).append(self.number)
        try:
            self.declarations[index] = agreed(self.declarations[index], declaration)
        except Disagreement as disagreement:
            self.problems.append(disagreement.problem())

    def _index_of(self, declaration: Declaration) -> int | None:
        """Return the index of an earlier resource of the same name or object. Its aliases do not count."""
        if declaration.loop is not None:
            return None
        key = key_of(declaration)
        result = self._by_key.get(key)
        if result is None and (managed := self._objects.get(id(declaration))) is not None:
            result = self._by_key.get(managed)
        return result

    @cached_property
    def _by_key(self) -> dict[Key, int]:
        """The indexes of earlier resources, by name and by object."""
        by_key: dict[Key, int] = {}
        for index, declaration in enumerate(self.before.declarations):
            if declaration.loop is None:
                by_key[key_of(declaration)] = index
        for index, declaration in enumerate(self.before.declarations):
            if (managed := self._objects.get(id(declaration))) is not None:
                by_key.setdefault(managed, index)
        return by_key

    def _links(self) -> Links:
        own, links = self.manifest.links, self.before.links.copied()
        place = self.places.__getitem__
        for index, required in own.requirements.items():
            links.requirements.setdefault(place(index), []).extend((name, place(at)) for name, at in required)
        for merged, found in (
            (links.subscriptions, own.subscriptions),
            (links.reloads, own.reloads),
            (links.first, own.first),
        ):
            for index, others in found.items():
                merged.setdefault(place(index), []).extend(map(place, others))
        for index, children in own.children.items():
            links.children[place(index)] = [place(child) for child in children]
        for index, references in own.subscribers.items():
            links.subscribers.setdefault(place(index), []).extend(references)
        for index, parts in own.parts.items():
            merged_parts = links.parts.setdefault(place(index), [])
            merged_parts += [part for part in map(place, parts) if part not in merged_parts]
        for index, outside in own.outside.items():
            self._link_outside(place(index), outside, links)
        outside_parts = {place(index): references for index, references in own.outside_parts.items()}
        self.problems += link_outside_parts(self.declarations, outside_parts, links, self._spellings)
        return links

    def _link_outside(self, index: int, outside: Iterable[tuple[str, Reference]], links: Links) -> None:
        reference = self.declarations[index].reference
        for name, other in outside:
            if other in self.known.of_no_item:
                continue
            at = self.known[other]
            links.first.setdefault(index, []).append(at)
            if name == "require":
                links.requirements.setdefault(index, []).append((other, at))
            elif name == "subscribe":
                links.subscriptions.setdefault(index, []).append(at)
                links.subscribers.setdefault(at, []).append(reference)
            elif name == "reload":
                links.reloads.setdefault(index, []).append(at)
                links.subscribers.setdefault(at, []).append(reload_of(reference))

    def _order(self, links: Links) -> list[int]:
        order = [*self.before.order, *(self.places[index] for index in self.manifest.order)]
        # Usually a new resource follows all resources that it can wait for.
        if self.shared != self.before.shared or links.parts != self.before.links.parts:
            try:
                order = _stable(order, links.first)
            except CycleError as cycle:
                raise ManifestError([cycle_problem(self.declarations, cycle)]) from None
        return with_last(self.declarations, order, lambda index: links.first.get(index, ()))


def _stable(desired: Iterable[int], first: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the given order, changed so that each resource follows its prerequisites. Raise ``CycleError``."""
    sequence = list(dict.fromkeys(desired))
    number_of = {index: number for number, index in enumerate(sequence)}
    result = ordered(len(sequence), lambda number: [number_of[i] for i in first.get(sequence[number], ())])
    return [sequence[number] for number in result]
