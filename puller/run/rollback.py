"""The rollback from a bundle: which one to roll back to, and the order of steps that a crash may cut anywhere.

* What is given up is in quarantine before anything else changes, so that no run between the steps takes it for new.
* What is returned to was current here before, and is not in quarantine itself.
"""

from contextlib import suppress

from bundles.errors import StoreError
from bundles.store.store import Installed, Store
from puller.errors import UsageError
from puller.run.policy.quarantine import Quarantine
from puller.run.trials import Trials


def find_rollback_target(
    store: Store, quarantine: Quarantine, name: str, *, except_for: str = ""
) -> Installed | None:
    """What to roll back to: the last good one, else the one before; never the one with the SHA-256 ``except_for``."""
    for find in (store.good, store.previous):
        with suppress(StoreError):  # damaged: there is nothing in it to roll back to
            other = find(name)
            if other and other.sha256 != except_for and not quarantine.find(other.sha256):
                return other
    return None


def roll_back(
    store: Store, quarantine: Quarantine, trials: Trials, name: str, why: str
) -> tuple[Installed, Installed]:
    """Give up what is current for what was before; gives both.

    Raises ``UsageError`` when there is nothing to roll back from or to, ``StoreError``, ``OSError``.
    """
    current = store.current(name)
    if current is None:
        raise UsageError(f"{name}: nothing is enforced on this host, so there is nothing to roll back from")
    target = find_rollback_target(store, quarantine, name, except_for=current.sha256)
    if target is None:
        raise UsageError(
            f"{name} {current.version}: there is nothing to roll back to: {_why(store, quarantine, name)}"
        )
    quarantine.add(name, current.version, current.sha256, why)
    trials.close(name)
    store.activate(name, target.sha256)
    store.mark_good(name, target.sha256)  # or damage to a link would lead back to what was given up
    return current, target


def _why(store: Store, quarantine: Quarantine, name: str) -> str:
    try:
        before = store.previous(name)
    except StoreError as error:
        return str(error)
    entry = before and quarantine.find(before.sha256)
    return str(entry) if entry else "no other version was enforced here before"
