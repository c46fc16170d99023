"""``puller history``: earlier runs of this host and their changes, from the stored reports."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby

import click
import msgspec

from foundation.formatting import did_you_mean
from foundation.quantities import counted
from foundation.times import minute_text, parse_moment, parse_since
from puller.cli.completing import bundles_with_state, resources_of_host
from puller.cli.host.common import config_option, load_host, state_in_use
from puller.cli.options import text_format_option
from puller.cli.output import print_result, say, warn
from puller.errors import UsageError
from puller.reporting.history import PastRun, Selection, past_runs
from puller.reporting.report import Report
from puller.reporting.results import HistoryResult
from puller.reporting.terminal import report_lines
from puller.reporting.terminal_rows import Rows
from puller.resources.registry import type_names

_MOST_RUNS = 20


@click.command()
@click.argument("reference", metavar="[RESOURCE]", required=False, shell_complete=resources_of_host)
@click.option(
    "--since", metavar="TIME", help="Only runs since this time: 2d, 08:00, yesterday or 2026-11-20."
)
@click.option(
    "--bundle", metavar="BUNDLE", default="", shell_complete=bundles_with_state, help="Only this bundle."
)
@click.option(
    "--limit",
    metavar="NUMBER",
    type=click.IntRange(min=1),
    default=_MOST_RUNS,
    show_default=True,
    help="The maximum number of runs with changes or problems.",
)
@click.option(
    "--diff/--no-diff",
    default=None,
    help="Show the changes in files.  [default: on a terminal or with RESOURCE]",
)
@text_format_option
@config_option
def history(
    reference: str | None,
    since: str | None,
    bundle: str,
    limit: int,
    diff: bool | None,
    output_format: str,
    path: str,
) -> int:
    """Show earlier runs and their changes, newest first.

    The runs come from the stored reports of this host. RESOURCE is a reference such as file#/etc/motd, with * for any
    text, and selects its events. Runs without changes are counted.

    \b
    Example:
      puller history
      puller history --since yesterday
      puller history 'file#/etc/nginx/*' --bundle web

    Exit status: 0, or 1 if no stored run matches.
    """
    _, directories = load_host(path)
    selection = Selection(since=_since(since), bundle=bundle, reference=_reference(reference))
    with state_in_use("read"):
        runs = list(_limited(past_runs(directories, selection), selection, limit))
    for problem in (run.problem for run in runs if run.problem):
        warn(problem)
    reports = [run.report for run in runs if run.report is not None]
    status = 0 if runs and (reports or not selection.is_narrow) else 1
    if output_format == "json":
        quiet = sum(run.report is None and not run.problem for run in runs)
        return print_result(HistoryResult(exit_status=status, runs=reports, quiet=quiet))
    if status:
        say("No stored run matches.", err=True)
        return status
    shows_diffs = reference is not None or sys.stdout.isatty() if diff is None else diff
    for line in _lines(runs, selection, Rows.of(sys.stdout), shows_diffs=shows_diffs):
        click.echo(line)
    return status


def _since(text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_since(text, datetime.now(UTC))
    except ValueError as error:
        raise UsageError(f"--since {error}") from None


def _reference(text: str | None) -> str:
    """Return a reference. Raises ``UsageError`` for an unknown type."""
    if text is None:
        return ""
    of, separator, name = text.partition("#")
    if not separator or not name:
        raise UsageError(f"RESOURCE is {text!r}", expected="a reference such as file#/etc/motd")
    if "*" not in of and of not in type_names():
        raise UsageError(f"unknown type {of!r}{did_you_mean(of, type_names())}")
    return text


def _limited(runs: Iterator[PastRun], selection: Selection, limit: int) -> Iterator[PastRun]:
    """Yield the matching runs, until the limit of reports is reached. A narrow selection has no quiet runs."""
    count = 0
    for run in runs:
        is_match = run.report is None or bool(run.report.bundles) or not selection.is_narrow
        if selection.is_narrow and run.report is None and not run.problem:
            continue
        if is_match:
            yield run
            count += run.report is not None
        if count == limit:
            return


def _lines(runs: list[PastRun], selection: Selection, rows: Rows, *, shows_diffs: bool) -> Iterator[str]:
    """Yield the runs. Consecutive quiet runs share one line."""
    for is_quiet, group in groupby(runs, lambda run: run.report is None):
        if is_quiet:
            quiet = [run for run in group if not run.problem]
            if quiet:
                yield _quiet_line(quiet[-1], len(quiet), rows)
            continue
        for run in group:
            if run.report is not None:
                report = run.report if shows_diffs else run.report.without_diffs()
                yield from _run_lines(report, selection, rows)


def _quiet_line(oldest: PastRun, count: int, rows: Rows) -> str:
    noun = counted(count, "run")
    return rows.painted(f"{minute_text(oldest.began)}  {noun} without changes", "dim")


def _run_lines(report: Report, selection: Selection, rows: Rows) -> Iterator[str]:
    started = minute_text(parse_moment(report.started))
    partial = f", only {', '.join(report.only)}" if report.only else ""
    held = f", held: {report.paused}" if report.paused else ""
    yield rows.both_sides(f"{started}{partial}{held}", f"exit {report.exit_status}", left_colour="bold")
    rows = msgspec.structs.replace(rows, width=rows.width - 2)
    lines = _event_lines(report, rows) if selection.reference else report_lines(report, rows)
    for line in lines:
        yield f"  {line}"


def _event_lines(report: Report, rows: Rows) -> Iterator[str]:
    """Yield the selected events without summaries, which count all resources."""
    rows = msgspec.structs.replace(rows, is_dry_run=report.noop)
    for bundle in report.bundles:
        yield rows.painted(f"{bundle.name} {bundle.version}".rstrip(), "bold")
        for event in bundle.events:
            yield from rows.resource(event)
