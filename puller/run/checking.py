"""The health checks of what is enforced, asked between runs: nothing is fetched, and nothing changed.

* The manifests are those of the store, joined as a run joins them, with this host's facts and data; site data is what
  the last run has kept.
* What cannot be asked is a finding: a bundle that is damaged or not understood here is never *in order*.
* While a run is at work nothing is asked: what is half done says nothing. A run that comes while checks are asked makes
  their answers void.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from bundles.errors import BundleError, StoreError
from bundles.store.store import Store
from hiera.errors import HieraError
from puller.config.configuration import BundleChoice
from puller.engine.conditions import health_checks_of, why_unmanaged
from puller.engine.health_checks import check_health
from puller.errors import PullerError, ResourceError
from puller.manifest.declaration import Declaration
from puller.manifest.host_catalog import HostCatalog
from puller.manifest.links import APPLY
from puller.manifest.manifest import Inputs
from puller.manifest.masking import Masks
from puller.reporting.history import load_status
from puller.reporting.monitoring import Finding
from puller.reporting.report import Health, HealthResult
from puller.run.bundle_run import read_manifest
from puller.state.directories import Directories
from puller.system.protocol import System


class Asked(msgspec.Struct, frozen=True):
    """A health check with its answer."""

    bundle: str
    resource: str
    result: HealthResult


class Standing(msgspec.Struct):
    """The answers to the checks of a host."""

    enforced: dict[str, str] = {}
    """The version of each bundle whose checks were asked."""
    asked: list[Asked] = []
    findings: list[Finding] = []
    """What could not be asked, and why."""


def who_is_at_work(directories: Directories) -> str:
    """Who is changing this machine now, as a sentence; empty when nobody is."""
    status = load_status(directories)
    if status is not None and status.state == "running":
        return f"a run is at work since {status.since}"
    # Whoever tried the lock would keep a run that begins just then from its work.
    return "another command holds the lock" if _is_locked(directories.run / "lock") else ""


def last_run(directories: Directories) -> object:
    """A value that is another one after a run has begun or ended; raises ``OSError``."""
    try:
        found = os.stat(directories.status)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def ask_enforced(
    choices: Sequence[BundleChoice],
    names: Sequence[str],
    store: Store,
    inputs: Callable[[], Inputs],
    system: System,
) -> Standing:
    """Ask the checks of the bundles of these ``names``, of all ``choices`` of the operator when there are none."""
    standing = Standing()
    masks, number = Masks(), 0
    catalog = HostCatalog.of()
    wanted: dict[int, str] = {}
    for choice in choices:
        is_wanted = not names or choice.name in names
        try:
            current = store.current(choice.name)
            if current is None:
                if is_wanted:
                    standing.findings.append(Finding(Health.UNKNOWN, f"{choice.name}: nothing is enforced"))
                continue
            catalog = catalog.joined(read_manifest(current, inputs(), catalog.references()))
        except StoreError as error:
            health, why = Health.CRITICAL, f"{choice.name}: what is enforced is damaged: {error}"
        except (PullerError, BundleError, HieraError) as error:
            health, why = Health.UNKNOWN, f"{choice.name}: its manifest cannot be read: {error}"
        else:
            if is_wanted:
                standing.enforced[choice.name] = current.version
                wanted[number] = choice.name
            number += 1
            continue
        if is_wanted:
            standing.findings.append(Finding(health, why))
    for declaration in (catalog.declarations[index] for index in catalog.order):
        of = [wanted[one] for one in catalog.numbers_of(declaration) if one in wanted] if wanted else []
        if of:
            _ask(of[0], declaration, standing, masks, system)
    return standing


def _ask(bundle: str, declaration: Declaration, standing: Standing, masks: Masks, system: System) -> None:
    """Ask the checks of one resource, as a run does after it was applied."""
    if not _may_have_checks(declaration):
        return

    def unknown(why: str) -> None:
        sentence = masks.sentence(f"{bundle}: {declaration.reference}: {why}", declaration)
        standing.findings.append(Finding(Health.UNKNOWN, sentence))

    try:
        if why_unmanaged(declaration):
            return
        if declaration.late is not None:
            from puller.manifest.late import (
                evaluate_again,  # few resources have anything to be evaluated again
            )

            evaluate_again(declaration)
    except (ResourceError, HieraError) as error:
        unknown(f"whether it is managed here is not known: {error}")
        return
    if declaration.properties.noop:  # nothing of it is applied, nor checked by a run
        return
    if why := declaration.failure or _child_failure(declaration):
        unknown(why)
        return
    for check in health_checks_of(declaration):
        result = check_health(check, system)
        masks.hide(result, declaration)
        if check.command is not None:
            masks.hide_older(result, declaration)
        standing.asked.append(Asked(bundle, str(declaration.reference), result))


def _may_have_checks(declaration: Declaration) -> bool:
    """Whether it has checks, or what was written for them has no value here."""
    if declaration.type.type_name == APPLY and (declaration.failure or _child_failure(declaration)):
        return True  # those of its children are not known
    return any(
        place.properties.health_checks or "health_checks" in place.unknown for place in declaration.places()
    ) or bool(declaration.properties.health_checks)


def _child_failure(declaration: Declaration) -> str:
    """Why the child manifest of an ``apply`` resource cannot be applied; empty for others."""
    return "; ".join(map(str, declaration.child.failures)) if declaration.child is not None else ""


def findings_of(standing: Standing) -> Iterator[Finding]:
    """All that is to be said of a host, in one sentence each; what is in order is counted."""
    good = 0
    for one in standing.asked:
        if one.result.status is Health.OK:
            good += 1
        else:
            sentence = f"{one.bundle}: {one.resource}: {one.result}"
            yield Finding(one.result.status, sentence)
    yield from standing.findings
    if good or not (standing.asked or standing.findings):
        yield Finding(Health.OK, _in_order(good, len(standing.asked)))


def _in_order(good: int, all_of_them: int) -> str:
    if not all_of_them:
        return "what is enforced has no health checks"
    if good == all_of_them:
        return f"{good} check{'s' * (good > 1)} in order"
    return f"{good} of {all_of_them} checks in order"


def _is_locked(path: Path) -> bool:
    """Whether a process holds the lock, without touching it: as the kernel lists it."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    name = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with open("/proc/locks", encoding="ascii", errors="replace") as stream:
        return any(
            words[1] == "FLOCK" and words[5] == name for words in map(str.split, stream) if len(words) > 5
        )
