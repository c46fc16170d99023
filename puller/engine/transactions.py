"""Changes that several resources make together, such as packages that are installed in one transaction.

* Together with a resource are changed those right after it that differ now and want the same of the same manager. The
  search ends at the first that may depend on anything in between: its order is kept.
* Each is still a resource of its own. When its turn comes it is looked at as always: what the transaction has done it
  has changed; what the transaction has not done it tries alone, so that one that fails takes no other with it.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import msgspec

from puller.engine.pending_refreshes import PendingRefreshes
from puller.engine.progress import Progress, homes
from puller.errors import ResourceError
from puller.manifest.catalog import Catalog
from puller.manifest.declaration import Declaration
from puller.manifest.ways import has_conditions
from puller.resources.base import Context, Difference, Resource


class Begun(msgspec.Struct, frozen=True):
    """A resource that was changed together with one before it: what differed, and which refreshes are pending since."""

    differences: list[str]
    newly_pending: frozenset[str]


class Transactions:
    """The transactions of one run.

    ``context_of`` gives the context in which a resource is changed; ``before_change`` is told of each that follows.
    """

    def __init__(
        self,
        catalog: Catalog,
        progress: Progress,
        pending: PendingRefreshes,
        context_of: Callable[[Declaration], Context],
        before_change: Callable[[int, Resource[Any, Any], Any, Sequence[Difference]], None],
    ) -> None:
        self._catalog = catalog
        self._progress = progress
        self._pending = pending
        self._context_of = context_of
        self._before_change = before_change
        self.begun: dict[int, Begun] = {}
        """Resources that have been in a transaction and have not had their turn, by index."""

    def change(self, index: int, resource: Resource[Any, Any], actual: Any) -> bool:
        """Change a resource and what follows it; false when it has to be changed alone, now or after all.

        Raises ``OSError`` and ``ResourceError`` when it cannot be looked at after a transaction that failed.
        """
        key = resource.transaction(actual)
        followers = [] if key is None else list(self._followers(index, resource, key))
        if not followers:
            return False
        for other, member, found in followers:
            differences = member.differences(found)
            self._before_change(other, member, found, differences)
            newly_pending = self._pending.record(self._catalog.subscribers_of(other))
            self.begun[other] = Begun([str(difference) for difference in differences], newly_pending)
        members = [(resource, actual), *((member, found) for _, member, found in followers)]
        try:
            type(resource).change_together(members)
        except (OSError, ResourceError):
            return not resource.differences(resource.look())
        return True

    def _followers(
        self, index: int, first: Resource[Any, Any], key: Hashable
    ) -> Iterator[tuple[int, Resource[Any, Any], Any]]:
        following = self._catalog.order[self._catalog.order.index(index) + 1 :]
        for other in following:
            declaration = self._catalog.declarations[other]
            properties = declaration.properties
            # A transaction ends at what has conditions of its own, fails, or must not be reached after a failure: what
            # becomes of it may depend on what is done before it.
            if (
                declaration.type is not type(first)
                or declaration.failure
                or has_conditions(declaration)
                or properties.noop
            ):
                return
            if any(home.fail_on_error for home in homes(declaration)):
                return
            if self._catalog.requirements(other) and self._progress.unmet_requirements(other):
                return
            member = declaration.type(properties, self._context_of(declaration))
            try:
                found = member.look()
                if not member.differences(found):
                    continue  # nothing is done for it, so nothing can come out of order
                if member.transaction(found) != key:
                    return
            except (OSError, ResourceError):
                return
            yield other, member, found
