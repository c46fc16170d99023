"""Pending refreshes: a resource has changed, but a subscriber has not been refreshed yet.

* A refresh is recorded on disk before the change that causes it, and cleared after it has succeeded. A crash, a failure
  or a reboot between them delays it to the next run.
* A reload has its own record. A resource that needs both a reload and a refresh has both records.
* A damaged file is moved aside, with a sentence in ``notes``. The run continues.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from puller.state import StateFile
from puller.values.common_properties import reload_of, subscriber_of


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1] = 1
    pending: dict[str, list[str]] = {}
    """Subscribers, by scope."""


class PendingRefreshes:
    """The pending refreshes of one catalog, in the file ``path``, by scope.

    Without a path they exist only in this run. With ``noop`` nothing is written.
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
        """``scope`` is the scope of new refreshes, except for subscribers with another scope in ``owners``.

        If ``shares`` accepts another scope of the file, its records count too. A resource may have belonged to another
        bundle when its refresh was recorded.
        """
        self._file = StateFile(path, _Document, "its pending refreshes are lost") if path else None
        self._noop = noop
        self._scope = scope
        self._owners = owners or {}
        self.notes: list[str] = []
        """Sentences about lost refreshes."""
        self._all = ((self._file and self._file.load(self.notes.append, noop=noop)) or _Document()).pending
        own = {scope, *self._owners.values()}
        self._pending = {name: set(names) for name, names in self._all.items() if name in own or shares(name)}
        """By scope."""
        self.before = self._names()
        """Subscribers whose refresh an earlier run has not done, as ``puller.values.common_properties`` lists them."""

    def record(self, subscribers: Iterable[str]) -> frozenset[str]:
        """Record pending refreshes. Return the new refreshes."""
        new = frozenset(subscribers) - self._names()
        for subscriber in new:
            scope = self._owners.get(subscriber_of(subscriber)[0], self._scope)
            self._pending.setdefault(scope, set()).add(subscriber)
        if new:
            self._save()
        return new

    def conclude(self, reference: str) -> None:
        """Remove the records of a resource that was refreshed, or needs no refresh."""
        self.clear([reference, reload_of(reference)])

    def clear(self, subscribers: Iterable[str]) -> None:
        """Remove the records of these subscribers."""
        if done := self._names().intersection(subscribers):
            for names in self._pending.values():
                names -= done
            self._save()

    def keep_only(self, known: Iterable[str], may_be: Callable[[str], bool] = lambda name: False) -> None:
        """Remove subscribers that the catalog does not declare. ``may_be`` accepts subscribers
        that the catalog may still declare.
        """
        resources = {subscriber_of(name)[0] for name in known}
        names = ((name, subscriber_of(name)[0]) for name in self._names())
        self.clear([name for name, item in names if item not in resources and not may_be(item)])

    def _names(self) -> frozenset[str]:
        return frozenset(name for names in self._pending.values() for name in names)

    def _save(self) -> None:
        pending = {scope: sorted(map(str, names)) for scope, names in self._pending.items()}
        self._all = {scope: names for scope, names in {**self._all, **pending}.items() if names}
        if not self._noop and self._file:
            self._file.save(_Document(pending=self._all))
