"""Resources that manage parts of one object, and changes that several resources make together.

Packages are changed in one transaction, and the edits of one file in one write.

* All parts of a *whole*, such as a file, change at the place of the first part that is out of sync. The resources
  between them do not matter. Parts that wait for an unfinished resource are left out. The parts fail together, unless
  their type reports the parts that failed.
* Other resources join a transaction if they directly follow, are out of sync now, and need the same action of the same
  manager. The search ends at the first resource that may depend on an earlier one, so the order is kept. A failure
  affects no other resource: each member that the transaction has not changed is tried alone.
* Each member keeps its own turn and is read as usual. The change of the transaction counts as its change.
"""

import stat
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec

from foundation.differences import Difference, with_short_diffs
from hiera.errors import HieraError
from puller.engine.conditions import why_unmanaged
from puller.engine.pending_refreshes import PendingRefreshes
from puller.engine.progress import Progress, homes
from puller.errors import ResourceError
from puller.manifest.declaration import Declaration, has_conditions
from puller.manifest.graph.catalog import Catalog
from puller.resources.base import Context, Part, Resource
from puller.system.protocol import System
from puller.values.file_mode import FileMode

_READABLE_FILE = stat.S_IFREG | 0o644
_LONGEST_KEPT_DIFF = 16 * 1024
"""Maximum length of the diff of one resource with a limit, in characters."""


class Parts:
    """The parts of one catalog, determined at the first request. ``noop``: the run changes nothing."""

    def __init__(self, catalog: Catalog, *, noop: bool) -> None:
        self._catalog = catalog
        self._noop = noop

    def indexes_of(self, whole: Hashable) -> list[int]:
        """Return the indexes of all parts of a whole, in the order of the run."""
        return self._by_whole.get(whole, [])

    def of(self, whole: Hashable) -> list[Part]:
        """Return all managed parts of a whole, in the order of the run. In a real run, noop resources are left out."""
        declarations = (self._catalog.declarations[index] for index in self.indexes_of(whole))
        return [
            Part(declaration.reference, declaration.type, declaration.properties)
            for declaration in declarations
            if (self._noop or not declaration.properties.noop) and is_managed(declaration)
        ]

    def all(self) -> list[Part]:
        """Return all resources that are or may be managed. If one cannot be applied, only its name is known.

        Raise ``ResourceError`` if the declarations cannot be determined on this machine.
        """
        return self._all

    @cached_property
    def _all(self) -> list[Part]:
        return [
            part for declaration in self._catalog.declarations if (part := _part(declaration)) is not None
        ]

    @cached_property
    def _by_whole(self) -> dict[Hashable, list[int]]:
        result: dict[Hashable, list[int]] = {}
        for index, whole in self._wholes():
            result.setdefault(whole, []).append(index)
        return result

    def _wholes(self) -> Iterator[tuple[int, Hashable]]:
        declarations = self._catalog.declarations
        for index in self._catalog.order:
            if index >= len(declarations):  # a reversal
                continue
            declaration = declarations[index]
            if (whole := declaration.type.whole(declaration.properties)) is not None:
                yield index, whole


def _part(declaration: Declaration) -> Part | None:
    """Return a resource that is or may be managed."""
    try:
        if why_unmanaged(declaration):
            return None
    except (ResourceError, HieraError):  # the resource fails at its own turn
        pass
    is_open = declaration.failure and declaration.type.type_name == "apply"
    if is_open or declaration.loop is not None or "name" in declaration.unknown:
        raise ResourceError(
            f"{declaration.where}: {declaration.reference} may declare further resources that depend on unknown values"
        )
    is_known = isinstance(declaration.properties, declaration.type.properties_type)
    return Part(declaration.reference, declaration.type if is_known else Resource, declaration.properties)


def is_managed(declaration: Declaration) -> bool:
    """Return whether a resource is certainly managed in this run."""
    if declaration.failure or declaration.late is not None or declaration.loop is not None:
        return False
    try:
        return not why_unmanaged(declaration)
    except (ResourceError, HieraError):  # the resource fails at its own turn
        return False


Member = tuple[int, Resource[Any, Any], Any]
"""A resource of a transaction: its index, the resource, and its state before the change."""


class Observer:
    """Receives each resource that is changed. An error before the change is the failure of the resource."""

    def before_change(
        self,
        declaration: Declaration,
        resource: Resource[Any, Any],
        actual: Any,
        differences: Sequence[Difference],
    ) -> None:
        """Prepare for the change of a resource from ``actual``. Raise ``OSError``, ``ResourceError``."""

    def begin_changes(self) -> None:
        """Prepare for the changes of all reported resources, which follow now. Raise ``OSError``."""

    def after_change(self, declaration: Declaration, resource: Resource[Any, Any], actual: Any) -> None:
        """Record that a resource was changed to ``actual``."""


