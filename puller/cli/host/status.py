"""``puller status``: the enforced bundles of this host, and the result of the last run.

* The text behind ``held:`` is that of the last report, and a newer quarantine replaces it.
* ``puller/run/policy/holds.py`` has the texts of all holds, except those of rejected versions
  (``puller/run/bundle_run.py``).
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from msgspec import to_builtins

from bundles.errors import BundleError
from foundation.formatting import plain
from foundation.problem_pages import EXPLANATIONS
from foundation.problems import ProblemCode
from foundation.quantities import counted, size_text
from foundation.times import iso_text, minute_text, parse_moment
from puller.cli.host.common import config_option, load_host
from puller.cli.options import DurationType, text_format_option
from puller.cli.output import say, show
from puller.config.configuration import Configuration
from puller.delivery.delivery import Delivery
from puller.errors import ConfigurationError, PullerError, file_problem, reason
from puller.exit_status import ExitStatus
from puller.reporting import headline
from puller.reporting.fetching import load_fetching
from puller.reporting.headline import Headline, Sync, services_to_run
from puller.reporting.history import began, find_unfinished, load_all_events, load_last_report, load_status
from puller.reporting.monitoring import Records, Verdict, judge, unknown
from puller.reporting.report import BundleReport, HoldReason, Report
from puller.reporting.restless import load_restless, restless_file, sentences
from puller.reporting.terminal_rows import Rows
from puller.run.host_state import BundleState, HostState, Unconfigured
from puller.run.leftovers.managed import Left
from puller.run.reboots import pending_reboots
from puller.state import Directories
from puller.system.systemd_units import StoppedService, find_stopped, find_timer
from puller.values.maintenance import PendingReboot, RebootState

_COLOURS = {
    Sync.IN_SYNC: "green",
    Sync.OUT_OF_SYNC: "red",
    Sync.HELD: "yellow",
    Sync.RUNNING: "cyan",
    Sync.UNKNOWN: "yellow",
}
_MOST_CHECKED = 3
"""Maximum sentences about restless resources in the line of ``--check``."""


@click.command()
@config_option
@text_format_option
@click.option("--check", is_flag=True, help="Print one line, with the exit status of a Nagios plugin.")
@click.option(
    "--max-age",
    type=DurationType(above_zero=False),
    default="2h",
    show_default=True,
    help="With --check: the maximum age of the last run and of unsent reports.",
)
def status(path: str, output_format: str, check: bool, max_age: timedelta) -> int:
    """Show the enforced bundles, the last run and held releases.

    The first line states whether this host is in sync, when the next run starts, and what to do. The command reads the
    state directory, and queries systemd for the timer. It does not contact the site. The exit status is 0. With
    --check, it shows the state of the host:

    \b
       0  OK        the last run is recent, and its bundles are in sync or held by the operator
       1  WARNING   the machine is unchanged, and the host needs attention
       2  CRITICAL  resources failed, trust is broken, or the last run is too old
       3  UNKNOWN   no run has ended yet, or the records cannot be read (try as root)
    """
    if not check:
        result, report = _look(path)
        line = _headline(path, result, report)
        if output_format == "json":
            show({"headline": {**to_builtins(line), "text": str(line)}, **result}, "json")
        else:
            _say(line, "yellow" if line.sync is Sync.IN_SYNC and line.because else _COLOURS[line.sync])
            _print(result)
        return ExitStatus.OK
    return _check(path, output_format, max_age)


def _check(path: str, output_format: str, oldest: timedelta) -> int:
    """Print a verdict and return its exit code. A problem with the records is a verdict, too."""
    result: dict[str, Any] = {}
    try:
        result, report = _look(path)
        verdict = _judge(result, report, oldest)
    except (PullerError, BundleError, OSError, ValueError) as error:
        verdict = unknown(str(error))
    if output_format == "json":
        show({"health": verdict.health.value, "message": str(verdict), **result}, "json")
    else:
        say(str(verdict))
    return verdict.exit_code


def _headline(path: str, result: dict[str, Any], report: Report | None) -> Headline:
    """Return the first line. Queries systemd for the next run and for stopped services."""
    configuration, directories = load_host(path)
    records = headline.Records(
        report=report,
        running_since=result["running_since"] or "",
        unreadable=result["problem"] or "",
        cut_short=bool(result["cut_short"]),
        is_disabled=bool(result["holds"]["disabled"]),
        not_applying=result["holds"]["not_applying"] or "",
        damaged=[
            f"{bundle['name']}: {bundle['problem']}" for bundle in result["bundles"] if "problem" in bundle
        ],
        stopped=[] if result["running_since"] else _stopped_services(configuration, directories),
        restless=[resource["reference"] for resource in result["restless"]],
        timer=find_timer(of_user=configuration.as_user),
        of_user=configuration.as_user,
    )
    return headline.headline(records)


def _stopped_services(configuration: Configuration, directories: Directories) -> list[StoppedService]:
    """Return the services that stopped after the last run. Unreadable records have their own line."""
    try:
        report = load_all_events(directories)
    except (OSError, ValueError):
        return []
    if report is None:
        return []
    return find_stopped(services_to_run(report), of_user=configuration.as_user)


def _judge(result: dict[str, Any], report: Report | None, oldest: timedelta) -> Verdict:
    since, now = result["running_since"], datetime.now(UTC)
    records = Records(
        report,
        running_since=parse_moment(since) if since else None,
        cut_short=bool(result["cut_short"]),
        unreadable=result["problem"] or "",
        damaged=[bundle["problem"] for bundle in result["bundles"] if "problem" in bundle],
        notes=result["notes"],
        enforced={bundle["name"]: bundle["enforced"] for bundle in result["bundles"]},
        held=result["holds"]["lines"],
        restless=result["restless_lines"][:_MOST_CHECKED],
        unsent=[item["message"] for item in result["unsent"] if _waits_since(item["oldest"]) < now - oldest],
    )
    return judge(records, now, oldest)


def _waits_since(run: str) -> datetime:
    """Return when the run of this identity began. For an invalid identity, the earliest time."""
    try:
        return began(run)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def _look(path: str) -> tuple[dict[str, Any], Report | None]:
    """Return all displayed data, and its report. Raises ``ConfigurationError``."""
    configuration, directories = load_host(path)
    report, problem = None, None
    try:
        report = load_last_report(directories)
    except PermissionError as error:
        raise ConfigurationError(f"{file_problem(error, 'cannot be read')}", hint="try as root") from error
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        problem = f"{directories.last_run}: is not a report ({why}). The next run replaces it"
    return _collect(configuration, directories, report) | {"problem": problem}, report


def _collect(configuration: Configuration, directories: Directories, report: Report | None) -> dict[str, Any]:
    running, now = load_status(directories), datetime.now(UTC)
    notes: list[str] = []
    state = HostState(configuration, directories, now, notes.append, verify=True)
    last = {bundle.name: bundle for bundle in report.bundles} if report else {}
    published = {choice.name: _published(last.get(choice.name)) for choice in configuration.bundles}
    holds = state.holds
    in_force = holds.quarantine.in_force(published)
    quarantined = {entry.bundle: str(entry) for entry in in_force}
    past = len(holds.quarantine.entries) - len(in_force)
    is_running = running is not None and running.state == "running"
    bundles = [
        _bundle(bundle, last.get(bundle.choice.name), quarantined.get(bundle.choice.name, ""))
        | _leftovers_of(state.managed.left(bundle.choice.name))
        for bundle in state.bundles
    ]
    restless = load_restless(restless_file(directories), notes.append, noop=True)
    fetching = load_fetching(directories, running.process) if running and is_running else None
    return {
        "running_since": running.since if running and is_running else None,
        "fetching": {**to_builtins(fetching), "message": str(fetching)} if fetching else None,
        "cut_short": None if is_running else find_unfinished(directories),
        "holds": {**holds.data(now), "lines": [*holds.lines(now, published), *notes], "past": past},
        "notes": notes,
        "bundles": bundles,
        "left": [
            _unconfigured(bundle) | _leftovers_of(state.managed.remains(bundle.name))
            for bundle in state.unconfigured()
        ],
        "reboots": [{**to_builtins(item), "message": str(item)} for item in _reboots(directories, notes)],
        "restless": [to_builtins(resource) for resource in restless],
        "restless_lines": sentences(restless),
        "unsent": _unsent(configuration, directories, notes),
        "last_run": _last_run(report) if report else None,
    }


def _reboots(directories: Directories, notes: list[str]) -> list[PendingReboot]:
    """Return the pending reboots of this boot. Unreadable records are a note."""
    try:
        return pending_reboots(directories, notes.append)
    except OSError as error:
        notes.append(file_problem(error, "cannot be read"))
        return []


def _published(last: BundleReport | None) -> str:
    return last.published if last else ""


def _unsent(configuration: Configuration, directories: Directories, notes: list[str]) -> list[dict[str, Any]]:
    """Return the destinations that have waiting reports."""
    if not configuration.reports.to:
        return []

    delivery = Delivery(configuration, directories.spool, notes.append)
    return [{**to_builtins(unsent), "message": str(unsent)} for unsent in delivery.unsent()]


def _unconfigured(bundle: Unconfigured) -> dict[str, Any]:
    return {
        "name": bundle.name,
        "version": bundle.version,
        "directory": str(bundle.directory),
        "bytes": bundle.size,
    }


def _leftovers_of(resources: Sequence[Left]) -> dict[str, Any]:
    """Return the resources that no bundle manages any longer. Empty without any."""
    listed = [
        {"reference": left.reference, "made": left.made, "since": left.since, "stays": left.stays}
        for left in resources
    ]
    return {"left_behind": listed} if listed else {}


def _bundle(bundle: BundleState, last: BundleReport | None, quarantined: str) -> dict[str, Any]:
    """Return the state of a bundle. ``quarantined`` is the sentence about its quarantined release."""
    enforced, since = bundle.enforced, bundle.enforced_since
    fields: dict[str, Any] = {
        "name": bundle.choice.name,
        "enforced": enforced.version if enforced else None,
        "since": iso_text(since) if since else None,
        "sha256": enforced.sha256 if enforced else None,
        "good": bundle.good.version if bundle.good else None,
    }
    # They differ after `rollback --later`, and after an interrupted run.
    if enforced and last and last.sha256 and last.sha256 != enforced.sha256:
        fields["applied"] = last.version
    if trial := bundle.trial:
        fields["trial"] = {
            **to_builtins(trial.report()),
            "failed_runs": trial.failed,
            "failure": trial.failure or None,
            "message": str(trial.report()),
        }
    if bundle.problem:
        fields["problem"] = bundle.problem
    fields["held"] = last.held or None if last else None
    if quarantined and (last is None or last.held_because in (None, HoldReason.QUARANTINE)):
        fields["held"] = quarantined
    if last and (given_up := last.given_up):
        fields["given_up"] = f"{given_up.version} {given_up.outcome}"
    return fields


def _last_run(report: Report) -> dict[str, Any]:
    failed = [
        {
            "resource": event.reference,
            "problems": list(map(plain, event.problems)),
            "unmet_requirements": event.unmet_requirements,
        }
        for bundle in report.bundles
        for event in bundle.events
        if event.problems or event.unmet_requirements
    ]
    return {
        "finished": report.finished,
        "exit_status": report.exit_status,
        "only": report.only,
        "problems": list(map(plain, report.problems)),
        "unprotected": report.unprotected,
        "summaries": {
            bundle.name: str(bundle.summary) for bundle in report.bundles if bundle.outcome == "applied"
        },
        "failed": failed,
    }


def _say(sentence: object, colour: str | None = None) -> None:
    """Print a line. On a terminal it is broken at spaces, and further lines are indented."""
    text = str(sentence)
    if not sys.stdout.isatty():
        say(text, colour)
        return
    rows, indent = Rows.of(sys.stdout), len(text) - len(text.lstrip(" "))
    for line in rows.wrapped(text.lstrip(" "), indent, colour or "", further=2):
        click.echo(line)


def _print(result: dict[str, Any]) -> None:
    if result["running_since"]:
        _say(f"a run has been active since {result['running_since']}")
    if result["fetching"]:
        _say(f"  {result['fetching']['message']}")
    held = [bundle["held"] for bundle in result["bundles"]]
    for line in result["holds"]["lines"]:
        if line not in held:  # its bundle has the line
            _say(line)
    if result["cut_short"]:
        _say(f"the run that began {result['cut_short']} did not finish")
    for bundle in result["bundles"]:
        _print_bundle(bundle)
    for left in result["left"]:
        _say(_leftovers_line(left))
    for reboot in result["reboots"]:
        _say(reboot["message"], "red" if reboot.get("state") == RebootState.FAILED else "yellow")
    for line in result["restless_lines"]:
        _say(line)
    for unsent in result["unsent"]:
        _say(unsent["message"])
    if past := result["holds"]["past"]:
        what = counted(past, "earlier bundle is", "earlier bundles are")
        _say(f"{what} quarantined, and not published for this host any more: `puller quarantine list`")
    last = result["last_run"]
    if last is None:
        _say(f"last run: {result['problem'] or 'none yet'}")
        return
    _say(f"last run: {last['finished']}, exit status {last['exit_status']}", _colour_of(last["exit_status"]))
    if last["only"]:
        _say(f"  partial: only {', '.join(last['only'])}, and what that requires")
    for name, summary in last["summaries"].items():
        _say(f"  {name}: {summary}")
    for problem in _unsaid_problems(result):
        _say("  problem: " + _with_code(problem).replace("\n", "\n    "), "red")
    for sentence in last["unprotected"]:
        _say(f"  {sentence}", "yellow")
    for failure in last["failed"]:
        texts = list(map(_with_code, failure["problems"])) or failure["unmet_requirements"]
        _say(f"  failed: {failure['resource']}: {', '.join(texts)}", "red")
    if _unsaid_problems(result) or any(failure["problems"] for failure in last["failed"]):
        _say(f"  {EXPLANATIONS}")


def _unsaid_problems(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the problems of the last run, except rollbacks whose quarantine has a line of its bundle."""
    problems: list[dict[str, Any]] = result["last_run"]["problems"]
    lines = result["holds"]["lines"]
    if any("given_up" in bundle and bundle["held"] not in lines for bundle in result["bundles"]):
        return problems
    return [problem for problem in problems if problem["code"] != ProblemCode.ROLLED_BACK]


