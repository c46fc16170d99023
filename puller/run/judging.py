"""Judge the versions on trial, and keep those that have passed: the steps 9 and 10 of a run.

* A result other than OK and WARNING counts against a version. This includes UNKNOWN, which stands for any other exit
  status (`curl` without an answer ends with 7), for a check that cannot be started, and for a timeout.
* A check that was not in order before the change does not count. A check is the same before and after the change if its
  resource and its command or expected state are the same.
* A trial may last for several runs. A check or a service can fail between two of them, and the next run repairs it.
  So the checks and the services of such a version are examined before the run changes anything.
* A version that is given up by failed resources has a fallback that has passed on this host.
* The engine does not run the checks of a resource that could not be applied. Those that were in order before the change
  are run here, because the new version may have broken them. Other checks are not run: the resource may have failed for
  a reason outside the bundle, such as a mirror without an answer.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bundles.digests import sha256
from bundles.format.release import requirement_of
from bundles.store.contents import Installed
from foundation.problems import Problem, ProblemCode
from foundation.quantities import counted
from foundation.times import parse_moment
from hiera.errors import HieraError
from puller.checks.kinds import HealthCheck, Service
from puller.engine.conditions import check_health, health_checks_of, why_unmanaged
from puller.errors import ResourceError
from puller.manifest.declaration import Declaration
from puller.manifest.graph.host_catalog import HostCatalog
from puller.manifest.masking import Masks
from puller.reporting.report import Event, Health, HealthResult, State, failure_texts
from puller.reporting.sinks import MessageId
from puller.run.bundle_run import Attempt, BundleRun, Chosen, Outcome, Verdict
from puller.run.policy.decision import Result, Step
from puller.run.trials import Trial, restarted
from puller.system.local import LocalSystem
from puller.system.protocol import System
from puller.system.systemd_units import is_restarting, number, show_units

_SERVICE_PROPERTIES = ("ActiveState", "Job", "NRestarts", "SubState", "UnitFileState")
_START_AT_BOOT = frozenset({"enabled", "generated"})
_MAX_FAILURES = 3
"""Failures in a reason. The quarantine keeps the reason, and has to stay small."""


# Judge


def judge_between_runs(bundle: BundleRun, chosen: Chosen, catalog: HostCatalog) -> str:
    """Examine a version on trial that was in order after its last run, before this run changes it.

    Return why to roll it back. Empty if it stays. Without a fallback, the time in order begins again. A partial run may
    repair the failure, so it only records it, and the next complete run gives the version up.
    """
    trials, attempt = bundle.context.trials, bundle.attempt
    if attempt is None or attempt.outcomes is not None or bundle.report.given_up is not None:
        return ""
    trial = attempt.trial
    if trial is None or not trial.in_order or (catalog.is_partial and trial.failure):
        return ""
    failure = trial.failure or find_failure_between_runs(
        [catalog.declarations[index] for index in catalog.concerns(chosen.number)],
        trial.health,
        trials.restarts(trial),
        LocalSystem(),
        is_new_boot=not trials.is_of_this_boot(trial),
    )
    if not failure:
        return ""
    if catalog.is_partial:
        detail = f"has failed between two runs: {failure}. The next complete run gives it up"
        bundle.context.problems.warn(f"{chosen.installed}: the trial {detail}")
        with bundle.context.problems.remembering():
            trials.note_failure(chosen.installed, failure)
        return ""
    verdict = _verdict(bundle, chosen, Result.BROKEN, f"the trial has failed between two runs: {failure}")
    if verdict.step is Step.ROLL_BACK:
        bundle.report_unapplied(chosen.installed, "given up before it was applied again")
        return verdict.failure
    attempt.trial = restarted(trial)
    with bundle.context.problems.remembering():
        trials.restart(chosen.installed)
    return ""


def judge(bundle: BundleRun, chosen: Chosen) -> str:
    """Judge the applied version. Return why to roll it back. Empty if it stays."""
    attempt = bundle.attempt
    if attempt is None:  # a partial run has left it out
        return ""
    # A failure without a fallback stays.
    if attempt.verdict is None or attempt.verdict.result is not Result.BROKEN:
        attempt.verdict = _judge(bundle, chosen, attempt)
    return attempt.verdict.failure if attempt.verdict.step is Step.ROLL_BACK else ""


def _judge(bundle: BundleRun, chosen: Chosen, attempt: Attempt) -> Verdict:
    outcomes = attempt.outcomes
    if outcomes is None or bundle.context.stops.reason:
        return _verdict(bundle, chosen, Result.UNDECIDED)
    if failure := _why_broken(bundle, chosen, attempt.trial, outcomes):
        return _verdict(bundle, chosen, Result.BROKEN, failure)
    if bundle.is_partial:
        return _verdict(bundle, chosen, Result.PARTIAL)
    if has_failed(outcomes):
        return _verdict(bundle, chosen, Result.FAILED)
    trial = _continued(bundle, chosen, outcomes)
    if trial is None or trial.is_over(datetime.now(UTC)):
        return _verdict(bundle, chosen, Result.SUCCEEDED)
    return _verdict(bundle, chosen, Result.IN_ORDER, trial=trial)


def _verdict(
    bundle: BundleRun, chosen: Chosen, result: Result, failure: str = "", trial: Trial | None = None
) -> Verdict:
    """Decide about the applied version. Report a failure without a fallback."""
    step = bundle.decide_applied(chosen.installed, result)
    if result is Result.BROKEN and step is not Step.ROLL_BACK:
        detail = f"{chosen.installed}: {failure}. No other version is available for a rollback"
        bundle.context.problems.warn(Problem(code=ProblemCode.ROLLBACK_FAILS, message=detail))
    return Verdict(result, step, failure, trial)


def _why_broken(bundle: BundleRun, chosen: Chosen, trial: Trial | None, outcomes: Sequence[Outcome]) -> str:
    """Return why health checks or failed resources give up a version on trial. Empty if they do not."""
    if trial is None or bundle.report.given_up is not None:
        return ""
    if failure := find_failure(outcomes, trial.health, LocalSystem()):
        return failure
    limit, good = bundle.choice.give_up_after, bundle.good
    if limit is None:
        limit = chosen.manifest.give_up_after
    # The fallback must have passed on this host. Any other version may fail for the same reason.
    if not limit or not has_failed(outcomes) or good is None or bundle.context.is_quarantined(good):
        return ""
    runs = trial.failed + 1
    if runs < limit:
        sentence = f"resources failed in {counted(runs, 'consecutive run')}, and the limit is {limit}"
        bundle.context.problems.log.notice(f"{bundle.name} {chosen.installed.version}: {sentence}")
        return ""
    failures = "; ".join(failure_texts((event for _, event in outcomes), most=3))
    times = f" in {runs} consecutive runs, most recently:" if runs > 1 else ":"
    return f"resources failed{times} {failures}"


def _continued(bundle: BundleRun, chosen: Chosen, outcomes: Sequence[Outcome]) -> Trial | None:
    """Return the trial of the applied version after a run in order. ``None`` if the version has passed before."""
    if not bundle.is_unproven(chosen.installed):
        return None
    declarations = [declaration for declaration, _ in outcomes]
    rules = (bundle.choice.trial, bundle.rule_of_release(chosen.installed), chosen.manifest.trial)
    required = requirement_of(*rules, has_health_checks=have_health_checks(declarations))
    trial = bundle.context.trials.continued(chosen.installed, required)
    reboots = bundle.context.settings.reboots
    references = [str(declaration.reference) for declaration in declarations]
    awaits_boot = reboots is not None and reboots.delays_trial(references, parse_moment(trial.since))
    return msgspec.structs.replace(trial, awaits_boot=awaits_boot)


# Keep


def conclude(bundle: BundleRun) -> None:
    """Keep the applied version, or end its attempt."""
    attempt = bundle.attempt
    if attempt is None or attempt.verdict is None:  # a partial run has left the bundle out
        return
    installed, outcomes, verdict = attempt.installed, attempt.outcomes, attempt.verdict
    if bundle.report.given_up is not None and (outcomes is None or is_broken(outcomes)):
        sentence = f"rolled back to {installed.version}, but resources or health checks still fail"
        bundle.report_failed_rollback(sentence)
    if verdict.step is Step.KEEP:
        _keep(bundle, installed)
        return
    is_failed = verdict.result in (Result.FAILED, Result.BROKEN) and not bundle.is_partial
    in_order = verdict.trial
    if in_order is not None:
        services = restarts_of([declaration for declaration, _ in outcomes or ()])
        in_order = msgspec.structs.replace(in_order, restarts=services)
    bundle.end_attempt(installed, failed=is_failed, in_order=in_order)
    trial = bundle.context.trials.find(installed)
    bundle.report.trial = trial.report() if trial is not None else None
    if in_order is not None:
        sentence = f"{installed} is {bundle.report.trial}"
        bundle.context.problems.log.notice(sentence, kind=MessageId.BUNDLE_APPLIED, bundle=bundle.name)


def _keep(bundle: BundleRun, installed: Installed) -> None:
    """Make a version the last good one, then close its trial.

    If a crash came between these steps in the other order, the next run would begin a new trial. It would take the
    results of the health checks after the change for those before. After an error, such as a full disk, the trial goes
    on, and its copies stay.
    """
    context, is_kept = bundle.context, False
    with context.problems.remembering():
        context.store.mark_good(bundle.name, installed.sha256)
        context.trials.close(bundle.name)
        context.leftovers.passed(bundle.name)
        is_kept = True
    if not is_kept:  # otherwise the next run would take the attempt for interrupted
        bundle.end_attempt(installed)


# Health checks and failed resources


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
    known = {key for declaration in enforced for key, _ in _checks_of(declaration)}
    return {
        key: check_health(check, system).status
        for declaration in new
        for key, check in _checks_of(declaration)
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
        checks = _checks_of(declaration)
        # 1.
        _run_the_rest(declaration, checks, event, before, system)
        # 2.
        for (key, _), result in zip(checks, event.health_checks, strict=False):
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
        for key, check in () if starting else _checks_of(declaration):
            if before.get(key, Health.OK).in_order:
                result = run_check(check, declaration, masks, system)
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


def _run_the_rest(
    declaration: Declaration,
    checks: Sequence[tuple[str, HealthCheck]],
    event: Event,
    before: Mapping[str, Health],
    system: System,
) -> None:
    """Run the checks that the engine has not run, up to the first one that was not in order before the change."""
    if event.state is not State.FAILED and not event.unmet_requirements and event.reached:
        return
    masks = Masks()
    for key, check in checks[len(event.health_checks) :]:
        if key not in before or not before[key].in_order:
            return
        event.health_checks.append(run_check(check, declaration, masks, system))


def run_check(check: HealthCheck, declaration: Declaration, masks: Masks, system: System) -> HealthResult:
    """Run a check of a resource. Its output, which a report keeps, is masked."""
    result = check_health(check, system)
    masks.hide(result, declaration)
    if check.command is not None:  # the machine may be in the state before the change
        masks.hide_older(result, declaration)
    return result


def _checks_of(declaration: Declaration) -> list[tuple[str, HealthCheck]]:
    """Return the health checks of a resource, each with its key."""
    checks = () if declaration.failure else health_checks_of(declaration)
    return [(key_of(declaration.reference, check), check) for check in checks]
