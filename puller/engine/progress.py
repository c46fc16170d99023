"""The events of a run so far, their effects on later resources, and the resources to read again at its end.

* Resources are numbered by their index in the catalog. Higher indexes are events of other processes.
* A requirement is met unless the resource failed, was not reached, or has unmet requirements itself. A resource that
  ``control`` leaves out counts as met (``docs/resources/common.md``). The same holds for subscriptions.
* A run imports this module at its start, because without free descriptors imports fail.

The final look, after the last change of a run. A run without changes skips it:

* A resource is read again if it was changed before another change, or if a later change has touched one of its
  subjects. Each type names its subjects (``Resource.subjects``).
* A subject is a path, a path with a slash at its end for everything at and below it, or a word such as ``packages``.
* Paths are compared with resolved parent directories.
"""

import contextlib
import errno
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from bundles.filesystem.trees import free_space
from foundation.differences import changed as difference
from foundation.problems import HasProblems, Problem, ProblemCode
from foundation.quantities import counted
from puller.errors import reason
from puller.manifest.declaration import Declaration, Home, blocking_reason
from puller.manifest.graph.catalog import Catalog
from puller.reporting.report import Event, State
from puller.resources.base import ANYTHING, Resource
from puller.system.local_paths import RealPaths
from puller.values.common_properties import Refresh, reload_of


def failures_of(error: Exception, declaration: Declaration) -> list[Problem]:
    """Return the problems of an exception that fails a resource."""
    if isinstance(error, OSError):
        return [Problem(code=ProblemCode.SYSTEM_ERROR, message=_system_failure(error, declaration))]
    if isinstance(error, HasProblems):
        return list(error.problems)
    return [Problem(code=ProblemCode.INTERNAL_ERROR, message=_bug(error, declaration))]


def _system_failure(error: OSError, declaration: Declaration) -> str:
    """Return the reason of the system and the path. For a full disk, add the free space."""
    name = declaration.properties.name
    # Some errors of the system have no path. The name of the resource is then the best substitute.
    path = error.filename or (name if name.startswith("/") else "")
    what = reason(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and isinstance(path, str) and path.startswith("/"):
        known = [*getattr(error, "__notes__", [])]
        with contextlib.suppress(OSError):
            known.append(free_space(Path(path)))
        what = ": ".join([what, *([", ".join(known)] if known else [])])
    return f"{path}: {what}" if path else what


def _bug(error: Exception, declaration: Declaration) -> str:
    """Return an unexpected error with the end of its traceback. Hide the message of a sensitive resource."""
    text = type(error).__name__ if declaration.properties.sensitive else repr(error)
    with contextlib.suppress(OSError):  # without free descriptors, the import fails
        import traceback  # 2 % of an idle run, which has no bug

        text += "\n" + "".join(traceback.format_tb(error.__traceback__, limit=-3))
    return f"internal error: {text}"


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
        subscriptions, reloads = self._catalog.subscriptions(index), self._catalog.reloads(index)
        if not subscriptions and not reloads:
            return Refresh.NONE
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


_LOOKED_AT = (State.STABLE, State.CHANGED, State.REFRESHED)


class Cause(NamedTuple):
    """The change that may have undone a resource."""

    place: int
    """The place of the causing resource in the order. -1 if it is unknown."""
    is_named: bool
    """Whether it has touched a subject of the undone resource. Otherwise its subjects are unknown."""

    def sentence(self, events: Sequence[Event]) -> str:
        """Return the end of a sentence about the causing resource."""
        if self.place < 0:
            return ""
        verb = "changed" if self.is_named else "may have changed"
        return f": another resource of this run, {events[self.place].reference}, {verb} it"


class Touches:
    """The subjects that a run has touched so far, each with the place of the last resource that touched it."""

    def __init__(self) -> None:
        self.newest = -1
        """The place of the last change."""
        self._exact: dict[str, int] = {}
        self._trees: dict[str, int] = {}
        """Directories touched with everything below them."""
        self._around: dict[str, int] = {}
        """All touched paths and their parent directories."""
        self._anything = -1
        self._paths = RealPaths()

    def add(self, place: int, subjects: Iterable[str]) -> None:
        """Record the subjects of a change."""
        self.newest = max(self.newest, place)
        for subject in subjects:
            if subject == ANYTHING:
                self._anything = place
            elif not subject.startswith("/"):
                self._exact[subject] = place
            else:
                path = self._paths.of(subject)
                (self._trees if subject.endswith("/") else self._exact)[path] = place
                for ancestor in _ancestors(path):
                    if self._around.get(ancestor) == place:  # all directories above it are up to date too
                        break
                    self._around[ancestor] = place

    def last(self, subjects: Iterable[str]) -> Cause:
        """Return the last change that touched a subject."""
        named = -1
        for subject in subjects:
            if not subject.startswith("/"):
                named = max(named, self._exact.get(subject, -1))
                continue
            path = self._paths.of(subject)
            known = self._around if subject.endswith("/") else self._exact
            named = max(named, known.get(path, -1))
            if self._trees:
                named = max(named, *(self._trees.get(ancestor, -1) for ancestor in _ancestors(path)))
        if named >= self._anything:
            return Cause(named, is_named=True)
        return Cause(self._anything, is_named=False)


class FinalLook:
    """The changes of one run, and the resources that they may have undone."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._changed = Touches()
        self._place = -1

    def begin(self, place: int) -> None:
        """Begin the turn of the resource at a place in the order."""
        self._place = place

    def note_change(self, resource: Resource[Any, Any], actual: Any) -> None:
        """Record that a resource is about to be changed from ``actual`` in the current turn."""
        self._changed.add(self._place, resource.touched(actual))

    def to_look_at(self, events: Sequence[Event]) -> Iterator[tuple[int, Cause]]:
        """Yield the places of the resources to read again, each with the change that is the reason."""
        for place, event in enumerate(events[: max(self._changed.newest, 0)]):
            if event.state not in _LOOKED_AT or event.noop:
                continue
            index = self._catalog.order[place]
            if index >= len(self._catalog.declarations):  # a reversal, which no manifest declares
                continue
            declaration = self._catalog.declarations[index]
            if declaration.child is not None:
                continue
            cause = self._changed.last(declaration.type.subjects(declaration.properties))
            if cause.place > place:
                yield place, cause
            elif event.changed:
                yield place, Cause(-1, is_named=False)


def _ancestors(path: str) -> Iterator[str]:
    yield path
    while (end := path.rfind("/")) > 0:
        path = path[:end]
        yield path
    yield "/"
