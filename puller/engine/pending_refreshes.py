"""Pending refreshes: a resource changed, and what subscribes to it has not been refreshed yet.

* A refresh is recorded on disk before the change that causes it, and cleared after it succeeded; so a crash, a failure
  or a reboot in between delays it to the next run and never loses it.
* What is to reload is on record as such; when it is to be refreshed as well, both are.
* A file that is not understood is set aside under a name of its own, and ``notes`` says so: the run goes on.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from puller.state.state_file import StateFile
from puller.values.references import reload_of, subscriber_of


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1] = 1
    pending: dict[str, list[str]] = {}
    """Subscribers, by scope."""


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
        self._file = StateFile(path, _Document, "pending refreshes in it are lost") if path else None
        self._noop = noop
        self._scope = scope
        self._owners = owners or {}
        self.notes: list[str] = []
        """Sentences for people: what was lost."""
        self._all = ((self._file and self._file.load(self.notes.append, noop=noop)) or _Document()).pending
        own = {scope, *self._owners.values()}
        self._pending = {name: set(names) for name, names in self._all.items() if name in own or shares(name)}
        """By scope."""
        self.before = self._names()
        """Subscribers that an earlier run left without their refresh, as ``puller.values.references`` lists them."""

    def record(self, subscribers: Iterable[str]) -> frozenset[str]:
        """Record that these are to be refreshed; gives those that were not recorded already."""
        new = frozenset(subscribers)
        if not new:  # as for most resources
            return new
        new -= self._names()
        for subscriber in new:
            scope = self._owners.get(subscriber_of(subscriber)[0], self._scope)
            self._pending.setdefault(scope, set()).add(subscriber)
        if new:
            self._save()
        return new

    def conclude(self, reference: str) -> None:
        """Take a resource off the record that was refreshed, or need not be."""
        self.clear([reference, reload_of(reference)])

    def clear(self, subscribers: Iterable[str]) -> None:
        """Take these off the record, as they are listed."""
        if done := self._names().intersection(subscribers):
            for names in self._pending.values():
                names -= done
            self._save()

    def keep_only(self, known: Iterable[str], may_be: Callable[[str], bool] = lambda name: False) -> None:
        """Forget subscribers that the catalog does not have any more; ``may_be`` tells of those that it may have."""
        resources = {subscriber_of(name)[0] for name in known}
        names = ((name, subscriber_of(name)[0]) for name in self._names())
        self.clear([name for name, one in names if one not in resources and not may_be(one)])

    def _names(self) -> frozenset[str]:
        return frozenset(name for names in self._pending.values() for name in names)

    def _save(self) -> None:
        pending = {scope: sorted(map(str, names)) for scope, names in self._pending.items()}
        self._all = {scope: names for scope, names in {**self._all, **pending}.items() if names}
        if not self._noop and self._file:
            self._file.save(_Document(pending=self._all))
