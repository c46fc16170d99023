"""Pending refreshes: a resource changed, and what subscribes to it has not been refreshed yet.

* A refresh is recorded on disk before the change that causes it, and cleared after it succeeded; so a crash, a failure
  or a reboot in between delays it to the next run and never loses it.
* A file that is not understood is set aside under a name of its own, and ``notes`` says so: the run goes on.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from puller.state.state_file import StateFile


class PendingRefreshes:
    """The pending refreshes of one catalog, in the file ``path``, where each belongs to a scope.

    Without a path they are those of this run alone; with ``noop`` nothing is written.
    """

    def __init__(
        self,
        path: Path | None,
        scope: str,
        *,
        owners: Mapping[str, str] | None = None,
        shares: Callable[[str], bool] = lambda scope: False,
        noop: bool = False,
    ) -> None:
        """``scope`` is that of new ones, but for subscribers that have another one in ``owners``.

        What other scopes of the file have on record counts, too, where ``shares`` says so: a resource may have been of
        another bundle when its refresh was recorded.
        """
        self._file = (
            StateFile(path, dict[str, list[str]], "pending refreshes in it are lost") if path else None
        )
        self._noop = noop
        self._scope = scope
        self._owners = owners or {}
        self.notes: list[str] = []
        """Sentences for people: what was lost."""
        self._all = (self._file and self._file.load(self.notes.append, noop=noop)) or {}
        own = {scope, *self._owners.values()}
        self._pending = {name: set(names) for name, names in self._all.items() if name in own or shares(name)}
        """By scope."""
        self.before = self._names()
        """Subscribers that an earlier run left without their refresh."""

    def record(self, subscribers: Iterable[str]) -> frozenset[str]:
        """Record that these are to be refreshed; gives those that were not recorded already."""
        new = frozenset(subscribers)
        if not new:  # as for most resources
            return new
        new -= self._names()
        for subscriber in new:
            scope = self._owners.get(subscriber, self._scope)
            self._pending.setdefault(scope, set()).add(subscriber)
        if new:
            self._save()
        return new

    def clear(self, subscribers: Iterable[str]) -> None:
        """Take off the record what was refreshed, or need not be."""
        if done := self._names().intersection(subscribers):
            for names in self._pending.values():
                names -= done
            self._save()

    def keep_only(self, known: Iterable[str], may_be: Callable[[str], bool] = lambda name: False) -> None:
        """Forget subscribers that the catalog does not have any more; ``may_be`` tells of those that it may have."""
        self.clear([name for name in self._names().difference(known) if not may_be(name)])

    def _names(self) -> frozenset[str]:
        return frozenset(name for names in self._pending.values() for name in names)

    def _save(self) -> None:
        pending = {scope: sorted(map(str, names)) for scope, names in self._pending.items()}
        self._all = {scope: names for scope, names in {**self._all, **pending}.items() if names}
        if not self._noop and self._file:
            self._file.save(self._all)
