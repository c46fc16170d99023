"""Rules by which the health checks and resources of a version on trial decide whether it stays.

* A result other than OK and WARNING counts against a version. This includes UNKNOWN, which stands for any other exit
  status (`curl` without an answer ends with 7), for a check that cannot be started, and for a timeout.
* A check that was not in order before the change does not count. A check is the same before and after the change if its
  resource and its command or expected state are the same.
* A trial may last for several runs. A check or a service can fail between two of them, and the next run repairs it.
  So the checks and the services of such a version are examined before the run changes anything.
* The engine does not run the checks of a resource that could not be applied. Those that were in order before the change
  are run here, because the new version may have broken them. Other checks are not run: the resource may have failed for
  a reason outside the bundle, such as a mirror without an answer.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from bundles.digests import sha256
from foundation.quantities import counted
from hiera.errors import HieraError
from puller.checks.kinds import HealthCheck, Service
from puller.engine.conditions import check_health, health_checks_of, why_unmanaged
from puller.errors import ResourceError
from puller.manifest.declaration import Declaration
from puller.manifest.masking import Masks
from puller.reporting.report import Event, Health, State
from puller.system.protocol import System
from puller.system.systemd_units import is_restarting, number, show_units

_SERVICE_PROPERTIES = ("ActiveState", "Job", "NRestarts", "SubState", "UnitFileState")
_START_AT_BOOT = frozenset({"enabled", "generated"})
_MAX_FAILURES = 3
"""Failures in a reason. The quarantine keeps the reason, and has to stay small."""

Outcome = tuple[Declaration, Event]
"""A resource, and its event in this run."""


class _Checked(msgspec.Struct, frozen=True):
    """A resource with health checks, each with its key."""

    declaration: Declaration
    checks: list[tuple[str, HealthCheck]]


def key_of(reference: object, check: HealthCheck) -> str:
    """Return the identity of a check, the same in two bundles. It is a digest, because commands may contain secrets."""
    content = check.command
    if check.goss is not None:  # its path in the store differs between versions
        with contextlib.suppress(OSError):
            content = f"goss\0{sha256(Path(check.goss).read_bytes()).hexdigest()}"
    if content is None:
        content = f"{check.kind}\0{msgspec.json.encode(check.desired, enc_hook=str).decode()}"
    return sha256(f"{reference}\0{content}".encode()).hexdigest()


def health_before(
    enforced: Iterable[Declaration], new: Iterable[Declaration], system: System
) -> dict[str, Health]:
    """Run the checks of ``new`` that are also ``enforced``. Return the results by ``key_of``."""
    known = {key for resource in _checked(enforced) for key, _ in resource.checks}
    return {
        key: check_health(check, system).status
        for resource in _checked(new)
        for key, check in resource.checks
        if key in known
    }


def find_failure(outcomes: Sequence[Outcome], before: Mapping[str, Health], system: System) -> str:
    """Return why health checks give up a version. Empty if they do not.

    1. Run the checks that the engine has not run. Their results are added to the events.
    2. Count the checks that are not in order now and were not out of order before the change.
    3. The first of them are the reason.
    """
    failures = []
    for declaration, event in outcomes:
        for resource in _checked([declaration]):
            # 1.
            _run_the_rest(resource, event, before, system)
            # 2.
            for (key, _), result in zip(resource.checks, event.health_checks, strict=False):
                if not result.status.in_order and before.get(key, Health.OK).in_order:
                    failures.append(f"{event.reference}: {result}")
    # 3.
    return _reason(failures)


def restarts_of(declarations: Iterable[Declaration]) -> dict[str, int]:
    """Return how often systemd has restarted each service that a version has started. Empty without systemd."""
    return {name: number(fields, "NRestarts") for name, fields in _services_of(declarations).items()}


def _services_of(declarations: Iterable[Declaration]) -> dict[str, dict[str, str]]:
    """Return the properties of each service that a version has started. Empty without systemd."""
    names = [
        check.service.unit
        for declaration in declarations
        if _is_applied(declaration)
        and (check := _check_of_service(declaration)) is not None
        and check.service is not None
    ]
    shown = show_units(names, _SERVICE_PROPERTIES) if names else None
    return dict(zip(names, shown or (), strict=False))


def find_failure_between_runs(
    declarations: Sequence[Declaration],
    before: Mapping[str, Health],
    restarts: Mapping[str, int],
    system: System,
    *,
    is_new_boot: bool = False,
) -> str:
    """Return why a version that was in order after its last run is not in order now. Empty if it is.

    The checks are those of managed resources. A service that was started must still run, and systemd must not have
    restarted it since. ``restarts`` are the earlier counts of ``restarts_of``. ``is_new_boot``: the machine has
    restarted since the last run.

    While a service is starting, neither this service nor the health checks say anything about the version. This run
    starts the service and runs the checks afterwards.
    """
    services = _services_of(declarations)
    counts = {name: number(fields, "NRestarts") for name, fields in services.items()}
    failures = list(_restart_failures(counts, restarts))
    starting = {name for name, fields in services.items() if _is_starting(fields, is_new_boot=is_new_boot)}
    masks = Masks()
    for declaration in declarations:
        if not _is_applied(declaration):
            continue
        for resource in () if starting else _checked([declaration]):
            for key, check in resource.checks:
                if before.get(key, Health.OK).in_order:
                    result = check_health(check, system)
                    masks.hide(result, declaration)
                    if check.command is not None:
                        masks.hide_older(result, declaration)
                    if not result.status.in_order:
                        failures.append(f"{declaration.reference}: {result}")
        service = _check_of_service(declaration)
        if service is not None and declaration.properties.name not in starting:
            result = check_health(service, system)
            if result.status is Health.CRITICAL:  # any other result says nothing about the service
                failures.append(f"{declaration.reference}: {result}")
    return _reason(failures)


def _is_starting(fields: Mapping[str, str], *, is_new_boot: bool) -> bool:
    """Return whether systemd is starting a service, or leaves its start after a boot to Puller."""
    if number(fields, "Job") or (fields.get("ActiveState") == "activating" and not is_restarting(fields)):
        return True
    is_unstarted = (
        fields.get("ActiveState") == "inactive" and fields.get("UnitFileState") not in _START_AT_BOOT
    )
    return is_new_boot and is_unstarted


def _restart_failures(now: Mapping[str, int], before: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for each service that systemd has restarted. A start by hand sets its count to 0."""
    for name, times in now.items():
        if (earlier := before.get(name)) is not None and times not in (0, earlier):
            since = times - earlier if times > earlier else times
            yield f"service#{name}: systemd has restarted it {counted(since, 'time')} since the last run"