class Diffs:
    """The diffs of one run. ``limit`` is the maximum length of all diffs together, in characters."""

    def __init__(self, system: System, *, are_made: bool, limit: int | None) -> None:
        self._system, self._are_made, self._limit = system, are_made, limit
        self._kept = 0
        """Length of all diffs so far."""
        self._shown: set[int] = set()

    def may_include(self, index: int) -> bool:
        """Return whether the diff of an earlier resource can still include the change of this one."""
        return self._are_made and index not in self._shown

    def of(self, members: Sequence[Member]) -> str:
        """Return the diff of all members for the first one. Empty if an earlier resource has shown it."""
        index, resource, _ = members[0]
        if not self.may_include(index) or any(member.properties.sensitive for _, member, _ in members):
            return ""
        if self._limit is not None and (self._kept >= self._limit or self._is_private(resource)):
            return ""
        self._shown.update(other for other, _, _ in members)
        return type(resource).diff_together([(member, actual) for _, member, actual in members]) or ""

    def _is_private(self, resource: Resource[Any, Any]) -> bool:
        """Return whether other users cannot read the present object, or the object that the resource would make.

        Its text may contain a secret of the administrator, which no data name and no mask hides.
        """
        mode = getattr(resource.properties, "mode", None)
        if isinstance(mode, FileMode) and not mode.over(_READABLE_FILE) & stat.S_IROTH:
            return True
        for path in resource.places(resource.properties):
            status = self._system.lstat(path)
            if status is not None:
                needed = stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else stat.S_IROTH
                if not status.st_mode & needed:
                    return True
        return False

    def shortened(self, differences: list[Difference]) -> list[Difference]:
        """Return masked differences with diffs within the limit. A part of a secret could not be masked."""
        if self._limit is None or not any(item.diff for item in differences):
            return differences
        results = with_short_diffs(differences, min(self._limit - self._kept, _LONGEST_KEPT_DIFF))
        self._kept += sum(len(item.diff) for item in results)
        return results


class Begun(msgspec.Struct, frozen=True):
    """A resource that an earlier one has changed with it: its differences, and the refreshes that became pending."""

    differences: Sequence[Difference]
    newly_pending: frozenset[str]


class Transactions:
    """The transactions of one run. ``context_of`` returns the context in which a resource is changed."""

    def __init__(
        self,
        catalog: Catalog,
        parts: Parts,
        progress: Progress,
        pending: PendingRefreshes,
        context_of: Callable[[Declaration], Context],
        observer: Observer,
    ) -> None:
        self._catalog = catalog
        self._parts = parts
        self._progress = progress
        self._pending = pending
        self._context_of = context_of
        self._observer = observer
        self.begun: dict[int, Begun] = {}
        """Members of a transaction that have not had their turn, by index."""
        self._failures: dict[int, Exception] = {}

    def members(self, index: int, resource: Resource[Any, Any], actual: Any) -> list[Member]:
        """Return all resources that change together with a resource, which comes first."""
        key = resource.transaction(actual)
        first = (index, resource, actual)
        return [first] if key is None else [first, *self._followers(first, key)]

    def change(self, members: Sequence[Member]) -> bool:
        """Change all members. Return ``False`` if the first one has to be changed alone.

        Raise ``OSError`` and ``ResourceError`` if parts of a whole cannot be changed, or if a resource cannot be read
        after a transaction that failed.
        """
        (index, resource, _), *followers = members
        if failure := self._failures.pop(index, None):
            raise failure
        if not followers:
            return False
        for other, member, found in followers:
            differences = member.differences(found)
            self._observer.before_change(self._catalog.attended(other), member, found, differences)
            newly_pending = self._pending.record(self._catalog.subscribers_of(other))
            self.begun[other] = Begun(differences, newly_pending)
        try:
            self._observer.begin_changes()
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
        """Yield the later parts that are out of sync and wait only for finished or joined resources."""
        indexes = self._parts.indexes_of(whole)
        if first not in indexes:  # the whole was unknown before this turn
            return
        joined = {first}
        for other in indexes[indexes.index(first) + 1 :]:
            if other in self.begun or not self._can_join(other, joined, first):
                continue
            member = self.made(other)
            try:
                result = member.look()
                differs = bool(member.differences(result))
            except (OSError, ResourceError):  # the error is reported at its own turn
                continue
            joined.add(other)
            if differs:
                yield other, member, result

    def _can_join(self, other: int, joined: Collection[int], first: int) -> bool:
        """Return whether a part depends only on resources that are finished or joined."""
        declaration = self._catalog.declarations[other]
        if declaration.properties.noop or not is_managed(declaration):
            return False
        waits_for = self._catalog.links.first.get(other, ())
        if any(self._progress.events[index] is None and index not in joined for index in waits_for):
            return False
        if self._progress.unmet_requirements(other, apart_from=joined):
            return False
        if any(home.fail_on_error for home in homes(declaration)):  # one of them may stop it
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
            # A resource with conditions, a failure or noop ends the transaction, because earlier changes may affect it.
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
                result = member.look()
                if not member.differences(result):
                    continue  # without a change, its order does not matter
                if member.transaction(result) != key:
                    return
            except (OSError, ResourceError):
                return
            before = declaration
            yield other, member, result

    def made(self, index: int) -> Resource[Any, Any]:
        """Return the resource with this index."""
        declaration = self._catalog.attended(index)
        return declaration.type(declaration.properties, self._context_of(declaration))
