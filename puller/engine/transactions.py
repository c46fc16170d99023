"""Changes that several resources make together: packages in one transaction, edits of one file in one write.

* Of a *whole*, such as a file, all parts are changed in the place of the first that differs, whatever stands between:
  but those that wait for something that has not had its turn. They fail together, as they would be changed together,
  unless their type tells of single ones that failed.
* Otherwise together with a resource are changed those right after it that differ now and want the same of the same
  manager. The search ends at the first that may depend on anything in between: its order is kept. One that fails takes
  no other with it: what the transaction has not done each tries alone.
* Each is still a resource of its own. When its turn comes it is looked at as always: what the transaction has done it
  has changed.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec

from foundation.differences import Difference
from puller.engine.pending_refreshes import PendingRefreshes
from puller.engine.progress import Progress, homes
from puller.engine.shared_objects import Parts, is_managed
from puller.errors import ResourceError
from puller.manifest.declaration import Declaration
from puller.manifest.graph.catalog import Catalog
from puller.manifest.graph.resource_paths import has_conditions
from puller.resources.base import Context, Resource

Member = tuple[int, Resource[Any, Any], Any]
"""A resource of a transaction: its index, and what was seen when it was looked at."""


class Begun(msgspec.Struct, frozen=True):
    """A resource that was changed together with one before it: what differed, and which refreshes are pending since."""

    differences: Sequence[Difference]
    newly_pending: frozenset[str]


class Transactions:
    """The transactions of one run.

    ``context_of`` gives the context in which a resource is changed; ``before_change`` is told of each that follows, and
    ``begin_changes`` is called before all of them change.
    """

    def __init__(
        self,
        catalog: Catalog,
        parts: Parts,
        progress: Progress,
        pending: PendingRefreshes,
        context_of: Callable[[Declaration], Context],
        before_change: Callable[[int, Resource[Any, Any], Any, Sequence[Difference]], None],
        begin_changes: Callable[[], None],
    ) -> None:
        self._catalog = catalog
        self._parts = parts
        self._progress = progress
        self._pending = pending
        self._context_of = context_of
        self._before_change, self._begin_changes = before_change, begin_changes
        self.begun: dict[int, Begun] = {}
        """Resources that have been in a transaction and have not had their turn, by index."""
        self._failures: dict[int, Exception] = {}
        self._shown: set[int] = set()

    def members(self, index: int, resource: Resource[Any, Any], actual: Any) -> list[Member]:
        """All that is changed together with a resource, which is the first of them."""
        key = resource.transaction(actual)
        first = (index, resource, actual)
        return [first] if key is None else [first, *self._followers(first, key)]

    def is_shown(self, index: int) -> bool:
        """Whether what is done to a resource is a part of the diff of an earlier one."""
        return index in self._shown

    def diff(self, members: Sequence[Member]) -> str:
        """The diff of what the members do, with the first of them; empty for what an earlier one has shown."""
        index, resource, _ = members[0]
        if self.is_shown(index) or any(member.properties.sensitive for _, member, _ in members):
            return ""
        self._shown.update(other for other, _, _ in members)
        return type(resource).diff_together([(member, found) for _, member, found in members]) or ""

    def change(self, members: Sequence[Member]) -> bool:
        """Change the first of the members with the others; false when it has to be changed alone, now or after all.

        Raises ``OSError`` and ``ResourceError`` when parts of a whole cannot be changed, or when a resource cannot be
        looked at after a transaction that failed.
        """
        (index, resource, _), *followers = members
        if failure := self._failures.pop(index, None):
            raise failure
        if not followers:
            return False
        for other, member, found in followers:
            differences = member.differences(found)
            self._before_change(other, member, found, differences)
            newly_pending = self._pending.record(self._catalog.subscribers_of(other))
            self.begun[other] = Begun(differences, newly_pending)
        try:
            self._begin_changes()
            failed = type(resource).change_together([(member, found) for _, member, found in members]) or {}
        except (OSError, ResourceError) as failure:
            if resource.whole(resource.properties) is None:
                return not resource.differences(resource.look())
            self._failures.update((other, failure) for other, _, _ in followers)
            raise
        self._failures.update((members[place][0], failure) for place, failure in failed.items() if place)
        if 0 in failed:
            raise failed[0]
        return True

    def _followers(self, first: Member, key: Hashable) -> Iterator[Member]:
        index, resource, _ = first
        whole = resource.whole(resource.properties)
        return self._directly_after(index, resource, key) if whole is None else self._rest_of(whole, index)

    # Parts of a whole

    def _rest_of(self, whole: Hashable, first: int) -> Iterator[Member]:
        """The parts after the first that differ and wait for nothing that has not had its turn."""
        indexes = self._parts.indexes_of(whole)
        if first not in indexes:  # what it is a part of was not known before its turn
            return
        joined = {first}
        for other in indexes[indexes.index(first) + 1 :]:
            if other in self.begun or not self._may_join(other, joined, first):
                continue
            member = self.made(other)
            try:
                found = member.look()
                differs = bool(member.differences(found))
            except (OSError, ResourceError):  # which it says when it has its turn
                continue
            joined.add(other)
            if differs:
                yield other, member, found

    def _may_join(self, other: int, joined: Collection[int], first: int) -> bool:
        """Whether nothing that has not had its turn, but for those that join, can keep a part from its own."""
        declaration = self._catalog.declarations[other]
        if declaration.properties.noop or not is_managed(declaration):
            return False
        waits_for = self._catalog.links.first.get(other, ())
        if any(self._progress.events[index] is None and index not in joined for index in waits_for):
            return False
        if self._progress.unmet_requirements(other, apart_from=joined):
            return False
        if any(home.fail_on_error for home in homes(declaration)):  # what is between may end it
            return all(index in joined for index in self._between(first, other))
        return True

    def _between(self, first: int, other: int) -> list[int]:
        return self._catalog.order[self._positions[first] : self._positions[other]]

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {index: position for position, index in enumerate(self._catalog.order)}

    # What follows directly

    def _directly_after(self, index: int, first: Resource[Any, Any], key: Hashable) -> Iterator[Member]:
        before = self._catalog.attended(index)
        for other in self._catalog.order[self._positions[index] + 1 :]:
            declaration = self._catalog.attended(other)
            # A transaction ends at what has conditions of its own, fails, or must not be reached after a failure: what
            # becomes of it may depend on what is done before it.
            if (
                declaration.type is not type(first)
                or declaration.failure
                or has_conditions(declaration)
                or declaration.properties.noop
            ):
                return
            # A health check runs after the change of its own resource. With ``fail_on_error`` it may stop the next one.
            if before.properties.health_checks and any(home.fail_on_error for home in homes(declaration)):
                return
            if self._progress.unmet_requirements(other):
                return
            member = self.made(other)
            try:
                found = member.look()
                if not member.differences(found):
                    continue  # nothing is done for it, so nothing can come out of order
                if member.transaction(found) != key:
                    return
            except (OSError, ResourceError):
                return
            before = declaration
            yield other, member, found

    def made(self, index: int) -> Resource[Any, Any]:
        """Return the resource with this index."""
        declaration = self._catalog.attended(index)
        return declaration.type(declaration.properties, self._context_of(declaration))