def _reason(failures: Sequence[str]) -> str:
    """Return the first failures as one text, and the number of the others."""
    suffix = [f"and {len(failures) - _MAX_FAILURES} more"] if len(failures) > _MAX_FAILURES else []
    return "; ".join([*failures[:_MAX_FAILURES], *suffix])


def _is_applied(declaration: Declaration) -> bool:
    """Return whether a run applies a resource, as far as this is known before the run."""
    try:
        return not (why_unmanaged(declaration) or declaration.failure or declaration.properties.noop)
    except (ResourceError, HieraError):
        return False


def _check_of_service(declaration: Declaration) -> HealthCheck | None:
    """Return a check of whether a service runs. ``None`` for other resources, and for services of users."""
    properties = declaration.properties
    if declaration.type.type_name != "service" or properties.ensure != "running":
        return None
    if getattr(properties, "scope", "system") != "system":
        return None
    return HealthCheck(service=Service(unit=properties.name), name="keeps running")


def has_failed(outcomes: Sequence[Outcome]) -> bool:
    """Return whether a resource failed, or its requirements were not met."""
    return any(event.state is State.FAILED or event.unmet_requirements for _, event in outcomes)


def is_broken(outcomes: Sequence[Outcome]) -> bool:
    """Return whether the fallback has failures."""
    return any(
        (event.state is State.FAILED and not event.health_checks)
        or any(not result.status.in_order for result in event.health_checks)
        for _, event in outcomes
    )


def have_health_checks(declarations: Iterable[Declaration]) -> bool:
    """Return whether any of the resources has health checks."""
    return any(declaration.properties.health_checks for declaration in declarations)


def _run_the_rest(resource: _Checked, event: Event, before: Mapping[str, Health], system: System) -> None:
    """Run the checks that the engine has not run, up to the first one that was not in order before the change."""
    if event.state is not State.FAILED and not event.unmet_requirements and event.reached:
        return
    masks = Masks()
    for key, check in resource.checks[len(event.health_checks) :]:
        if key not in before or not before[key].in_order:
            return
        result = check_health(check, system)
        # The report keeps the output of the check, which may contain a secret.
        masks.hide(result, resource.declaration)
        if check.command is not None:  # the machine may be in the state before the change
            masks.hide_older(result, resource.declaration)
        event.health_checks.append(result)


def _checked(declarations: Iterable[Declaration]) -> Iterator[_Checked]:
    """Yield the resources that have health checks."""
    for declaration in declarations:
        checks = () if declaration.failure else health_checks_of(declaration)
        if keys := [(key_of(declaration.reference, check), check) for check in checks]:
            yield _Checked(declaration, keys)
