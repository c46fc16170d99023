"""Forget a bundle that is missing in the configuration of this host.

* No run removes such a bundle. If its name returns to the configuration, it is applied at once, also without the site.
  A mistake in the configuration removes nothing.
* Forgetting removes the records that only runs with the bundle need. The quarantine stays: a version that broke this
  host is not tried again when its name returns. The resources of the bundle stay on the machine, unmanaged.
"""

from collections.abc import Callable, Collection

from bundles.store.store import Store
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import UsageError
from puller.run.host_state import Unconfigured, is_bundle_name
from puller.run.leftovers.managed import Left, Managed
from puller.run.leftovers.trial_copies import TrialCopies
from puller.run.policy.holds import Pins
from puller.run.trials import Trials
from puller.state.directories import Directories


def forget(directories: Directories, name: str, warn: Callable[[str], None]) -> Unconfigured:
    """Remove the records of a bundle, and return its description. Damaged records are passed to ``warn``.

    Raise ``UsageError`` for an unknown bundle, ``StoreError``, ``OSError``.
    """
    store, pins = Store(directories.bundles), Pins.load(directories, warn)
    if not is_bundle_name(name) or (name not in store.names() and pins.find(name) is None):
        raise UsageError(f"{name}: the bundle is unknown on this host")
    bundle = Unconfigured.load(store, name)
    # The store is last. Until it is empty, the command can be repeated after an interruption.
    Trials(directories, warn, noop=False).close(name)
    PendingRefreshes(directories.pending_refreshes, name).keep_only(())
    TrialCopies(directories.trials / name, warn).keep(())
    Managed(directories, warn).forget(name)
    pins.remove(name)
    store.remove(name)
    return bundle


def forget_left(
    directories: Directories, name: str, references: Collection[str], warn: Callable[[str], None]
) -> list[Left]:
    """Remove leftovers of a bundle, or only ``references``, from the list. Return the removed leftovers.

    Raise ``UsageError`` for a reference that is not a leftover, and ``OSError``.
    """
    managed = Managed(directories, warn)
    known = {left.reference for left in managed.left(name)}
    for reference in references:
        if reference not in known:
            raise UsageError(
                f"{name}: {reference} is not a leftover of this bundle",
                hint="list its leftovers with `puller status`",
            )
    return managed.forget_left(name, references)
