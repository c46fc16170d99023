"""``puller apply``: application of a manifest, a directory or a bundle file, without a site or configuration."""

from typing import Any

import click

from puller.cli.completing import files
from puller.cli.options import (
    as_user_option,
    before_option,
    data_options,
    fact_options,
    job_options,
    no_system_facts_option,
    text_format_option,
)
from puller.cli.output import print_result_of, report_of
from puller.reporting.results import ApplyResult
from puller.run import jobs


@click.command()
@click.argument("source", shell_complete=files)
@before_option
@job_options
@text_format_option
@fact_options
@no_system_facts_option
@data_options
@as_user_option
@click.option(
    "--config",
    metavar="FILE",
    help="The configuration with the data of this host.  [default: /etc/puller/config.yaml, if it exists]",
)
@click.option(
    "--plain-archive",
    is_flag=True,
    help="Accept a tar.gz that `puller bundle build` did not make. Nothing verifies its contents.",
)
@click.option("--state-directory", metavar="DIR", help="Keep the lock and pending refreshes in DIR.")
def apply(output_format: str, **options: Any) -> int:
    """Apply a manifest or a bundle to this machine.

    SOURCE is a manifest, a directory with a `manifest.yaml`, or a bundle file. Puller changes only resources that
    differ, so a second run changes nothing.

    Facts and data are the same as in `puller run`: /etc/puller/facts.d, data.yaml, data.d, and the site data that the
    last run has stored. The options for facts and data override them. With --no-system-facts, only the options count.

    \b
      puller apply web --noop --diff
      puller apply web-1.4.0.tar.gz
      puller apply manifest.yaml --fact role=db --data local.yaml
      puller apply shop --with base

    Exit status: 0 in the desired state, 4 if resources failed, 6 if some failed and others changed, 13 for an invalid
    manifest, 64 if SOURCE does not exist, 75 if another run is active.
    """
    arguments = jobs.ApplyOptions(**options)
    return _apply_as_json(arguments) if output_format == "json" else jobs.apply(arguments)


def _apply_as_json(options: jobs.ApplyOptions) -> int:
    def result() -> ApplyResult:
        options.reports, options.messages = [], []
        status = jobs.apply(options)
        report, problems = report_of(options.reports)
        return ApplyResult(exit_status=status, problems=problems, report=report, messages=options.messages)

    return print_result_of(ApplyResult, result)
