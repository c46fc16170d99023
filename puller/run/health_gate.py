"""Health checks decide about a new bundle: the rules by which it is kept or given up.

* What is not in order gives a bundle up: CRITICAL, and UNKNOWN as well, which is any other exit status (`curl` without
  an answer ends with 7), a check that cannot be started, and one that takes too long.
* A check that was not in order before the change either does not count against it. A check is the same before and after
  when its resource is, and what it asks.
* A check of a resource that could not be applied is not run by the engine. Those that were in order before the change
  are asked all the same: a new bundle that breaks what worked is found also when it breaks on the way. Other checks are
  not asked then: what could not be brought up because a mirror was away is not the bundle's doing.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from puller.checks.kinds import HealthCheck
from puller.engine.conditions import health_checks_of
from puller.engine.health_checks import check_health
from puller.manifest.declaration import Declaration
from puller.manifest.masking import Masks
from puller.reporting.report import Event, Health, State
from puller.system.protocol import System

_MOST_TOLD = 3
"""Failures: the reason is kept in the quarantine, which is small, for ever."""


Outcome = tuple[Declaration, Event]
"""A resource of a run, and what became of it."""


class _Checked(msgspec.Struct, frozen=True):
    """A resource with health checks, each with its key."""

    declaration: Declaration
    checks: list[tuple[str, HealthCheck]]


def key_of(reference: object, check: HealthCheck) -> str:
    """The identity of a check, the same in two bundles; a digest, because commands may hold secrets."""
    asked = check.command
    if check.goss is not None:  # its place in the store is another one for each bundle
        with contextlib.suppress(OSError):
            asked = f"goss\0{hashlib.sha256(Path(check.goss).read_bytes()).hexdigest()}"
    if asked is None:
        asked = f"{check.kind}\0{msgspec.json.encode(check.wanted, enc_hook=str).decode()}"
    return hashlib.sha256(f"{reference}\0{asked}".encode()).hexdigest()


def health_before(
    enforced: Iterable[Declaration], new: Iterable[Declaration], system: System
) -> dict[str, Health]:
    """The health now, by ``key_of``, of the checks of ``new`` that are among what is enforced, too."""
    known = {key for resource in _checked(enforced) for key, _ in resource.checks}
    return {
        key: check_health(check, system).status
        for resource in _checked(new)
        for key, check in resource.checks
        if key in known
    }


def find_failure(outcomes: Sequence[Outcome], before: Mapping[str, Health], system: System) -> str:
    """Why a bundle that was applied is given up, in a few sentences; empty when it is kept.

    1. Checks that the engine did not come to are asked, as far as they tell of the change.
    2. A check that is not in order counts, unless it was not in order before the change either.
    3. The first of those that count are the reason.

    What is asked here is added to the events.
    """
    failures = []
    for declaration, event in outcomes:
        for resource in _checked([declaration]):
            # 1. All asked?
            _ask_the_rest(resource, event, before, system)
            # 2. In order, or never was?
            for (key, _), result in zip(resource.checks, event.health_checks, strict=False):
                if not result.status.in_order and before.get(key, Health.OK).in_order:
                    failures.append(f"{event.reference}: {result}")
    # 3. Reason
    others = [f"and {len(failures) - _MOST_TOLD} more"] if len(failures) > _MOST_TOLD else []
    return "; ".join(failures[:_MOST_TOLD] + others)


def _ask_the_rest(resource: _Checked, event: Event, before: Mapping[str, Health], system: System) -> None:
    """The checks that the engine did not come to, up to the first that says nothing about the change."""
    if event.state is not State.FAILED and not event.unmet_requirements and event.reached:
        return
    for key, check in resource.checks[len(event.health_checks) :]:
        if key not in before or not before[key].in_order:
            return
        result = check_health(check, system)
        # As the engine does: what a check prints is kept in the report, and may hold a secret.
        Masks().hide(result, resource.declaration)
        event.health_checks.append(result)


def _checked(declarations: Iterable[Declaration]) -> Iterator[_Checked]:
    """Those with health checks."""
    for declaration in declarations:
        checks = () if declaration.failure else health_checks_of(declaration)
        if keys := [(key_of(declaration.reference, check), check) for check in checks]:
            yield _Checked(declaration, keys)
