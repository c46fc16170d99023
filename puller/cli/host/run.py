"""``puller run``: the command of the timer."""

from typing import Any

import click

from puller.cli.options import configuration_option, job_options
from puller.run import jobs


@click.command()
@configuration_option("The configuration to use.")
@click.option("--offline", is_flag=True, help="Enforce what is here, without asking the site.")
@job_options
def run(path: str, **options: Any) -> int:
    """Pull what is published for this host, verify it, apply it, and report.

    Whatever goes wrong with the site, the last good bundle is enforced all the same, and the exit status says what
    it was:

    \b
       0  in the desired state             12  rollback refused
       2  with --detailed-exitcodes:       13  bundle rejected
          changes were made                14  fetch failed, the last bundle is enforced
       4  resources failed                 15  fetch failed, and there is nothing to enforce
       6  some failed, others changed      16  the installed agent does not start; this is
       7  new one given up, back on the        the one before it
          last good bundle                 20  held back, or disabled (puller status says why)
       8  and rolling back failed, too     75  another run is at work
      10  signature or checksum is wrong   78  configuration
      11  metadata has expired
    """
    return jobs.run(jobs.RunOptions(config=path, **options))
