"""Removals and reversals: the steps that revert changes, and their order among the declared resources.

* Steps are resources beside the catalog, and declared resources do not see them. The engine processes both alike: a
  dry run predicts the steps, each step has an event, and a failed step stops no other.
* A leftover stays on the list if a bundle declares its path, if its path is above a declared path, or if a declared
  resource fills the directory.
* Resources that subscribed to a leftover and are still declared are refreshed.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from puller.errors import ConfigurationError
from puller.manifest.declaration import Declaration, Home
from puller.manifest.graph.catalog import Links, ordered, with_implied
from puller.manifest.graph.host_catalog import HostCatalog
from puller.manifest.manifest import Manifest
from puller.manifest.problems import Problems
from puller.reporting.report import Event, State
from puller.resources.base import Properties, ResourceType
from puller.resources.paths import parents
from puller.resources.registry import find_remover
from puller.run.leftovers.declared_resources import Declared
from puller.run.leftovers.managed import Left
from puller.values.common_properties import ABSENT, Reference, Refresh, subscriber_of


class Phase(StrEnum):
    """The time of a step. See ``with_reversals``."""

    EARLY = "before the declared resources"
    LATE = "after the resources that may replace it"


class Step(msgspec.Struct, frozen=True):
    """An undeclared resource that reverts a change."""

    type: ResourceType
    properties: Properties
    subscribers: Sequence[str] = ()
    """The resources that its change refreshes."""
    phase: Phase = Phase.LATE
    bundle: str = ""
    """The bundle of the leftover or of the reverted trial."""
    is_leftover: bool = False

    @property
    def reference(self) -> Reference:
        """``type#name``."""
        return Reference.to(self.type.type_name, self.properties.name)

    def declaration(self, manifest: Manifest) -> Declaration:
        """Return the declaration for the engine, as a resource of ``manifest``."""
        home = Home(manifest.files, manifest.scope, manifest.data)
        problems = Problems(manifest.name, lambda path: (0, 0), lambda path: None)
        return Declaration(self.type, self.properties, problems, (), home)


def removals(leaving: Mapping[str, Iterable[Left]], declared: Declared) -> Iterator[Step]:
    """Yield the steps for all leftovers that are removed, of each bundle."""
    for bundle, leftovers in leaving.items():
        for left in leftovers:
            step = removal(left.reference, left.subscribers) if left.is_to_go else None
            if step is not None and not _is_in_use(step, declared):
                phase = Phase.EARLY if _is_in_the_way(step, declared) else Phase.LATE
                yield msgspec.structs.replace(step, bundle=bundle, phase=phase, is_leftover=True)


def removal(reference: str, subscribers: Sequence[str] = (), phase: Phase = Phase.LATE) -> Step | None:
    """Return the step that removes the object of a resource. ``None`` if no type supports this."""
    type_name, _, name = reference.partition("#")
    remover = None
    with contextlib.suppress(ConfigurationError):  # a type of another distribution that is unusable now
        remover = find_remover(type_name)
    if remover is None:
        return None
    return Step(remover, remover.properties_type(name=name, ensure=str(ABSENT)), subscribers, phase)


def reasons(steps: Iterable[Step], events: Iterable[Event]) -> dict[str, str]:
    """Return why the objects of steps stay, by reference. The reason is empty for removed and restored objects."""
    planned = {str(step.reference) for step in steps}
    return {
        event.reference: _why_not_removed(event)
        for event in events
        if event.reversal and event.reached and event.reference in planned
    }


def why_unplanned(leftover: Left, declared: Declared) -> str:
    """Return why a leftover that should be removed has no step."""
    step = removal(leftover.reference)
    if step is None:
        return f"the type {leftover.reference.partition('#')[0]} is not available, so it stays"
    if _is_in_use(step, declared):
        return "a declared resource is at its path, above it or below it, so it stays"
    return ""  # another step reverts it


def _why_not_removed(event: Event) -> str:
    if event.unmet_requirements:
        return f"{', '.join(event.unmet_requirements)} did not succeed, so it stays"
    if event.state is State.FAILED:
        return f"the removal failed: {', '.join(event.errors)}"
    if event.state is State.SKIPPED:
        return event.skip_reason
    return ", ".join(event.notes) if event.final_ensure != ABSENT and not event.noop else ""


