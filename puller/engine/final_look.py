"""The resources to read again after the last change of a run.

* A resource is read again if it was changed before another change, or if a later change has touched one of its
  subjects. Each type names its subjects (``Resource.subjects``).
* A subject is a path, a path with a slash at its end for everything at and below it, or a word such as ``packages``.
* Paths are compared with resolved parent directories.
* A run without changes skips this.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from puller.manifest.graph.catalog import Catalog
from puller.reporting.report import Event, State
from puller.resources.base import ANYTHING, Resource
from puller.system.local_paths import RealPaths

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