def _with_code(problem: dict[str, Any]) -> str:
    """Return the text of a problem, with its code behind the first line."""
    first, *others = problem["text"].split("\n")
    return "\n".join([f"{first} [{problem['code']}]", *others])


def _colour_of(exit_status: int) -> str:
    """Return green for in order, yellow for waiting, and red for problems to solve."""
    if exit_status in (ExitStatus.OK, ExitStatus.CHANGED):
        return "green"
    return "yellow" if exit_status in (ExitStatus.HELD, ExitStatus.BUSY) else "red"


def _print_bundle(bundle: dict[str, Any]) -> None:
    _say(_bundle_line(bundle))
    if trial := bundle.get("trial"):
        count = trial["failed_runs"]
        failed = f", resources failed in the last {counted(count, 'run')}" if count else ""
        _say(f"  on trial since {minute_text(parse_moment(trial['since']))}{failed}")
        if trial["failure"]:
            _say(f"  the next run gives it up: {trial['failure']}", "red")
        elif trial.get("until"):
            _say(f"  {trial['message']}")
    if bundle["held"]:
        _say(f"  held: {bundle['held']}", "yellow")
    if bundle.get("problem"):
        _say(f"  problem: {bundle['problem']}", "red")
    for item in bundle.get("left_behind", ()):
        origin = "made by Puller" if item["made"] else "there before Puller came"
        since = minute_text(parse_moment(item["since"]))
        _say(f"  {item['reference']} is left behind since {since}, and was {origin}")
        if item["stays"]:
            _say(f"    {item['stays']}")


def _leftovers_line(bundle: dict[str, Any]) -> str:
    detail = f"{bundle['name']} {bundle['version'] or '(damaged)'}"
    size = size_text(bundle["bytes"])
    count = len(bundle.get("left_behind", ()))
    managed = f". {counted(count, 'leftover resource')}" if count else ""
    return (
        f"{detail} is no longer in the configuration, and is not applied. {size} are kept in {bundle['directory']} "
        f"until `puller forget {bundle['name']}`{managed}"
    )


def _bundle_line(bundle: dict[str, Any]) -> str:
    if bundle["enforced"] is None:
        detail = "the enforced version cannot be used" if bundle.get("problem") else "nothing is enforced"
        return f"{bundle['name']}: {detail}"
    if "applied" in bundle:
        return f"{bundle['name']} {bundle['enforced']} is to be applied by the next run, {bundle['applied']} was last"
    good = "" if bundle["good"] == bundle["enforced"] else f", last good {bundle['good'] or 'none'}"
    return f"{bundle['name']} {bundle['enforced']} is enforced since {bundle['since']}{good}"
