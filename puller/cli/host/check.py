"""``puller check``: health checks of the enforced bundles between runs. ``--run`` repairs failures.

``puller doctor``: checks of this host, with the fix beside each problem.
"""

import contextlib
import sys
import time
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

import click
from msgspec import structs

from bundles.confined.current import confined_when_needed
from bundles.errors import BundleError
from bundles.store.store import Store
from foundation.formatting import is_utf8
from foundation.quantities import counted
from puller.cli.completing import bundles_of_host
from puller.cli.host.common import chosen, config_option, load_host
from puller.cli.options import configuration_option, text_format_option
from puller.cli.output import print_result, say
from puller.config.configuration import Configuration
from puller.errors import BusyError, PullerError, UsageError
from puller.exit_status import ExitStatus
from puller.reporting.history import load_last_report
from puller.reporting.monitoring import Finding, Verdict
from puller.reporting.report import Health
from puller.reporting.results import (
    BundleCheck,
    CheckResult,
    DoctorCheck,
    DoctorResult,
    HealthFinding,
    RepairRun,
    described_problems,
)
from puller.reporting.terminal_rows import Rows
from puller.run import current_health, jobs
from puller.run.diagnosis import Diagnosis, diagnose
from puller.run.diagnosis import Verdict as DiagnosisVerdict
from puller.run.host import Host
from puller.run.policy.holds import Holds
from puller.run.reboots import pending_reboots
from puller.run.template_cache import cached_templates
from puller.state import Directories, UserConfigurationFile
from puller.system.local import LocalSystem
from puller.system.processes import Stopped, StopRequests

if TYPE_CHECKING:
    from puller.manifest.manifest import Inputs
    from puller.run.current_health import HostHealth
    from puller.values.maintenance import PendingReboot


@click.command()
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...", shell_complete=bundles_of_host)
@config_option
@text_format_option
@click.option("--run", "repair", is_flag=True, help="If a check fails, start a run, and repeat the checks.")
def check(bundles: tuple[str, ...], path: str, output_format: str, repair: bool) -> int:
    """Run the health checks of the enforced bundles.

    By default, the checks of all bundles run. This command fetches and changes nothing. Manifests come from the local
    store, facts and data from this host. During a run, the command does not check. With --run, a failed check starts a
    run, unless this host is disabled or outside of its maintenance windows. The result is then that of the checks after
    the run.

    \b
       0  OK        all checks are in order
       1  WARNING   a check reports a warning
       2  CRITICAL  a check reports a critical state, or an enforced bundle is damaged
       3  UNKNOWN   a check cannot run, no bundle is enforced, a run is active, or root is required
    """
    stops = StopRequests(lambda sentence: say(sentence, err=True))
    started = time.monotonic()
    try:
        configuration, directories = load_host(path)
    except (PullerError, OSError) as error:
        return _print_verdict(_Found(), [_unknown(str(error))], started, output_format)
    try:
        for name in bundles:
            chosen(configuration, name)
    except UsageError as error:
        if output_format != "json":
            raise
        problems = described_problems(error.problems)
        return print_result(CheckResult(exit_status=error.exit_status, problems=problems, message=str(error)))
    with stops.handled():
        try:
            result, findings = _answer(configuration, directories, bundles)
            if repair and any(not finding.health.in_order for finding in findings) and not result.at_work:
                result, findings = _repaired(path, configuration, directories, bundles, result, findings)
        except Stopped as stop:
            say(f"puller: {stop}", err=True)
            return stop.exit_status
    return _print_verdict(result, findings, started, output_format)


class _Found:
    """The results of the checks, and the actions."""

    def __init__(self) -> None:
        self.health: HostHealth | None = None
        self.at_work = ""
        self.held = ""
        self.reboots: list[PendingReboot] = []
        self.run: RepairRun | None = None


def _answer(
    configuration: Configuration, directories: Directories, bundles: tuple[str, ...]
) -> "tuple[_Found, list[Finding]]":
    """Run the checks. A problem with the records is a finding, too."""
    result = _Found()
    try:
        result.held = _reason_of_hold(configuration, directories)
        result.at_work = current_health.find_active_run(directories)
        if result.at_work:
            return result, [_unknown(f"{result.at_work}, so the checks did not run")]
        before = current_health.last_run(directories)
        host = Host.of(configuration)
        notes: list[str] = []

        def inputs() -> "Inputs":
            return host.inputs_of_last_run(directories.data, lambda sentence, error: notes.append(sentence))

        with cached_templates(directories.template_cache, noop=True):
            health = current_health.check_enforced(
                configuration.bundles,
                bundles,
                Store(directories.bundles),
                cache(inputs),
                LocalSystem(),
            )
        if (at_work := current_health.find_active_run(directories)) or current_health.last_run(
            directories
        ) != before:
            result.at_work = at_work or "a run was at work"
            return result, [_unknown(f"{result.at_work} during the checks")]
        result.health = health
        findings = list(current_health.findings_of(health))
        judged = current_health.judge_trials(health, Store(directories.bundles), directories, before)
        findings += map(_remark, judged)
        result.reboots = pending_reboots(directories, notes.append)
        return result, [*findings, *(_unknown(note) for note in notes)]
    except (PullerError, BundleError, OSError, ValueError) as error:
        return result, [_unknown(str(error))]


def _reason_of_hold(configuration: Configuration, directories: Directories) -> str:
    now = datetime.now(UTC)
    return Holds.load(configuration, directories, now, lambda sentence: None, noop=True).why_not_applying(now)


