"""``puller diff``: drift of this host, without the site."""

from typing import Any

import click

from puller.cli.options import configuration_option, only_option, text_format_option
from puller.cli.output import print_result_of
from puller.reporting.results import DiffResult, described_problems
from puller.run import jobs


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
