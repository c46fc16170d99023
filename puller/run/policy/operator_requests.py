"""Requests of the operator: roll back a bundle, and forget a bundle that is missing in the configuration of this host.

Rollback:

* The version that is given up is quarantined before anything else changes. A run that begins between two steps does not
  take it for new.
* The version to return to was current before, and is not quarantined.

Forgetting:

* No run removes a bundle that is missing in the configuration. If its name returns to the configuration, it is applied
  at once, also without the site. A mistake in the configuration removes nothing.
* Forgetting removes the records that only runs with the bundle need. The quarantine stays: a version that broke this
  host is not tried again when its name returns. The resources of the bundle stay on the machine, unmanaged.
"""

from collections.abc import Callable, Collection
from contextlib import suppress

from bundles.errors import StoreError
from bundles.store.contents import Installed
from bundles.store.store import Store
from foundation.problems import ProblemCode
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import UsageError
from puller.run.host_state import Unconfigured, is_bundle_name
from puller.run.leftovers.managed import Left, Managed
from puller.run.policy.decision import Version, find_fallback
from puller.run.policy.holds import Pins, Quarantine
from puller.run.trials import Trials
from puller.state import Directories


def find_intact(find: Callable[[str], Installed | None], name: str) -> Installed | None:
    """Return the version that ``find`` returns. ``None`` also if it is damaged."""
    with suppress(StoreError):
        return find(name)
    return None


def find_fallback_bundle(
    store: Store, quarantine: Quarantine, name: str, *, except_for: str = ""
) -> Installed | None:
    """Return the fallback of the version with the SHA-256 ``except_for``."""

    def version(bundle: Installed | None) -> Version | None:
        if bundle is None:
            return None
        return Version(bundle.sha256, quarantined=quarantine.find(bundle.sha256) is not None)

    good = find_intact(store.good, name)
    if find_fallback(version(good), None, except_for) is not None:
        return good
    previous = find_intact(store.previous, name)
    return previous if find_fallback(None, version(previous), except_for) is not None else None


def roll_back(
    store: Store, quarantine: Quarantine, trials: Trials, name: str, why: str
) -> tuple[Installed, Installed]:
    """Give up the current version for its fallback. Return both. The next run applies the fallback.

    1. Find the current version and its fallback. Without both, nothing is changed.
    2. Quarantine the current version, so that a run after a crash does not take it for new.
    3. Close its trial.
    4. Make the fallback current.
    5. Make it the last good version. Otherwise a damaged link would lead back to the version that was given up.

    Raise ``UsageError`` without a current version or a fallback, ``StoreError``, ``OSError``.
    """
    # 1. Versions
    current = store.current(name)
    if current is None:
        raise UsageError(
            f"{name}: no version is enforced on this host, so a rollback is not possible",
            code=ProblemCode.NOTHING_TO_ENFORCE,
        )
    target = find_fallback_bundle(store, quarantine, name, except_for=current.sha256)
    if target is None:
        raise UsageError(
            f"{name} {current.version}: no version is available for a rollback: {_why(store, quarantine, name)}",
            code=ProblemCode.ROLLBACK_FAILS,
        )
    # 2. Quarantine
    quarantine.add(name, current.version, current.sha256, why)
    # 3. Trial
    trials.close(name)
    # 4. Current
    store.activate(name, target.sha256)
    # 5. Good
    store.mark_good(name, target.sha256)
    return current, target


def _why(store: Store, quarantine: Quarantine, name: str) -> str:
    try:
        before = store.previous(name)
    except StoreError as error:
        return str(error)
    entry = before and quarantine.find(before.sha256)
    return str(entry) if entry else "no other version was enforced before"


def forget(directories: Directories, name: str, warn: Callable[[str], None]) -> Unconfigured:
    """Remove the records of a bundle, and return its description. Damaged records are passed to ``warn``.

    Raise ``UsageError`` for an unknown bundle, ``StoreError``, ``OSError``.
    """
    from puller.run.leftovers.trial_copies import TrialCopies  # 4 % of an idle run, which removes no record

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


def forget_leftovers(
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
    return managed.forget_leftovers(name, references)
