"""``puller fleet``: all hosts, by the reports that they send; each command in a module of its own."""

from importlib import import_module

import click

from puller.cli.output import with_colour_option

_COMMANDS = {
    "import": ("importing:import_reports", "Bring reports that have arrived into the store."),
    "status": ("status:status", "Say how the fleet is, and list hosts."),
    "page": ("page:page", "Make static pages of the fleet."),
    "exports": ("exports:exports", "Collect what hosts export, as data for other hosts."),
    "facts": ("facts:facts", "Write the facts of hosts into files."),
    "serve-reports": (
        "serve_reports:serve_reports",
        "Take the reports that hosts send, for a start and for tests.",
    ),
    "forget": ("forget:forget", "Forget hosts that are gone."),
}


class _Fleet(click.Group):
    """Subcommands by name; a module is imported only for the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"puller.cli.fleet.{module}"), attribute)
        return with_colour_option(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


@click.group("fleet", cls=_Fleet)
def fleet() -> None:
    """Look at all hosts, by the reports that they send.

    Hosts send a report after each run to where `reports: to` in their configuration says. What has arrived
    is brought into a store, which answers what is asked of the fleet, and of which pages are made.

    \b
    Example:
      puller fleet import /srv/reports --store fleet.db
      puller fleet status --store fleet.db
      puller fleet page --store fleet.db --to public/fleet
    """