def _repaired(
    path: str,
    configuration: Configuration,
    directories: Directories,
    bundles: tuple[str, ...],
    result: _Found,
    findings: "list[Finding]",
) -> "tuple[_Found, list[Finding]]":
    """Make a run, unless the operator prevents it, and repeat the checks."""
    if result.held:
        return result, [*findings, _remark(f"no run was made: {result.held}")]
    try:
        # The output of the run must not precede the result line.
        with contextlib.redirect_stdout(sys.stderr):
            status = jobs.run(jobs.RunOptions(config=path))
    except BusyError as error:
        result.at_work = "a run is at work"
        return result, [_unknown(str(error))]
    except (PullerError, BundleError, OSError) as error:
        return result, [*findings, _unknown(f"no run could be made: {error}")]
    requested, after = _answer(configuration, directories, bundles)
    report = load_last_report(directories)
    changed = sum(bundle.summary.changes for bundle in report.bundles) if report else 0
    requested.run = RepairRun(exit_status=status, changed=changed)
    detail = counted(changed, "resource") if changed else "nothing"
    return requested, [*after, _remark(f"a run was made, which changed {detail} (exit status {status})")]


def _unknown(why: str) -> "Finding":
    return Finding(Health.UNKNOWN, why)


def _remark(sentence: str) -> "Finding":
    return Finding(Health.OK, sentence)


def _print_verdict(result: _Found, findings: "list[Finding]", started: float, output_format: str) -> int:
    requested = result.health.results if result.health else []
    failed = sum(not item.result.status.in_order for item in requested)
    figures = {
        "time": f"{time.monotonic() - started:.3f}s",
        "checks": str(len(requested)),
        "failed": str(failed),
    }
    verdict = Verdict(findings, figures)
    if output_format == "json":
        return print_result(_result(result, verdict))
    say(verdict)
    for item in requested:
        printed = item.result.output.strip().splitlines()[:1]
        text = f": {printed[0]}" if printed and item.result.outcome != "" else ""
        say(
            f"{item.bundle}: {item.resource}: {item.result.name}: {item.result.outcome}{text}".replace(
                "|", "¦"
            )
        )
    for reboot in result.reboots:
        say(str(reboot).replace("|", "¦"))
    if result.held:
        say(f"held: {result.held}")
    return verdict.exit_code


def _result(result: _Found, verdict: "Verdict") -> CheckResult:
    health = result.health
    return CheckResult(
        exit_status=verdict.exit_code,
        health=verdict.health,
        message=str(verdict),
        enforced=health.enforced if health else {},
        checks=[
            BundleCheck(bundle=check.bundle, resource=check.resource, **structs.asdict(check.result))
            for check in (health.results if health else ())
        ],
        findings=[
            HealthFinding(health=finding.health, message=finding.sentence) for finding in verdict.findings
        ],
        at_work=result.at_work or None,
        held=result.held or None,
        reboots=result.reboots,
        run=result.run,
    )


_MARKS = {
    DiagnosisVerdict.OK: ("✓", "ok", "green"),
    DiagnosisVerdict.WARNING: ("!", "warning", "yellow"),
    DiagnosisVerdict.PROBLEM: ("✗", "PROBLEM", "red"),
    DiagnosisVerdict.UNKNOWN: ("?", "unknown", "cyan"),
}
_SUBJECT = 14
"""Columns of the subjects."""


@click.command()
@configuration_option("The configuration to check.")
@text_format_option
def doctor(path: str, output_format: str) -> int:
    """Check this host, and print the fix for each problem.

    The checks are: the configuration, the trust anchor, the clock, the site, the expiry of its metadata, the timer, the
    last run, services, disk space, permissions, the state files, the bundles, and extras. The command changes nothing.
    It works for ordinary users and with a broken configuration. Some checks require root and are otherwise unknown.

    \b
    Example:
      puller doctor
      puller doctor --format json

    Exit status: 0 without problems, also with warnings, otherwise 1.
    """
    as_user = isinstance(path, UserConfigurationFile)
    results: list[Diagnosis] = []
    with confined_when_needed():
        for diagnosis in diagnose(path, as_user=as_user):
            results.append(diagnosis)
            if output_format == "text":
                _print(diagnosis)
                sys.stdout.flush()
    problems = sum(diagnosis.verdict is DiagnosisVerdict.PROBLEM for diagnosis in results)
    status = ExitStatus.NO if problems else ExitStatus.OK
    if output_format == "json":
        checks = [
            DoctorCheck(result.subject, result.verdict.value, result.fact, result.fix) for result in results
        ]
        return print_result(DoctorResult(exit_status=status, checks=checks))
    if problems:
        say(counted(problems, "problem"), "red")
    return status


def _print(diagnosis: Diagnosis) -> None:
    sign, word, colour = _MARKS[diagnosis.verdict]
    mark = sign if is_utf8() else word.ljust(7)
    fix = f" → {diagnosis.fix}" if is_utf8() else f" -> {diagnosis.fix}"
    text = f"{mark} {diagnosis.subject:<{_SUBJECT}} {diagnosis.fact}{fix if diagnosis.fix else ''}"
    colour = "" if diagnosis.verdict is DiagnosisVerdict.OK else colour
    if not sys.stdout.isatty():
        say(text, colour or None)
        return
    for line in Rows.of(sys.stdout).wrapped(text, 0, colour, further=len(mark) + _SUBJECT + 2):
        click.echo(line)
