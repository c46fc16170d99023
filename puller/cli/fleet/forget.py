"""``puller fleet forget``: removal of hosts that are gone."""

import click

from puller.cli.completing import hosts_of_store
from puller.cli.fleet.fleet_options import opened_store, store_option
from puller.cli.output import say, warn
from puller.exit_status import ExitStatus


@click.command("forget")
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...", shell_complete=hosts_of_store)
@store_option
def forget(hosts: tuple[str, ...], location: str) -> int:
    """Delete decommissioned hosts from the store.

    Their reports and runs are deleted, too. If a host sends another report, it reappears.

    \b
    Example:
      puller fleet forget web7.example.com

    Exit status: 0, or 1 for an unknown host.
    """
    with opened_store(location) as store:
        from puller.fleet.store.importer import forget_hosts  # needs the extra fleet

        with store.writing() as connection:
            known = forget_hosts(connection, hosts)
    for name in known:
        say(f"{name}: forgotten")
    unknown = [name for name in hosts if name not in known]
    for name in unknown:
        warn(f"{name}: the store has no report of this host")
    return ExitStatus.NO if unknown else ExitStatus.OK
