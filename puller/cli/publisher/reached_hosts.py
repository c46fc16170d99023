"""The hosts that a rollout reaches, from the store of `puller fleet`, for commands of the publisher."""

from collections.abc import Sequence

import click

from bundles.format.release import Release
from bundles.publisher.channels import Statement
from foundation.quantities import counted, first_few
from puller.cli.completing import files
from puller.cli.fleet.fleet_options import STORE_VARIABLE, open_reader, opened_store
from puller.cli.options import Decorator
from puller.cli.output import say, warn

_MOST_NAMED = 10

optional_store_option: Decorator = click.option(
    "--store",
    "location",
    metavar="FILE|URL",
    shell_complete=files,
    envvar=STORE_VARIABLE,
    show_envvar=True,
    help="Show the hosts that the rollout reaches, from this store of `puller fleet`.",
)


def require_store(location: str | None) -> None:
    """Raise the errors of an unusable store, before anything is signed."""
    if location is not None:
        with opened_store(location):
            pass


def print_reach(location: str | None, statements: Sequence[Statement]) -> None:
    """Print the hosts that the rollouts reach now, and warn about a rollout without any. Requires a store."""
    rollouts = [one for one in statements if one.after is not None and one.after.rollout is not None]
    if location is None or not rollouts:
        return
    from puller.fleet.watching import reach_of  # the store needs the extra fleet

    with opened_store(location) as store:
        reader = open_reader(store, None)
        for statement in rollouts:
            if (release := statement.after) is not None:
                reach = reach_of(reader, release, statement.channel, statement.now)
                _print(release, statement.channel, reach.hosts, reach.followers)


def _print(release: Release, channel: str, hosts: Sequence[str], followers: int) -> None:
    count = counted(followers, "host")
    if hosts:
        say(f"{release} reaches {len(hosts)} of {count}: {first_few(hosts, _MOST_NAMED)}")
    elif followers:
        warn(f"{release} reaches 0 of {count} in channel {channel}. Use a larger --percent.")
    else:
        warn(f"{release} reaches 0 hosts: all hosts in the store follow other bundles or channels")
