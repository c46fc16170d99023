"""``puller doctor``: checks of this host, with the fix beside each problem."""

import sys

import click

from bundles.confined.current import confined_when_needed
from foundation.formatting import is_utf8
from foundation.quantities import counted
from puller.cli.options import configuration_option, text_format_option
from puller.cli.output import print_result, say
from puller.exit_status import ExitStatus
from puller.reporting.results import DoctorCheck, DoctorResult
from puller.reporting.terminal_rows import Rows
from puller.run.diagnosis import Diagnosis, Verdict, diagnose
from puller.state.directories import UserConfigurationFile

_MARKS = {
    Verdict.OK: ("✓", "ok", "green"),
    Verdict.WARNING: ("!", "warning", "yellow"),
    Verdict.PROBLEM: ("✗", "PROBLEM", "red"),
    Verdict.UNKNOWN: ("?", "unknown", "cyan"),
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
    problems = sum(diagnosis.verdict is Verdict.PROBLEM for diagnosis in results)
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
    colour = "" if diagnosis.verdict is Verdict.OK else colour
    if not sys.stdout.isatty():
        say(text, colour or None)
        return
    for line in Rows.of(sys.stdout).wrapped(text, 0, colour, further=len(mark) + _SUBJECT + 2):
        click.echo(line)
