"""Things that were left behind and are to go, as resources of the run: ``absent``, and before all others.

* What is in use, such as a user whose service is about to run as another one, is taken away after all others.

* They go through the engine's one flow: a dry run tells, each has its event, one that fails stops nothing.
* Nothing is taken away at a place of what any bundle declares, above one, or where a resource that is declared alone
  knows what it puts: it stays on the list of what was left.
* What subscribed to it and is declared still is refreshed.
"""

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from puller.errors import ConfigurationError
from puller.manifest.declaration import Declaration, Home
from puller.manifest.host_catalog import HostCatalog
from puller.manifest.implied_order import with_implied
from puller.manifest.manifest import Manifest
from puller.manifest.order import ordered
from puller.manifest.problems import Problems
from puller.reporting.report import Event, State
from puller.resources.base import Properties, ResourceType
from puller.resources.registry import find_remover
from puller.run.left.declared import Declared
from puller.run.left.managed import Left
from puller.values.reference import Reference
from puller.values.refresh import Refresh, subscriber_of
from puller.values.removed import ABSENT


class TakenBack(msgspec.Struct, frozen=True):
    """A resource of the run that no bundle declares, and the resources that are refreshed when it changes."""

    type: ResourceType
    properties: Properties
    subscribers: Sequence[str] = ()
    bundle: str = ""
    """The one that has left it."""

    @property
    def reference(self) -> Reference:
        """``type#name``."""
        return Reference.to(self.type.type_name, self.properties.name)

    def declaration(self, manifest: Manifest) -> Declaration:
        """Its declaration, as if it stood in ``manifest``."""
        home = Home(manifest.files, manifest.scope, manifest.data)
        problems = Problems(manifest.name, lambda path: (0, 0), lambda path: None)
        return Declaration(self.type, self.properties, problems, (), home)


def removals(leaving: Mapping[str, Iterable[Left]], declared: Declared) -> Iterator[TakenBack]:
    """All that is to go, of what each bundle has left."""
    for bundle, left in leaving.items():
        for one in left:
            found = removal(one.reference, one.subscribers) if one.is_to_go else None
            if found is not None and not _is_in_use(found, declared):
                yield msgspec.structs.replace(found, bundle=bundle)


def removal(reference: str, subscribers: Sequence[str] = ()) -> TakenBack | None:
    """The resource that takes away what another has made; ``None`` when no type here can."""
    type_name, _, name = reference.partition("#")
    remover = None
    with contextlib.suppress(ConfigurationError):  # one of another distribution that cannot be used now
        remover = find_remover(type_name)
    if remover is None:
        return None
    return TakenBack(remover, remover.properties_type(name=name, ensure=str(ABSENT)), subscribers)


def _is_in_use(found: TakenBack, declared: Declared) -> bool:
    """Whether it is at, above or below what is declared."""
    alone = found.type.fills(found.properties)  # what it takes away there is what it has put there
    return any(
        declared.has_place(path) or declared.fills(path) or (path not in alone and declared.has_below(path))
        for path in found.type.places(found.properties)
    )


def in_order(taken_back: list[TakenBack]) -> list[TakenBack]:
    """The order in which they go: of one bundle as they are.

    Of several first what is taken away, what is in a directory before the directory, and packages after all paths; then
    what is restored, a directory before what is in it.
    """
    if len({one.bundle for one in taken_back}) < 2:
        return taken_back
    away = [one for one in taken_back if one.properties.ensure == ABSENT]
    restored = [one for one in taken_back if one.properties.ensure != ABSENT]
    names = {id(one): str(one.properties.name) for one in taken_back}
    away.sort(key=lambda one: (names[id(one)].startswith("/"), names[id(one)]), reverse=True)
    return [*away, *sorted(restored, key=lambda one: names[id(one)])]


def with_taken_back(
    catalog: HostCatalog, first: Sequence[TakenBack], numbers: Mapping[str, int]
) -> HostCatalog:
    """The catalog with these before all that is declared, or after it (``_apart``); the indexes of that stay.

    ``numbers`` are those of the bundles' manifests, by name.
    """
    if not first:
        return catalog
    begin, index = len(catalog.declarations), _index(catalog)
    links = catalog.links
    subscribers, subscriptions, reloads = {**links.subscribers}, {**links.subscriptions}, {**links.reloads}
    owners = [numbers[one.bundle] for one in first]
    taken = [one.declaration(catalog.manifests[owner]) for one, owner in zip(first, owners, strict=True)]
    for position, one in enumerate(first, start=begin):
        known = [listed for listed in one.subscribers if subscriber_of(listed)[0] in index]
        if known:
            subscribers[position] = [Reference(listed) for listed in known]
        for reference, refresh in map(subscriber_of, known):
            each, at = reloads if refresh is Refresh.RELOAD else subscriptions, index[reference]
            each[at] = [*each.get(at, ()), position]
    at_first, at_last = _apart(taken, {position - begin for position in subscribers if position >= begin})
    # Made anew: ``replace`` would take along what the catalog has found out about its own resources.
    return HostCatalog(
        [*catalog.declarations, *taken],
        [*(begin + each for each in at_first), *catalog.order, *(begin + each for each in at_last)],
        msgspec.structs.replace(links, subscribers=subscribers, subscriptions=subscriptions, reloads=reloads),
        manifests=catalog.manifests,
        owners=[*catalog.owners, *owners],
        shared=catalog.shared,
    )


def _apart(taken: Sequence[Declaration], heard: Container[int]) -> tuple[list[int], list[int]]:
    """The positions of what goes before the rest of the run, and of what goes after it, each in order.

    As they are, but for what types say of their order: a group goes when its users are gone. After the rest goes what
    is in use, with what waits for it; not what others are refreshed by (``heard``), who have their turn in between.
    """
    edges = with_implied(taken, {})
    first: list[int] = []
    last: list[int] = []
    for position in ordered(len(taken), lambda position: edges.get(position, ())):
        waits = any(other in last for other in edges.get(position, ()))
        is_late = waits or (position not in heard and _is_held(taken[position]))
        (last if is_late else first).append(position)
    return first, last


def _is_held(declaration: Declaration) -> bool:
    return declaration.properties.ensure == ABSENT and declaration.type.is_in_use(declaration.properties)


def _index(catalog: HostCatalog) -> dict[str, int]:
    return {str(one.reference): index for index, one in enumerate(catalog.declarations)}


def gone(taken_back: Iterable[TakenBack], events: Iterable[Event]) -> set[str]:
    """The references of those that are away, by their events."""
    asked = {one.reference for one in taken_back}
    return {
        event.reference
        for event in events
        if event.reference in asked and event.state is not State.FAILED and event.final_ensure == ABSENT
    }
