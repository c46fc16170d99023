"""``puller run``: the command of the timer."""

from typing import Any

import click

from puller.cli.options import configuration_option, job_options, text_format_option
from puller.run import jobs


@click.command()
@configuration_option("The configuration to use.")
@click.option("--offline", is_flag=True, help="Enforce what is here, without asking the site.")
@job_options
@text_format_option
def run(path: str, output_format: str, **options: Any) -> int:
    """Pull what is published for this host, verify it, apply it, and report.

    Whatever goes wrong with the site, the last good bundle is enforced all the same, and the exit status says what
    it was:

    \b
       0  in the desired state             12  rollback refused
       2  with --detailed-exitcodes:       13  bundle rejected
          changes were made, or are due    14  fetch failed, the last bundle is enforced
       4  resources failed                 15  fetch failed, and there is nothing to enforce
       6  some failed, others changed      16  the installed agent does not start; this is
       7  new one given up, back on the        the one before it
          last good bundle                 20  held back, or disabled (puller status says why)
       8  and rolling back failed, too     75  another run is at work
      10  signature or checksum is wrong   78  configuration
      11  metadata has expired
    """
    arguments = jobs.RunOptions(config=path, **options)
    return run_as_json(arguments) if output_format == "json" else jobs.run(arguments)


def run_as_json(options: jobs.RunOptions) -> int:
    """Run, and print the result as a JSON document."""
    from puller.cli.results import print_result_of
    from puller.reporting.results import RunResult, described_problems

    def result() -> RunResult:
        options.reports = []
        status = jobs.run(options)
        report = next(iter(options.reports), None)
        problems = described_problems(report.problems if report else ())
        return RunResult(exit_status=status, problems=problems, report=report)

    return print_result_of(RunResult, result)
