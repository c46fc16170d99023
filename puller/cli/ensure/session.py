"""``puller session``: events of several related ``puller ensure`` commands."""

import shlex
from pathlib import Path

import click
import msgspec

from puller.cli.ensure.ensure import session_option
from puller.cli.options import any_format_option
from puller.cli.output import say, show
from puller.engine import sessions
from puller.engine.sessions import Session
from puller.errors import UsageError
from puller.reporting.log import sentence
from puller.reporting.report import Summary


@click.group()
def session() -> None:
    """Let separate puller ensure commands refer to each other, and report on them together.

    \b
      eval "$(puller session new)"
      puller ensure file /etc/app.conf --source app.conf --owner root --group root --mode 0644
      puller ensure service app --require file#/etc/app.conf --subscribe file#/etc/app.conf
      puller session report --remove
    """


@session.command()
@click.option(
    "--directory", metavar="DIR", help="Where to keep it; made when missing.  [default: a temporary one]"
)
def new(directory: str | None) -> None:
    """Make a session, and print the line that makes a shell use it."""
    made = Session.create(Path(directory) if directory else None)
    say(f"export {sessions.VARIABLE}={shlex.quote(str(made.directory))}")


@session.command()
@session_option
@click.option("--remove", is_flag=True, help="Remove the session afterwards.")
@any_format_option
def report(session_directory: str | None, remove: bool, output_format: str) -> int:
    """Show the events of a session in their order, and what they come to.

    Exit status: 4 when any of them failed, 6 when others changed something, else 0.
    """
    if not session_directory:
        raise UsageError(f"no session: set {sessions.VARIABLE}, or give --session")
    found = Session.open(Path(session_directory))
    recorded = found.events()
    events = [one.event for one in recorded]
    summary = Summary.of(events, sum(event.duration for event in events))
    if output_format == "text":
        for event in events:
            say(sentence(event))
        say(str(summary))
    else:
        value = {"started": found.start.started, "summary": summary, "events": recorded}
        show(msgspec.to_builtins(value), output_format)
    if remove:
        found.remove()
    return summary.exit_status(detailed=False)
