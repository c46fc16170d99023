"""``puller run``: what the timer starts."""

import sys
from pathlib import Path

import click

from puller.config import DEFAULT_PATH
from puller.log import Log, verbosity


@click.command()
@click.option(
    "--config", "path", default=str(DEFAULT_PATH), show_default=True, help="The configuration to use."
)
@click.option("--noop", is_flag=True, help="Change nothing; say what would be changed.")
@click.option("--diff/--no-diff", default=None, help="Show what changes in files.  [default: on a terminal]")
@click.option(
    "--detailed-exitcodes", is_flag=True, help="Exit with 2 when changes were made (6 with failures)."
)
@click.option("-v", "--verbose", is_flag=True, help="Show stable resources too.")
@click.option("-q", "--quiet", is_flag=True, help="Show only what failed.")
def run(
    path: str, noop: bool, diff: bool | None, detailed_exitcodes: bool, verbose: bool, quiet: bool
) -> int:
    """Pull what is published for this host, verify it, apply it, and report.

    Whatever goes wrong with the site, the last good bundle is enforced all the same, and the exit status says what
    it was:

    \b
       0  in the desired state             12  rollback refused
       2  with --detailed-exitcodes:       13  bundle rejected
          changes were made                14  fetch failed, the last bundle is enforced
       4  resources failed                 15  fetch failed, and there is nothing to enforce
       6  some failed, others changed      75  another run is at work
      10  signature or checksum is wrong   78  configuration
      11  metadata has expired
    """
    from puller.agent import Agent
    from puller.config import load_configuration
    from puller.engine import Settings
    from puller.host import Host
    from puller.signals import Stopped, StopRequests
    from puller.state import Directories

    configuration = load_configuration(Path(path))
    log = Log(sys.stdout, level=verbosity(verbose=verbose, quiet=quiet))
    stops = StopRequests()
    settings = Settings(
        noop=noop,
        diffs=sys.stdout.isatty() if diff is None else diff,
        listener=log.event,
        log=log.notice,
        stopping=lambda: stops.reason,
    )
    with stops.handled():
        try:
            agent = Agent(
                configuration,
                Directories(Path(configuration.state_directory), Path(configuration.run_directory)),
                Host.of(configuration),
                log,
                stops,
                settings,
                detailed_exitcodes,
            )
            return agent.run().exit_status
        except Stopped as stop:
            log.error(str(stop))
            return stop.exit_status