def _is_in_use(step: Step, declared: Declared) -> bool:
    """Return whether it is at, above or below a declared path."""
    alone = step.type.fills(step.properties)  # it removes only its own files there
    return any(
        declared.has_place(path) or declared.fills(path) or (path not in alone and declared.has_below(path))
        for path in step.type.places(step.properties)
    )


def _is_in_the_way(step: Step, declared: Declared) -> bool:
    """Return whether it prevents the creation of a declared resource."""
    if step.type.hinders(step.properties, declared.of_type(step.type.type_name)):
        return True
    return any(map(declared.replaces_parent, step.type.places(step.properties)))


def gone(steps: Iterable[Step], events: Iterable[Event]) -> set[str]:
    """Return the references of the steps whose objects are removed, by their events."""
    requested = {step.reference for step in steps}
    return {
        event.reference
        for event in events
        if event.reference in requested
        and event.state not in (State.FAILED, State.SKIPPED)
        and event.final_ensure == ABSENT
    }


def in_order(steps: list[Step]) -> list[Step]:
    """Return the removals in order: unchanged for one bundle, otherwise a directory after its contents."""
    if len({step.bundle for step in steps}) < 2:
        return steps
    return sorted(
        steps, key=lambda step: (step.properties.name[:1] == "/", step.properties.name), reverse=True
    )


# The order of a run.
#
# 1. Early steps restore the state before a trial, and remove obstacles of declared resources.
# 2. A leftover is removed after the resources of its bundle that may replace it, if none of them failed. If its
#    removal refreshes a declared resource, it is removed before that resource, so that a service starts without the
#    old file. It is never removed before a resource that fills the same directory.
# 3. Objects in use are removed last, such as a user whose service ends with the run.
#
# Services, and commands that only refresh, count as no replacement, since a leftover may prevent a service from
# starting.


def with_reversals(
    catalog: HostCatalog, steps: Sequence[Step], numbers: Mapping[str, int], state: Path
) -> HostCatalog:
    """Return the catalog with a plan beside it. ``numbers`` are those of the bundles' manifests, by name.

    ``state`` is the state directory, with the receipts of resources.
    """
    if not steps:
        return catalog
    owners = [numbers[step.bundle] for step in steps]
    taken = [step.declaration(catalog.manifests[owner]) for step, owner in zip(steps, owners, strict=True)]
    begin = len(catalog.declarations)
    links = catalog.links.copied()
    _subscribe(catalog, steps, links)
    subscribers = [links.subscribers.get(begin + position, ()) for position in range(len(steps))]
    first = with_implied(taken, {})
    groups = _groups(steps, taken, first, subscribers)
    slots, result = _Slots(catalog, state), dict[int, int]()
    below: dict[str, int] = {}
    for position in groups[1]:
        step = steps[position]
        name = str(step.properties.name)
        waits_for = [result[other] for other in first.get(position, ()) if other in result]
        waits_for.append(below.get(name, 0))  # a directory is removed after its contents
        result[position] = max(slots.of(step, owners[position], subscribers[position]), *waits_for)
        below |= {above: max(result[position], below.get(above, 0)) for above in parents(name)}
    result |= dict.fromkeys(groups[2], len(catalog.order))
    for position, slot in result.items():
        links.requirements[begin + position] = slots.replacements(owners[position], slot)
    # Created anew, because ``replace`` would copy cached values of the catalog.
    return HostCatalog(
        catalog.declarations,
        _merged(catalog.order, [begin + position for position in groups[0]], result, begin),
        links,
        manifests=catalog.manifests,
        owners=[*catalog.owners, *owners],
        shared=catalog.shared,
        reversals=taken,
    )


