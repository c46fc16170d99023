"""Pending refreshes: a resource changed, and what subscribes to it has not been refreshed yet.

* A refresh is recorded on disk before the change that causes it, and cleared after it succeeded; so a crash, a failure
  or a reboot in between delays it to the next run and never loses it.
* A file that is not understood is set aside under a name of its own, and ``notes`` says so: the run goes on.
"""

from collections.abc import Iterable
from pathlib import Path

from puller.state.state_file import StateFile


class PendingRefreshes:
    """The pending refreshes of one manifest, known by ``scope``, in the file ``path``.

    Without a path they are those of this run alone; with ``noop`` nothing is written.
    """

    def __init__(self, path: Path | None, scope: str, *, noop: bool = False) -> None:
        self._file = (
            StateFile(path, dict[str, list[str]], "pending refreshes in it are lost") if path else None
        )
        self._noop = noop
        self._scope = scope
        self.notes: list[str] = []
        """Sentences for people: what was lost."""
        self._all = (self._file and self._file.load(self.notes.append, noop=noop)) or {}
        self.before = frozenset(self._all.get(scope, ()))
        """Subscribers that an earlier run left without their refresh."""
        self._pending = set(self.before)

    def record(self, subscribers: Iterable[str]) -> frozenset[str]:
        """Record that these are to be refreshed; gives those that were not recorded already."""
        new = frozenset(subscribers) - self._pending
        if new:
            self._pending |= new
            self._save()
        return new

    def clear(self, subscribers: Iterable[str]) -> None:
        """Take off the record what was refreshed, or need not be."""
        if done := self._pending.intersection(subscribers):
            self._pending -= done
            self._save()

    def keep_only(self, known: Iterable[str]) -> None:
        """Forget subscribers that the manifest does not have any more."""
        self.clear(self._pending.difference(known))

    def _save(self) -> None:
        pending = {**self._all, self._scope: sorted(map(str, self._pending))}
        self._all = {scope: names for scope, names in pending.items() if names}
        if not self._noop and self._file:
            self._file.save(self._all)
