"""``puller site promote``, ``rollout``, ``halt``, ``back`` and ``withdraw``: the releases of hosts.

The hosts that a rollout reaches come from the store of `puller fleet`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import click

from bundles.format.release import Release
from bundles.publisher.channels import Channels, Statement
from bundles.publisher.site import Site
from foundation.quantities import counted, first_few
from puller.cli.completing import files
from puller.cli.fleet.fleet import STORE_VARIABLE, open_reader, opened_store
from puller.cli.options import Decorator, noop_option, together
from puller.cli.output import say, warn
from puller.cli.publisher.push import finish_change, no_push_option
from puller.cli.publisher.site_options import (
    bundles_of_site,
    channel_option,
    channels_of_site,
    over_option,
    passphrase_of_keys,
    passphrase_option,
    percent_option,
    print_statements,
    rollout_options,
    rollout_request,
    site_directory,
    trial_options,
    trial_rule,
    versions_of_site,
)
from puller.fleet.watching import reach_of

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


_change_options = together(
    noop_option("Show the change, and sign nothing."), no_push_option, passphrase_option
)
_bundle = click.argument("bundle", shell_complete=bundles_of_site)
_bundles = click.argument(
    "bundles", metavar="BUNDLE...", nargs=-1, required=True, shell_complete=bundles_of_site
)


@click.command()
@site_directory
@_bundle
@click.option(
    "--from",
    "source",
    required=True,
    metavar="CHANNEL",
    shell_complete=channels_of_site,
    help="The channel that has the release.",
)
@click.option(
    "--to",
    "channel",
    required=True,
    metavar="CHANNEL",
    shell_complete=channels_of_site,
    help="The channel that gets the release.",
)
@rollout_options
@trial_options
@optional_store_option
@_change_options
def promote(
    directory: Path,
    bundle: str,
    source: str,
    channel: str,
    percent: float | None,
    over: timedelta | datetime | None,
    start: str | None,
    wave: str | None,
    trial_duration: timedelta | None,
    trial_runs: int | None,
    location: str | None,
    *,
    noop: bool,
    no_push: bool,
    passphrase_file: Path | None,
) -> None:
    """Give the release of one channel to another channel.

    Nothing is built or uploaded again. The hosts of the second channel get the same signed files, all at once or in a
    rollout, with the same rule for the trial.

    \b
    Example:
      puller site promote site web --from canary --to stable
      puller site promote site web --from canary --to stable --over 24h
    """
    require_store(location)
    request = rollout_request(percent, over, start, wave)
    trial = trial_rule(trial_duration, trial_runs)
    channels = _channels(directory, passphrase_file, noop=noop)
    statement = channels.promote(bundle, source, channel, request, trial)
    _finish(directory, [statement], noop=noop, no_push=no_push)
    print_reach(location, [statement])


@click.command()
@site_directory
@_bundles
@channel_option
@percent_option
@over_option
@click.option("--complete", is_flag=True, help="Give the release to all hosts now, and end the rollout.")
@click.option("--resume", is_flag=True, help="Resume a halted rollout, with or without another option.")
@optional_store_option
@_change_options
def rollout(
    directory: Path,
    bundles: tuple[str, ...],
    channel: str,
    percent: float | None,
    over: timedelta | datetime | None,
    complete: bool,
    resume: bool,
    location: str | None,
    *,
    noop: bool,
    no_push: bool,
    passphrase_file: Path | None,
) -> None:
    """Extend a rollout to more hosts.

    A rollout never shrinks: hosts with the release keep it. With --over, the remaining hosts get the release within
    that time. Several bundles, such as those of a wave, change in one signed step.

    \b
    Example:
      puller site rollout site web --percent 50
      puller site rollout site web --over 12h
      puller site rollout site app app-conf --percent 50
      puller site rollout site web --resume --percent 20
      puller site rollout site web --complete
    """
    if complete and (percent is not None or over is not None):
        raise click.UsageError("--complete excludes --percent and --over")
    if not (complete or resume) and percent is None and over is None:
        raise click.UsageError("expected one of --percent, --over, --complete and --resume")
    require_store(location)
    request = rollout_request(100.0 if complete else percent, over)
    channels = _channels(directory, passphrase_file, noop=noop)
    statements = channels.steer_all(bundles, channel, request, resume=resume)
    _finish(directory, statements, noop=noop, no_push=no_push)
    print_reach(location, statements)


@click.command()
@site_directory
@_bundles
@channel_option
@_change_options
def halt(
    directory: Path,
    bundles: tuple[str, ...],
    channel: str,
    *,
    noop: bool,
    no_push: bool,
    passphrase_file: Path | None,
) -> None:
    """Stop a rollout: no further host gets the release.

    Hosts with the release keep it. `puller site rollout --resume` resumes the rollout, and `puller site back`
    reverts it.

    \b
    Example:
      puller site halt site web
    """
    statements = _channels(directory, passphrase_file, noop=noop).halt_all(bundles, channel)
    _finish(directory, statements, noop=noop, no_push=no_push)
    if not noop:
        names = " ".join(bundles)
        say(f"Resume:     puller site rollout {directory} {names} --channel {channel} --resume")
        say(f"Roll back:  puller site back {directory} {names} --channel {channel}")


@click.command()
@site_directory
@_bundles
@channel_option
@click.option(
    "--version",
    metavar="VERSION",
    shell_complete=versions_of_site,
    help="Any published version.  [default: the version before the last publication or rollout]",
)
@_change_options
def back(
    directory: Path,
    bundles: tuple[str, ...],
    channel: str,
    version: str | None,
    *,
    noop: bool,
    no_push: bool,
    passphrase_file: Path | None,
) -> None:
    """Roll all hosts of a channel back to an older release.

    The rollback is a new signed statement. Mirrors can neither forge nor revert it.

    \b
    Example:
      puller site back site web
      puller site back site web --version 1.3.0
    """
    statements = _channels(directory, passphrase_file, noop=noop).roll_back_all(bundles, channel, version)
    _finish(directory, statements, noop=noop, no_push=no_push)


@click.command()
@site_directory
@_bundle
@channel_option
@_change_options
def withdraw(
    directory: Path,
    bundle: str,
    channel: str,
    *,
    noop: bool,
    no_push: bool,
    passphrase_file: Path | None,
) -> None:
    """Remove a bundle from a channel. Its hosts keep their version.

    Published versions stay available for other channels and for hosts with a pin.

    \b
    Example:
      puller site withdraw site web --channel canary
    """
    statement = _channels(directory, passphrase_file, noop=noop).withdraw(bundle, channel)
    _finish(directory, [statement], noop=noop, no_push=no_push)


def _channels(directory: Path, passphrase_file: Path | None, *, noop: bool) -> Channels:
    return Channels(Site(directory), passphrase_of_keys(passphrase_file), noop=noop)


def _finish(directory: Path, statements: Sequence[Statement], *, noop: bool, no_push: bool) -> None:
    """Print the statements, and push the site."""
    print_statements(statements, noop=noop)
    is_changed = any(statement.changed for statement in statements)
    finish_change(directory, changed=is_changed, noop=noop, no_push=no_push)