def _subscribe(catalog: HostCatalog, steps: Sequence[Step], links: Links) -> None:
    """Link each step with the declared resources that it refreshes."""
    index = {str(declaration.reference): number for number, declaration in enumerate(catalog.declarations)}
    for position, step in enumerate(steps, start=len(catalog.declarations)):
        known = [listed for listed in step.subscribers if subscriber_of(listed)[0] in index]
        if known:
            links.subscribers[position] = [Reference(listed) for listed in known]
        for reference, refresh in map(subscriber_of, known):
            each = links.reloads if refresh is Refresh.RELOAD else links.subscriptions
            each.setdefault(index[reference], []).append(position)


def _groups(
    steps: Sequence[Step],
    taken: Sequence[Declaration],
    first: Mapping[int, Sequence[int]],
    subscribers: Sequence[Sequence[Reference]],
) -> tuple[list[int], list[int], list[int]]:
    """Return the positions of the early, late and last steps, each in order: a group after its users.

    The last steps are for objects in use, unless they refresh a declared resource, and the steps that wait for them.
    """
    early: list[int] = []
    late: list[int] = []
    last: list[int] = []
    for position in ordered(len(taken), lambda position: first.get(position, ())):
        waits_for = first.get(position, ())
        is_held = _is_held(taken[position]) and not subscribers[position]
        if is_held or any(other in last for other in waits_for):
            last.append(position)
        elif steps[position].phase is Phase.LATE or any(other in late for other in waits_for):
            late.append(position)
        else:
            early.append(position)
    return early, late, last


def _is_held(declaration: Declaration) -> bool:
    return declaration.properties.ensure == ABSENT and declaration.type.is_in_use(declaration.properties)


def _merged(declared: Sequence[int], early: list[int], slots: Mapping[int, int], begin: int) -> list[int]:
    """Return the order of the run. ``slots`` has the number of declared resources before each later step."""
    offset: dict[int, list[int]] = {}
    for position, slot in slots.items():
        offset.setdefault(slot, []).append(begin + position)
    order = [*early]
    for number, index in enumerate(declared):
        order += (*offset.get(number, ()), index)
    return [*order, *offset.get(len(declared), ())]


class _Slots:
    """Places in the order of the declared resources. A slot is the number of resources before it."""

    def __init__(self, catalog: HostCatalog, state: Path) -> None:
        self._catalog, self._state = catalog, state
        self._position = {index: number for number, index in enumerate(catalog.order)}
        self._index = {
            str(declaration.reference): index for index, declaration in enumerate(catalog.declarations)
        }
        self._replacing: dict[int, list[int]] = {}
        self._filling = [
            (directory, self._position[index])
            for index, declaration in enumerate(catalog.declarations)
            for directory in declaration.type.fills(declaration.properties)
        ]

    def of(self, step: Step, owner: int, subscribers: Sequence[Reference]) -> int:
        """Return the slot of a step: before its first subscriber, and after the resources that may replace it."""
        positions = self._positions(owner)
        slot = positions[-1] + 1 if positions else 0
        heard = [self._position[self._index[subscriber_of(str(each))[0]]] for each in subscribers]
        areas = [*step.type.occupies(step.properties, self._state)]
        after = [number + 1 for directory, number in self._filling if any(map(_meets(directory), areas))]
        return max([min([slot, *heard]), *after])

    def replacements(self, owner: int, slot: int) -> list[tuple[Reference, int]]:
        """Return the resources before a slot that must not have failed."""
        indexes = (self._catalog.order[number] for number in self._positions(owner) if number < slot)
        return [(self._catalog.declarations[index].reference, index) for index in indexes]

    def _positions(self, owner: int) -> list[int]:
        """Return the positions of all resources of a bundle that may replace another object, in order."""
        if owner not in self._replacing:
            self._replacing[owner] = [
                number
                for number, index in enumerate(self._catalog.order)
                if owner in (self._catalog.owners[index], *self._catalog.shared.get(index, ()))
                and (declaration := self._catalog.declarations[index]).type.may_replace(
                    declaration.properties
                )
            ]
        return self._replacing[owner]


def _meets(directory: str) -> Callable[[str], bool]:
    """Return a function that matches the directory and all paths below and above it."""

    def meets(path: str) -> bool:
        return path == directory or path.startswith(f"{directory}/") or directory.startswith(f"{path}/")

    return meets
