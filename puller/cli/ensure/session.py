"""``puller session``: events of several related ``puller ensure`` commands."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from puller.cli.ensure.ensure import session_option
from puller.cli.lazy_group import CommandGroup
from puller.cli.options import any_format_option
from puller.cli.output import say, show
from puller.engine import ensure
from puller.engine.ensure import Session
from puller.errors import UsageError
from puller.reporting.log import sentence
from puller.reporting.report import Event, Summary
from puller.reporting.terminal_rows import Rows


@click.group(cls=CommandGroup)
def session() -> None:
    """Share events between `puller ensure` commands.

    \b
      eval "$(puller session new)"
      puller ensure file /etc/app.conf --source app.conf --owner root --group root --mode 0644
      puller ensure service app --require file#/etc/app.conf --subscribe file#/etc/app.conf
      puller session report --remove
    """


@session.command()
@click.option(
    "--directory",
    metavar="DIR",
    help="The directory of the session. Puller creates it.  [default: a temporary directory]",
)
def new(directory: str | None) -> None:
    """Create a session, and print the shell command that selects it."""
    made = Session.create(Path(directory) if directory else None)
    say(f"export {ensure.SESSION_VARIABLE}={shlex.quote(str(made.directory))}")


@session.command()
@session_option
@click.option("--remove", is_flag=True, help="Delete the session afterwards.")
@any_format_option
def report(session_directory: str | None, remove: bool, output_format: str) -> int:
    """Show the events of a session and their summary.

    Exit status: 0, 4 if resources failed, 6 if some failed and others changed.
    """
    if not session_directory:
        raise UsageError(f"no session: set {ensure.SESSION_VARIABLE}, or give --session")
    result = Session.open(Path(session_directory))
    recorded = result.events()
    events = [item.event for item in recorded]
    summary = Summary.of(events, sum(event.duration for event in events))
    if output_format == "text":
        _print_events(events, summary)
    else:
        value = {"started": result.start.started, "summary": summary, "events": recorded}
        show(msgspec.to_builtins(value), output_format)
    if remove:
        result.remove()
    return summary.exit_status(detailed=False)


def _print_events(events: Sequence[Event], summary: Summary) -> None:
    """Print rows on a terminal, and otherwise a line for each event."""
    rows = Rows.of(sys.stdout) if sys.stdout.isatty() else None
    for event in events:
        if rows is None:
            say(sentence(event))
        else:
            click.echo("\n".join(rows.resource(event)))
    say(str(summary))
