"""``puller fleet forget``: removal of hosts that are gone."""

import click

from puller.cli.fleet.fleet_options import opened_store, store_option
from puller.cli.output import say, warn
from puller.exit_status import ExitStatus


@click.command("forget")
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@store_option
def forget(hosts: tuple[str, ...], location: str) -> int:
    """Forget hosts that are gone: their last report, their runs, and what they had when.

    A host that sends again is known again.

    \b
    Example:
      puller fleet forget web7.example.com

    Exit status: 0; 1 when a host is not known.
    """
    with opened_store(location) as store:
        from puller.fleet.store.importer import forget_hosts  # needs the extra fleet

        with store.writing() as connection:
            known = forget_hosts(connection, hosts)
    for name in known:
        say(f"{name}: forgotten")
    unknown = [name for name in hosts if name not in known]
    for name in unknown:
        warn(f"{name}: no report of it was imported")
    return ExitStatus.NO if unknown else ExitStatus.OK
