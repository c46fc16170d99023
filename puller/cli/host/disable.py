"""``puller disable`` and ``puller enable``: a hold on applying, for everything on this host."""

from datetime import UTC, datetime

import click

from foundation.timestamps import parse_until
from puller.cli.host.common import config_option, load_host, one_line, state_in_use, user
from puller.cli.output import say
from puller.errors import UsageError
from puller.reporting.history import load_status
from puller.run.policy.disable import disable as save_hold
from puller.run.policy.disable import enable as end_hold
from puller.state.directories import Directories


@click.command()
@click.option("--reason", required=True, help="Why, for whoever meets the hold: shown by runs and status.")
@click.option(
    "--until",
    metavar="TIME",
    help="When it ends by itself: 2026-11-21T06:00 (UTC unless it has an offset), or a duration such as 4h or 2d.",
)
@config_option
def disable(reason: str, until: str | None, path: str) -> None:
    """Apply nothing on this host until `puller enable`, or until the given time.

    Runs still fetch and verify, so that the host is up to date in an instant afterwards, and end with exit status 20.
    A run that is at work finishes. Disabling again replaces reason and time.

    \b
    Examples:
      puller disable --reason "TICKET-7: restoring the database" --until 4h
      puller disable --reason "frozen for the audit" --until 2026-12-01T08:00+01:00
    """
    _, directories = load_host(path)
    now = datetime.now(UTC)
    end = _end(until, now)
    with state_in_use("written"):
        hold = save_hold(directories, one_line("--reason", reason), user(), now, end)
    say(hold)
    _tell_of_run(directories, "this hold is for the runs after it")


@click.command()
@config_option
def enable(path: str) -> None:
    """End the hold of `puller disable`: the next run applies again.

    \b
    Example:
      puller enable && puller run
    """
    _, directories = load_host(path)
    with state_in_use("written"):
        hold = end_hold(directories, datetime.now(UTC))
    say(f"enabled; it was {hold}" if hold else "enabled; it was not disabled")
    _tell_of_run(directories, "the run after it applies again")


def _end(until: str | None, now: datetime) -> datetime | None:
    try:
        return None if until is None else parse_until(until, now)
    except ValueError as error:
        raise UsageError(f"--until {error}") from None


def _tell_of_run(directories: Directories, consequence: str) -> None:
    doing = load_status(directories)
    if doing and doing.state == "running":
        say(f"a run is at work since {doing.since} (process {doing.process}) and finishes; {consequence}")
