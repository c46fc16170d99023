"""Run the health checks of the current versions between two runs, without fetching or changing anything.

* The manifests are read from the store and joined as in a run, with facts and data of this host and the site data of
  the last run.
* A check that cannot be run is a finding. A bundle that is damaged or invalid on this host is never *in order*.
* While a run is active, no check is run, because the machine may be half changed. A run that begins during the checks
  invalidates their results.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from bundles.errors import BundleError, StoreError
from bundles.store.store import Store
from foundation.quantities import counted
from hiera.errors import HieraError
from puller.config.configuration import BundleChoice
from puller.engine.conditions import health_checks_of, why_unmanaged
from puller.errors import BusyError, ConfigurationError, PullerError, ResourceError
from puller.manifest.declaration import Declaration
from puller.manifest.declare import evaluate_again
from puller.manifest.graph.host_catalog import HostCatalog
from puller.manifest.graph.links import APPLY
from puller.manifest.manifest import Inputs
from puller.manifest.masking import Masks
from puller.reporting.history import load_status
from puller.reporting.monitoring import Finding
from puller.reporting.report import Health, HealthResult
from puller.run.bundle_run import read_manifest
from puller.run.judging import key_of, run_check
from puller.run.trials import Trials
from puller.state import Directories, only_run
from puller.system.protocol import System


class CheckResult(msgspec.Struct, frozen=True):
    """A health check with its result."""

    bundle: str
    resource: str
    result: HealthResult
    key: str = ""
    """The identity of the check, by ``puller.run.judging.key_of``."""


class HostHealth(msgspec.Struct):
    """The results of the checks of a host."""

    enforced: dict[str, str] = {}
    """The version of each bundle whose checks were run."""
    results: list[CheckResult] = []
    findings: list[Finding] = []
    """The checks that could not be run, with the reason."""


def find_active_run(directories: Directories) -> str:
    """Return a sentence about the process that changes this machine now. Empty without one."""
    status = load_status(directories)
    if status is not None and status.state == "running":
        return f"a run has been active since {status.since}"
    # Taking the lock for a test could stop a run that begins at this moment.
    return "another command holds the lock" if _is_locked(directories.run / "lock") else ""


def last_run(directories: Directories) -> object:
    """Return a value that changes when a run begins or ends. Raise ``OSError``."""
    try:
        status = os.stat(directories.status)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def check_enforced(
    choices: Sequence[BundleChoice],
    names: Sequence[str],
    store: Store,
    inputs: Callable[[], Inputs],
    system: System,
) -> HostHealth:
    """Run the checks of the bundles with these ``names``. Without names, run the checks of all ``choices``."""
    health = HostHealth()
    masks, number = Masks(), 0
    catalog = HostCatalog.of()
    checked: dict[int, str] = {}
    for choice in choices:
        is_checked = not names or choice.name in names
        try:
            current = store.current(choice.name)
            if current is None:
                if is_checked:
                    health.findings.append(Finding(Health.UNKNOWN, f"{choice.name}: no version is enforced"))
                continue
            catalog = catalog.joined(read_manifest(current, inputs(), catalog.references()))
        except StoreError as error:
            status, why = Health.CRITICAL, f"{choice.name}: the enforced version is damaged: {error}"
        except (PullerError, BundleError, HieraError) as error:
            status, why = Health.UNKNOWN, f"{choice.name}: its manifest cannot be read: {error}"
        else:
            if is_checked:
                health.enforced[choice.name] = current.version
                checked[number] = choice.name
            number += 1
            continue
        if is_checked:
            health.findings.append(Finding(status, why))
    for declaration in (catalog.declarations[index] for index in catalog.order):
        if not checked:
            break
        bundles = [checked[each] for each in catalog.numbers_of(declaration) if each in checked]
        if bundles:
            _check(bundles[0], declaration, health, masks, system)
    return health


def judge_trials(health: HostHealth, store: Store, directories: Directories, before: object) -> list[str]:
    """Record failed checks of versions on trial, so that the next run gives these versions up. Return sentences.

    ``before`` is ``last_run`` before the checks. Nothing is recorded without the right to write, or during a run.
    """
    failures: dict[str, list[CheckResult]] = {}
    trials = Trials(directories, lambda sentence: None, noop=True)
    for check in health.results:
        bundle = store.current(check.bundle) if not check.result.status.in_order else None
        trial = trials.find(bundle) if bundle is not None else None
        if trial is not None and trial.in_order and trial.health.get(check.key, Health.OK).in_order:
            failures.setdefault(check.bundle, []).append(check)
    if not failures or not os.access(directories.journal, os.W_OK):
        return []
    sentences = []
    with contextlib.suppress(BusyError, ConfigurationError), only_run(directories.run):
        if last_run(directories) != before:
            return []
        trials = Trials(directories, lambda sentence: None, noop=False)
        for name, checks in failures.items():
            bundle = store.current(name)
            if bundle is not None:
                why = "; ".join(f"{check.resource}: {check.result}" for check in checks[:3])
                trials.note_failure(bundle, f"puller check: {why}")
                sentences.append(f"{bundle} is on trial, and the next run gives it up")
    return sentences


def _check(bundle: str, declaration: Declaration, health: HostHealth, masks: Masks, system: System) -> None:
    """Run the checks of one resource, as a run does after it was applied."""
    if not _may_have_checks(declaration):
        return

    def unknown(why: str) -> None:
        sentence = masks.sentence(f"{bundle}: {declaration.reference}: {why}", declaration)
        health.findings.append(Finding(Health.UNKNOWN, sentence))

    try:
        if why_unmanaged(declaration):
            return
        if declaration.late is not None:
            evaluate_again(declaration)
    except (ResourceError, HieraError) as error:
        unknown(f"cannot evaluate whether it is managed: {error}")
        return
    if declaration.properties.noop:  # a run does not apply or check it
        return
    if why := declaration.failure or _child_failure(declaration):
        unknown(why)
        return
    for check in health_checks_of(declaration):
        result, key = run_check(check, declaration, masks, system), key_of(declaration.reference, check)
        health.results.append(CheckResult(bundle, str(declaration.reference), result, key))


def _may_have_checks(declaration: Declaration) -> bool:
    """Return whether a resource has checks, also if their expressions cannot be evaluated on this host."""
    if declaration.type.type_name == APPLY and (declaration.failure or _child_failure(declaration)):
        return True  # the checks of its children are unknown
    return any(
        place.properties.health_checks or "health_checks" in place.unknown for place in declaration.places()
    ) or bool(declaration.properties.health_checks)


def _child_failure(declaration: Declaration) -> str:
    """Return why the child manifest of an ``apply`` resource cannot be applied. Usually empty."""
    return "; ".join(map(str, declaration.child.failures)) if declaration.child is not None else ""


def findings_of(health: HostHealth) -> Iterator[Finding]:
    """Yield a finding for each check that is not in order, and one for all others."""
    good = 0
    for check in health.results:
        if check.result.status is Health.OK:
            good += 1
        else:
            sentence = f"{check.bundle}: {check.resource}: {check.result}"
            yield Finding(check.result.status, sentence)
    yield from health.findings
    if good or not (health.results or health.findings):
        yield Finding(Health.OK, _in_order(good, len(health.results)))


def _in_order(good: int, total: int) -> str:
    if not total:
        return "the enforced versions have no health checks"
    if good == total:
        return f"{counted(good, 'check')} OK"
    return f"{good} of {counted(total, 'check')} OK"


def _is_locked(path: Path) -> bool:
    """Return whether a process holds the lock, by the list of the kernel. The lock is not touched."""
    try:
        lock = os.stat(path)
    except FileNotFoundError:
        return False
    name = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    with open("/proc/locks", encoding="ascii", errors="replace") as stream:
        return any(
            words[1] == "FLOCK" and words[5] == name for words in map(str.split, stream) if len(words) > 5
        )
