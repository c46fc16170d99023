"""``puller run``: the command of the timer."""

from typing import Any

import click

from puller.cli.options import configuration_option, job_options, text_format_option
from puller.run import jobs


@click.command()
@configuration_option("The configuration to use.")
@click.option("--offline", is_flag=True, help="Enforce the stored bundles without contacting the site.")
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
    from puller.cli.output import print_result_of, report_of
    from puller.reporting.results import RunResult

    def result() -> RunResult:
        options.reports = []
        status = jobs.run(options)
        report, problems = report_of(options.reports)
        return RunResult(exit_status=status, problems=problems, report=report)

    return print_result_of(RunResult, result)
