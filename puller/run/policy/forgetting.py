"""Bundles that the configuration of this host does not name any more: what is kept of them, until somebody says so.

* No run removes them: a bundle whose name comes back is enforced at once, also without the site, and a mistake in the
  configuration takes nothing away.
* Forgetting one removes what only runs with it need. The quarantine stays: what broke this host once is not tried again
  because its name was away for a while. So does what it has put on the machine, which nobody manages then.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from bundles.errors import BundleError, FormatError
from bundles.format.identity import parse_name
from bundles.store.store import Store
from puller.config.configuration import Configuration
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import UsageError
from puller.run.left.managed import Left, Managed
from puller.run.left.trial_copies import TrialCopies
from puller.run.policy.pins import Pins
from puller.run.trials import Trials
from puller.state.directories import Directories


class Unconfigured(msgspec.Struct, frozen=True):
    """The remains of one bundle; ``version`` is what was enforced last, ``size`` is in bytes."""

    name: str
    version: str | None
    directory: Path
    size: int


def find_unconfigured(store: Store, configuration: Configuration) -> list[Unconfigured]:
    """All that is kept and not named; nothing where the store cannot be read, which its bundles tell of."""
    configured = {choice.name for choice in configuration.bundles}
    with suppress(BundleError):
        return [_left(name, store) for name in store.names() if name not in configured and _is_name(name)]
    return []


def forget(directories: Directories, name: str, warn: Callable[[str], None]) -> Unconfigured:
    """Remove what is kept of a bundle; ``warn`` is told what is damaged.

    Raises ``UsageError`` when there is nothing, ``StoreError``, ``OSError``.
    """
    store, pins = Store(directories.bundles), Pins.load(directories, warn)
    if not _is_name(name) or (name not in store.names() and pins.find(name) is None):
        raise UsageError(f"{name}: nothing of such a bundle is kept on this host")
    left = _left(name, store)
    # The store last: as long as something is in it, what was cut short here can be asked for again.
    Trials(directories, warn, noop=False).close(name)
    PendingRefreshes(directories.pending_refreshes, name).keep_only(())
    TrialCopies(directories.trials / name, warn).keep(())
    Managed(directories, warn).forget(name)
    pins.remove(name)
    store.remove(name)
    return left


def forget_left(
    directories: Directories, name: str, references: Collection[str], warn: Callable[[str], None]
) -> list[Left]:
    """List what a bundle has left behind no longer, or only ``references`` of it; gives what that is.

    Raises ``UsageError`` for what it has not left, ``OSError``.
    """
    managed = Managed(directories, warn)
    known = {one.reference for one in managed.left(name)}
    for reference in references:
        if reference not in known:
            raise UsageError(f"{name}: has not left {reference} behind; `puller status` lists what it has")
    return managed.forget_left(name, references)


def _left(name: str, store: Store) -> Unconfigured:
    named, directory = store.named(name), store.root / name
    return Unconfigured(name, named.version if named else None, directory, _size(directory))


def _size(directory: Path) -> int:
    size = 0
    with suppress(OSError):  # what is removed meanwhile has none
        for path in directory.rglob("*"):
            size += path.lstat().st_size
    return size


def _is_name(text: str) -> bool:
    with suppress(FormatError):
        return bool(parse_name(text))
    return False
