"""``puller fleet``: all hosts, from the reports that they send. Each command has its own module."""

import click

from puller.cli.lazy_group import LazyGroup

_COMMANDS = {
    "import": ("puller.cli.fleet.importing:import_reports", "Import reports from SOURCE into the store."),
    "status": ("puller.cli.fleet.status:status", "Show the state of the fleet."),
    "page": ("puller.cli.fleet.page:page", "Create static pages of the fleet."),
    "exports": (
        "puller.cli.fleet.exports:exports",
        "Collect the values that hosts export, as data for other hosts.",
    ),
    "facts": ("puller.cli.fleet.facts:facts", "Write the latest facts of each host to a file HOST.json."),
    "recipients": (
        "puller.cli.fleet.recipients:recipients",
        "List the recipients of all hosts for encrypted files.",
    ),
    "serve-reports": ("puller.cli.fleet.serve_reports:serve_reports", "Receive reports of hosts, for tests."),
    "forget": ("puller.cli.fleet.forget:forget", "Delete decommissioned hosts from the store."),
}


@click.group("fleet", cls=LazyGroup, sections={"Commands": _COMMANDS})
def fleet() -> None:
    """Show all hosts, based on their reports.

    Hosts send a report after each run to the destinations in `reports: to` of their configuration. `puller fleet
    import` reads these reports into a store. The other commands query the store, or create pages from it.

    \b
    Example:
      puller fleet import /srv/reports --store fleet.db
      puller fleet status --store fleet.db
      puller fleet page --store fleet.db --to public/fleet
    """
