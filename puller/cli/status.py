"""``puller status``: what is enforced on this host, since when, and how the last run went."""

import os
from datetime import UTC, datetime
from typing import Any

import click

from bundles.errors import BundleError
from bundles.store import Store
from puller.cli.on_host import config_option, load_host
from puller.cli.output import show, text_format_option
from puller.config import Configuration
from puller.errors import ConfigurationError
from puller.holds import Holds
from puller.report import BundleReport, Report
from puller.state import Directories, load_last_report, load_status
from puller.system import reason


@click.command()
@config_option
@text_format_option
def status(path: str, output_format: str) -> None:
    """Show what is enforced on this host and since when, how the last run went, and what is held back and why.

    Reads the state directory only: it asks neither the site nor the machine.
    """
    configuration, directories = load_host(path)
    report, problem = None, None
    try:
        report = load_last_report(directories)
    except PermissionError as error:
        raise ConfigurationError(f"{error.filename}: cannot be read: {reason(error)}; try as root") from error
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        problem = f"{directories.last_run}: is not a report ({why}); the next run replaces it"
    found = _collect(configuration, directories, report) | {"problem": problem}
    if output_format == "json":
        show(found, "json")
    else:
        _print(found)


def _collect(configuration: Configuration, directories: Directories, report: Report | None) -> dict[str, Any]:
    doing, now = load_status(directories), datetime.now(UTC)
    notes: list[str] = []
    holds = Holds.load(configuration, directories, now, notes.append, keep=False)
    last = {bundle.name: bundle for bundle in report.bundles} if report else {}
    store = Store(directories.bundles)
    return {
        "running_since": doing.since if doing and doing.state == "running" else None,
        "holds": {**holds.data(now), "lines": [*holds.lines(now), *notes]},
        "bundles": [_bundle(choice.name, store, last.get(choice.name)) for choice in configuration.bundles],
        "last_run": _last_run(report) if report else None,
    }


def _bundle(name: str, store: Store, last: BundleReport | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "enforced": None, "since": None, "sha256": None, "good": None}
    try:
        if current := store.current(name):
            since = os.lstat(current.path.parent / "current").st_mtime
            found |= {"enforced": current.version, "sha256": current.sha256}
            found["since"] = datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
            if (
                last and last.sha256 and last.sha256 != current.sha256
            ):  # `rollback --later`, or a run was cut short
                found["applied"] = last.version
        if good := store.good(name):
            found["good"] = good.version
    except (BundleError, OSError) as error:
        found["problem"] = str(error)
    found["held"] = last.held or None if last else None
    if last and (given_up := last.given_up):
        found["given_up"] = f"{given_up.version} {given_up.outcome}"
    return found


def _last_run(report: Report) -> dict[str, Any]:
    failed = [
        {"resource": event.reference, "errors": event.errors or event.unmet_requirements}
        for bundle in report.bundles
        for event in bundle.events
        if event.errors or event.unmet_requirements
    ]
    return {
        "finished": report.finished,
        "exit_status": report.exit_status,
        "problems": report.problems,
        "summaries": {
            bundle.name: str(bundle.summary) for bundle in report.bundles if bundle.outcome == "applied"
        },
        "failed": failed,
    }


def _print(found: dict[str, Any]) -> None:
    if found["running_since"]:
        click.echo(f"a run is at work since {found['running_since']}")
    for line in found["holds"]["lines"]:
        click.echo(line)
    for bundle in found["bundles"]:
        click.echo(_bundle_line(bundle))
        if bundle["held"]:
            click.echo(f"  held: {bundle['held']}")
        if bundle.get("problem"):
            click.echo(f"  problem: {bundle['problem']}")
    last = found["last_run"]
    if last is None:
        click.echo(f"last run: {found['problem'] or 'none yet'}")
        return
    click.echo(f"last run: {last['finished']}, exit status {last['exit_status']}")
    for name, summary in last["summaries"].items():
        click.echo(f"  {name}: {summary}")
    for problem in last["problems"]:
        click.echo("  problem: " + problem.replace("\n", "\n    "))
    for failure in last["failed"]:
        click.echo(f"  failed: {failure['resource']}: {', '.join(failure['errors'])}")


def _bundle_line(bundle: dict[str, Any]) -> str:
    if bundle["enforced"] is None:
        what = "what is enforced cannot be used" if bundle.get("problem") else "nothing is enforced"
        return f"{bundle['name']}: {what}"
    if "applied" in bundle:
        return f"{bundle['name']} {bundle['enforced']} is to be applied by the next run, {bundle['applied']} was last"
    good = "" if bundle["good"] == bundle["enforced"] else f", last good {bundle['good'] or 'none'}"
    return f"{bundle['name']} {bundle['enforced']} is enforced since {bundle['since']}{good}"
