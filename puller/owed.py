"""Refreshes that are owed: a resource changed, and what subscribes to it has not been refreshed yet.

* A refresh is recorded on disk before the change that causes it, and cleared after it succeeded; so a crash, a failure
  or a reboot in between delays it to the next run and never loses it.
* A file that is not understood is set aside under a name of its own, and ``lost`` says so: the run goes on.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from bundles.files import write_file
from puller.state import set_aside


class OwedRefreshes:
    """Of one manifest, known by ``scope``, in the file ``path``; with ``keep`` false nothing is written (noop).

    Without a path they are those of this run alone.
    """

    def __init__(self, path: Path | None, scope: str, *, keep: bool = True) -> None:
        self._path = path
        self._keep = keep
        self._scope = scope
        self._all, self.lost = _load(path, keep=keep)
        self.before = frozenset(self._all.get(scope, ()))
        """Subscribers that an earlier run left without their refresh."""
        self._owed = set(self.before)

    def record(self, subscribers: Iterable[str]) -> frozenset[str]:
        """Owe a refresh to each of these; gives those that were not owed one already."""
        new = frozenset(subscribers) - self._owed
        if new:
            self._owed |= new
            self._save()
        return new

    def clear(self, subscribers: Iterable[str]) -> None:
        """These are owed nothing any more."""
        if done := self._owed.intersection(subscribers):
            self._owed -= done
            self._save()

    def keep_only(self, known: Iterable[str]) -> None:
        """Forget subscribers that the manifest does not have any more."""
        self.clear(self._owed.difference(known))

    def _save(self) -> None:
        owed = {**self._all, self._scope: sorted(map(str, self._owed))}
        self._all = {scope: names for scope, names in owed.items() if names}
        if not self._keep or self._path is None:
            return
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_file(self._path, msgspec.json.format(msgspec.json.encode(self._all)) + b"\n", mode=0o600)


def _load(path: Path | None, *, keep: bool) -> tuple[dict[str, list[str]], str]:
    """What is owed, and what happened to a file that is not understood; raises ``OSError``."""
    if path is None:
        return {}, ""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]]), ""
    except FileNotFoundError:
        return {}, ""
    except (msgspec.DecodeError, IsADirectoryError) as error:
        aside = f"set aside as {set_aside(path)}" if keep else "left as it is, in noop"
        return {}, f"{path}: not understood ({error}); {aside}, and refreshes owed in it are lost"
