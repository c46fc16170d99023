"""The events of a run so far, and their effects on later resources.

* Resources are numbered by their index in the catalog. Higher indexes are events of other processes.
* A requirement is met unless the resource failed, was not reached, or has unmet requirements itself. A resource that
  ``control`` leaves out counts as met (``docs/resources/common.md``). The same holds for subscriptions.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

from foundation.differences import changed as difference
from foundation.problems import Problem, ProblemCode
from foundation.quantities import counted
from puller.manifest.declaration import Declaration, Home, blocking_reason
from puller.manifest.graph.catalog import Catalog
from puller.reporting.report import Event, State
from puller.values.common_properties import Refresh, reload_of


class Progress:
    """The progress of one run."""

    def __init__(self, catalog: Catalog, before: Sequence[Event] = ()) -> None:
        self._catalog = catalog
        own = len(catalog.declarations) + len(catalog.reversals)
        self.events: list[Event | None] = [*([None] * own), *before]
        """By index. ``None``: the resource has not had its turn."""
        self._stopped: dict[int, str] = {}
        """Stopped manifests with the reason, by the identity of their ``Home``."""
        self._reaches: list[tuple[str, str]] = []

    # Manifests that stop at the first failure

    def stop_after(self, declaration: Declaration, event: Event) -> None:
        """Stop the manifests of a failed resource that have ``fail_on_error``."""
        for home in homes(declaration):
            if home.fail_on_error:
                self._stopped[id(home)] = f"{event.reference} failed, and fail_on_error is set"

    def why_stopped(self, declaration: Declaration) -> str:
        """Return why every manifest of a resource is stopped. Empty: continue."""
        if not self._stopped:
            return ""
        if not any(id(home) in self._stopped for home in homes(declaration)):
            return ""
        return blocking_reason(declaration, self._why_closed)

    def _why_closed(self, place: Declaration) -> str:
        """Return why a manifest is stopped or must not be applied yet. Empty if it is open."""
        if (why := self._stopped.get(id(place.home))) or place.child is None:
            return why or ""
        for index in self._catalog.links.children:
            is_this = self._catalog.declarations[index].child is place.child
            if is_this and (unmet := self.unmet_requirements(index)):
                return f"{place.reference} requires {unmet[0]}"
        return ""

    # Requirements and subscriptions

    def unmet_requirements(self, index: int, apart_from: Collection[int] = ()) -> list[str]:
        """Return the references that a resource requires or subscribes to, and that have not succeeded.

        References ``apart_from`` count as succeeded.
        """
        links = self._catalog.links
        if not (index in links.requirements or index in links.subscriptions or index in links.reloads):
            return []  # the usual case
        unmet = [
            str(reference)
            for reference, other in self._catalog.requirements(index)
            if other not in apart_from and self._is_unmet(other)
        ]
        for other in (*self._catalog.subscriptions(index), *self._catalog.reloads(index)):
            # A partial run may lack the subject. The operator has named the resource, so it is applied all the same.
            is_absent = self.events[other] is None and other not in self._planned
            if other not in apart_from and not is_absent and self._is_unmet(other):
                unmet.append(self._name_of(other))
        return list(dict.fromkeys(unmet))  # several child manifests may share a name

    def _is_unmet(self, index: int) -> bool:
        event = self.events[index]
        return (
            event is None
            or event.state is State.FAILED
            or bool(event.unmet_requirements)
            or not event.reached
        )

    def _name_of(self, index: int) -> str:
        event = self.events[index]
        return event.reference if event is not None else str(self._catalog.attended(index).reference)

    @cached_property
    def _planned(self) -> frozenset[int]:
        """The indexes of this run. A partial run lacks some resources of the catalog."""
        return frozenset(self._catalog.order)

    def due_refresh(
        self, index: int, declaration: Declaration, pending: Collection[str], *, noop: bool
    ) -> Refresh:
        """Return the due refresh of a resource. ``pending`` are the refreshes that an earlier run has not done."""
        links = self._catalog.links
        if (
            index not in links.subscriptions and index not in links.reloads
        ):  # as most of ten thousand resources
            return Refresh.NONE
        subscriptions, reloads = self._catalog.subscriptions(index), self._catalog.reloads(index)
        reference = declaration.reference
        if reference in pending or self._has_changed(subscriptions, noop=noop):
            return Refresh.WHOLE
        if reload_of(reference) in pending or self._has_changed(reloads, noop=noop):
            return Refresh.RELOAD if reloads else Refresh.WHOLE
        return Refresh.NONE

    def causes(self, index: int, refresh: Refresh, *, noop: bool) -> list[str]:
        """Return the references of the changes in this run that make a refresh due."""
        is_reload = refresh is Refresh.RELOAD
        upstream = self._catalog.reloads(index) if is_reload else self._catalog.subscriptions(index)
        return list(dict.fromkeys(event.reference for event in self._changed(upstream, noop=noop)))

    def _has_changed(self, indexes: Iterable[int], *, noop: bool) -> bool:
        return any(True for _ in self._changed(indexes, noop=noop))

    def _changed(self, indexes: Iterable[int], *, noop: bool) -> Iterator[Event]:
        """Yield the events of resources that have changed. With noop, include predicted changes."""
        events = [event for index in indexes if (event := self.events[index]) is not None]
        # A predicted change refreshes only resources that are predicted too, because a noop resource changes nothing.
        return (event for event in events if event.changed or (noop and event.state is State.WOULD_CHANGE))

    # Child manifests

    def has_failed_children(self, index: int) -> bool:
        """Return whether any resource of a child manifest has failed so far."""
        events = (self.events[other] for other in self._catalog.children(index))
        return any(event and event.state is State.FAILED for event in events)

    def sum_up_children(self, children: Sequence[int], event: Event) -> None:
        """Set the event of a child manifest from the events of its resources."""
        events = [child for index in children if (child := self.events[index]) is not None]
        for child in events:
            event.children[child.state] = event.children.get(child.state, 0) + 1
        changed = sum(child.changed for child in events)
        expected = event.children.get(State.WOULD_CHANGE, 0)
        if changed or expected:
            event.differences = [difference("resources", "", f"{changed or expected} of {len(events)}")]
        failed = event.children.get(State.FAILED, 0)
        unmet = sum(bool(child.unmet_requirements) or not child.reached for child in events)
        if failed or unmet:
            and_skipped = f", and {unmet} skipped" if unmet else ""
            event.state = State.FAILED
            message = f"child manifest had {failed} failed resources{and_skipped}"
            event.problems = [Problem(code=ProblemCode.CHILDREN_FAILED, message=message)]
        elif changed:
            event.state = State.CHANGED
        elif expected:
            event.state = State.WOULD_CHANGE
            event.noop_message = f"Would have changed {expected} of {counted(len(events), 'resource')}"

    # What noop cannot predict

    def note_reach(self, reach: str, type_name: str) -> None:
        """Record that a resource of a type would have unpredictable effects below the directory ``reach``."""
        self._reaches.append((f"{reach.rstrip('/')}/", type_name))

    def is_uncertain(self, path: str, apart_from: str = "") -> bool:
        """Return whether a path is uncertain, because an unpredictable effect may reach it or a path below it."""
        if not self._reaches:
            return False
        below = f"{path.rstrip('/')}/"
        reaches = (reach for reach, type_name in self._reaches if type_name != apart_from)
        return any(below.startswith(reach) or reach.startswith(below) for reach in reaches)


def homes(declaration: Declaration) -> Iterator[Home]:
    """Yield the manifests that contain a resource, directly or by child manifests."""
    yield from (place.home for place in declaration.places())
    yield from (parent.home for parent in declaration.parents())
