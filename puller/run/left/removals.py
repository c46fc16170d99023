"""The steps that take back changes: resources of a plan beside the catalog, which no declared resource sees.

* They go through the engine's one flow: a dry run predicts them, each has its event, and one that fails stops nothing.
* A leftover is not removed at a path that a bundle declares, above one, or where a declared resource fills the
  directory: it stays on the list of leftovers.
* Resources that subscribed to it and are still declared are refreshed.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from puller.errors import ConfigurationError
from puller.manifest.declaration import Declaration, Home
from puller.manifest.manifest import Manifest
from puller.manifest.problems import Problems
from puller.reporting.report import Event, State
from puller.resources.base import Properties, ResourceType
from puller.resources.registry import find_remover
from puller.run.left.declared import Declared
from puller.run.left.managed import Left
from puller.values.reference import Reference
from puller.values.removed import ABSENT


class Phase(StrEnum):
    """The time of a step, see ``puller.run.left.order``."""

    EARLY = "before the declared resources"
    LATE = "after the resources that may replace it"


class Step(msgspec.Struct, frozen=True):
    """A resource that no bundle declares, which takes something back."""

    type: ResourceType
    properties: Properties
    subscribers: Sequence[str] = ()
    """The resources that are refreshed when it changes."""
    phase: Phase = Phase.LATE
    bundle: str = ""
    """The bundle that has left it, or whose trial is undone."""
    is_leftover: bool = False

    @property
    def reference(self) -> Reference:
        """``type#name``."""
        return Reference.to(self.type.type_name, self.properties.name)

    def declaration(self, manifest: Manifest) -> Declaration:
        """The form in which the engine applies it, as a resource of ``manifest``."""
        home = Home(manifest.files, manifest.scope, manifest.data)
        problems = Problems(manifest.name, lambda path: (0, 0), lambda path: None)
        return Declaration(self.type, self.properties, problems, (), home)


def removals(leaving: Mapping[str, Iterable[Left]], declared: Declared) -> Iterator[Step]:
    """All leftovers that are removed, of each bundle."""
    for bundle, leftovers in leaving.items():
        for left in leftovers:
            step = removal(left.reference, left.subscribers) if left.is_to_go else None
            if step is not None and not _is_in_use(step, declared):
                phase = Phase.EARLY if _is_in_the_way(step, declared) else Phase.LATE
                yield msgspec.structs.replace(step, bundle=bundle, phase=phase, is_leftover=True)


def removal(reference: str, subscribers: Sequence[str] = (), phase: Phase = Phase.LATE) -> Step | None:
    """The step that removes what a resource has made; ``None`` when no type can."""
    type_name, _, name = reference.partition("#")
    remover = None
    with contextlib.suppress(ConfigurationError):  # a type of another distribution that cannot be used now
        remover = find_remover(type_name)
    if remover is None:
        return None
    return Step(remover, remover.properties_type(name=name, ensure=str(ABSENT)), subscribers, phase)


def reasons(steps: Iterable[Step], events: Iterable[Event]) -> dict[str, str]:
    """Return why the objects of steps stay, by reference. Empty for those that are gone or as they were."""
    planned = {str(step.reference) for step in steps}
    return {
        event.reference: _why_not_removed(event)
        for event in events
        if event.reversal and event.reached and event.reference in planned
    }


def why_unplanned(left: Left, declared: Declared) -> str:
    """Return why a leftover that is to go has no step."""
    step = removal(left.reference)
    if step is None:
        return f"the type {left.reference.partition('#')[0]} cannot be used, so it stays"
    if _is_in_use(step, declared):
        return "a declared resource is at its path, above it or below it, so it stays"
    return ""  # another step takes it back


def _why_not_removed(event: Event) -> str:
    if event.unmet_requirements:
        return f"{', '.join(event.unmet_requirements)} did not succeed, so it stays"
    if event.state is State.FAILED:
        return f"it cannot be removed: {', '.join(event.errors)}"
    if event.state is State.SKIPPED:
        return event.skip_reason
    return "; ".join(event.notes) if event.final_ensure != ABSENT and not event.noop else ""


def _is_in_use(step: Step, declared: Declared) -> bool:
    """Whether it is at, above or below what is declared."""
    alone = step.type.fills(step.properties)  # what it removes there is what it has put there
    return any(
        declared.has_place(path) or declared.fills(path) or (path not in alone and declared.has_below(path))
        for path in step.type.places(step.properties)
    )


def _is_in_the_way(step: Step, declared: Declared) -> bool:
    """Whether a declared resource cannot be made before it is gone."""
    if step.type.hinders(step.properties, declared.of_type(step.type.type_name)):
        return True
    return any(map(declared.replaces_parent, step.type.places(step.properties)))


def gone(steps: Iterable[Step], events: Iterable[Event]) -> set[str]:
    """The references of the steps whose objects are gone, by their events."""
    asked = {step.reference for step in steps}
    return {
        event.reference
        for event in events
        if event.reference in asked
        and event.state not in (State.FAILED, State.SKIPPED)
        and event.final_ensure == ABSENT
    }


def in_order(steps: list[Step]) -> list[Step]:
    """The order of removals: those of one bundle as they are; of several, a directory after what is in it."""
    if len({step.bundle for step in steps}) < 2:
        return steps
    return sorted(
        steps, key=lambda step: (step.properties.name[:1] == "/", step.properties.name), reverse=True
    )
