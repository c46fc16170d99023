"""``puller run``: the command of the timer, and ``puller diff``: drift of this host, without the site."""

from typing import Any

import click

from puller.cli.options import configuration_option, job_options, only_option, text_format_option
from puller.cli.output import print_result_of, report_of
from puller.reporting.results import DiffResult, RunResult, described_problems
from puller.run import jobs


@click.command()
@configuration_option("The configuration to use.")
@click.option("--offline", is_flag=True, help="Enforce the stored bundles without contacting the site.")
@click.option(
    "--no-reboot", is_flag=True, help="Never restart the machine. A due reboot waits for a later run."
)
@job_options
@text_format_option
def run(path: str, output_format: str, **options: Any) -> int:
    """Fetch the published bundles, verify and apply them.

    Each run ends with a report. If the site fails, the last good bundle stays enforced, and the exit status shows
    the reason:

    \b
       0  in the desired state             12  rollback refused
       2  with --detailed-exitcodes:       13  bundle rejected
          changes were made, or are due    14  fetch failed, the last bundle is enforced
       4  resources failed                 15  fetch failed, and no bundle is stored
       6  some failed, others changed      16  the installed agent does not start, and
       7  new version given up, back           the previous version did the run
          on the last good version         20  held or disabled (see puller status)
       8  the rollback failed, too         75  another run is active
      10  wrong signature or checksum      78  invalid configuration
      11  expired metadata
    """
    arguments = jobs.RunOptions(config=path, **options)
    return run_as_json(arguments) if output_format == "json" else jobs.run(arguments)


def run_as_json(options: jobs.RunOptions) -> int:
    """Run, and print the result as a JSON document."""

    def result() -> RunResult:
        options.reports = []
        status = jobs.run(options)
        report, problems = report_of(options.reports)
        return RunResult(exit_status=status, problems=problems, report=report)

    return print_result_of(RunResult, result)


@click.command()
@configuration_option("The configuration to use.")
@only_option
@click.option("--diff/--no-diff", default=True, show_default=True, help="Show the changes in files.")
@click.option("-v", "--verbose", is_flag=True, help="Show unchanged resources, too.")
@text_format_option
def diff(path: str, output_format: str, **options: Any) -> int:
    """Show the drift of this host from its enforced bundles.

    The command is a dry run of the versions on this host. It neither contacts the site nor changes anything, and it
    also works during `puller disable`. `puller run --noop` shows the changes of new releases, too.

    \b
    Example:
      puller diff
      puller diff --only 'file#/etc/nginx/*'

    Exit status: 0 in sync, 2 with drift, 4 if resources cannot be checked or would fail.
    """
    arguments = jobs.RunOptions(
        config=path, noop=True, offline=True, ignores_holds=True, detailed_exitcodes=True, **options
    )
    if output_format == "text":
        return jobs.run(arguments)

    def result() -> DiffResult:
        arguments.reports = []
        status = jobs.run(arguments)
        report = next(iter(arguments.reports), None)
        problems = described_problems(report.problems if report else ())
        return DiffResult(exit_status=status, problems=problems, report=report)

    return print_result_of(DiffResult, result)
