"""``puller fleet``: all hosts, from the reports that they send. Each command has its own module."""

import click

from puller.cli.lazy_group import LazyGroup

_COMMANDS = {
    "import": (
        "puller.cli.fleet.importing:import_reports",
        "Bring reports that have arrived into the store.",
    ),
    "status": ("puller.cli.fleet.status:status", "Say how the fleet is, and list hosts."),
    "page": ("puller.cli.fleet.page:page", "Make static pages of the fleet."),
    "exports": ("puller.cli.fleet.exports:exports", "Collect what hosts export, as data for other hosts."),
    "facts": ("puller.cli.fleet.facts:facts", "Write the facts of hosts into files."),
    "serve-reports": (
        "puller.cli.fleet.serve_reports:serve_reports",
        "Take the reports that hosts send, for a start and for tests.",
    ),
    "forget": ("puller.cli.fleet.forget:forget", "Forget hosts that are gone."),
}


@click.group("fleet", cls=LazyGroup, table=_COMMANDS)
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
