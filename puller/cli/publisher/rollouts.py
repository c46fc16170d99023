"""``puller site promote``, ``rollout``, ``halt``, ``back`` and ``withdraw``: what is said of published releases."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bundles.format.release import shown_percent
from puller.cli.publisher.options import (
    channel_option,
    over_option,
    passphrase_of_keys,
    passphrase_option,
    percent_option,
    rollout_options,
    rollout_request,
    site_directory,
)

if TYPE_CHECKING:
    from datetime import datetime

    from bundles.format.release import Release
    from bundles.publisher.channels import Channels
    from bundles.publisher.statements import Statement

_bundle = click.argument("bundle")


@click.command()
@site_directory
@_bundle
@click.option("--from", "source", required=True, metavar="CHANNEL", help="Where the release is now.")
@click.option("--to", "channel", required=True, metavar="CHANNEL", help="Where it is to be as well.")
@rollout_options
@passphrase_option
def promote(
    directory: Path,
    bundle: str,
    source: str,
    channel: str,
    percent: float | None,
    over: str | None,
    start: str | None,
    passphrase_file: Path | None,
) -> None:
    """Give the hosts of one channel the release that another channel has.

    Nothing is built or uploaded again: the same signed bytes that were tried in one channel go to the
    hosts of the other, to all of them or in a rollout.

    \b
    Example:
      puller site promote site web --from canary --to stable
      puller site promote site web --from canary --to stable --over 24h
    """
    request = rollout_request(percent, over, start)
    _tell(_channels(directory, passphrase_file).promote(bundle, source, channel, request), directory)


@click.command()
@site_directory
@_bundle
@channel_option
@percent_option
@over_option
@click.option("--complete", is_flag=True, help="All hosts, now; the rollout is over.")
@click.option("--resume", is_flag=True, help="Go on after a halt, alone or with one of the others.")
@passphrase_option
def rollout(
    directory: Path,
    bundle: str,
    channel: str,
    percent: float | None,
    over: str | None,
    complete: bool,
    resume: bool,
    passphrase_file: Path | None,
) -> None:
    """Let a rollout that is going on reach more hosts.

    A rollout never shrinks: a host that has got the release keeps it. With --over, the rest of the hosts
    is reached within that time from now.

    \b
    Example:
      puller site rollout site web --percent 50
      puller site rollout site web --over 12h
      puller site rollout site web --resume --percent 20
      puller site rollout site web --complete
    """
    if complete and (percent is not None or over is not None):
        raise click.UsageError("--complete excludes --percent and --over")
    if not (complete or resume) and percent is None and over is None:
        raise click.UsageError("wanted one of --percent, --over, --complete and --resume")
    request = rollout_request(100.0 if complete else percent, over)
    _tell(_channels(directory, passphrase_file).steer(bundle, channel, request, resume=resume), directory)


@click.command()
@site_directory
@_bundle
@channel_option
@passphrase_option
def halt(directory: Path, bundle: str, channel: str, passphrase_file: Path | None) -> None:
    """Stop a rollout at once: no host that does not run the release yet gets it.

    Hosts that run it stay on it. `puller site rollout --resume` goes on, `puller site back` takes it back.

    \b
    Example:
      puller site halt site web
    """
    statement = _channels(directory, passphrase_file).halt(bundle, channel)
    _tell(statement, directory)
    click.echo(f"Go on:    puller site rollout {directory} {bundle} --channel {channel} --resume")
    click.echo(f"Roll back:  puller site back {directory} {bundle} --channel {channel}")


@click.command()
@site_directory
@_bundle
@channel_option
@click.option("--version", help="Any version that was published.  [default: the one before the rollout]")
@passphrase_option
def back(
    directory: Path, bundle: str, channel: str, version: str | None, passphrase_file: Path | None
) -> None:
    """Give all hosts of a channel an older release, at once.

    This is a new signed statement, so no mirror can undo it, and none can make it.

    \b
    Example:
      puller site back site web
      puller site back site web --version 1.3.0
    """
    _tell(_channels(directory, passphrase_file).roll_back(bundle, channel, version), directory)


@click.command()
@site_directory
@_bundle
@channel_option
@passphrase_option
def withdraw(directory: Path, bundle: str, channel: str, passphrase_file: Path | None) -> None:
    """Take a bundle out of a channel. Hosts that follow it keep what they have.

    What was published stays published: other channels, and hosts that pin a version, go on with it.

    \b
    Example:
      puller site withdraw site web --channel canary
    """
    _tell(_channels(directory, passphrase_file).withdraw(bundle, channel), directory)


def account(statement: "Statement", details: str = "") -> Iterator[str]:
    """What was said, in sentences; ``details`` are of the release that is named."""
    before, after, channel, now = statement.before, statement.after, statement.channel, statement.now
    if after is None:
        yield f"{before} is no longer in channel {channel}: its hosts keep what they have"
    elif not statement.changed:
        yield f"{after} is in channel {channel} already, {reach(after, now)}: nothing to do"
    else:
        was = f", was {before.version}" if before and before.version != after.version else ""
        yield f"{after} is in channel {channel}{was}, {reach(after, now)}{details}"
        yield from _ended(statement)


def reach(release: "Release", now: "datetime") -> str:
    """Which hosts a release is for."""
    rollout = release.rollout
    if rollout is None:
        return "for all hosts"
    others = (
        f"the others run {rollout.before.version}" if rollout.before else "the others keep what they have"
    )
    reached = shown_percent(rollout.reached(now))
    if rollout.halted:
        return f"halted at {reached} of the hosts; {others}"
    if rollout.start is None or rollout.duration is None:
        return f"for {reached} of the hosts; {others}"
    until = rollout.start + rollout.duration
    growing = f"growing from {rollout.start:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"
    return f"for {reached} of the hosts, {growing}; {others}"


def next_step(directory: Path) -> str:
    """What a publisher does after every change."""
    return f"Next:\n  rsync -a --delay-updates {directory / 'public'}/ www:/srv/www/puller/"


def _ended(statement: "Statement") -> Iterator[str]:
    """What becomes of the hosts of a rollout that another release has cut short."""
    from bundles.publisher.statements import is_under_way

    ended, after, now = statement.before, statement.after, statement.now
    if ended is None or after is None or ended.rollout is None or ended.version == after.version:
        return
    if is_under_way(ended, now):
        reached = shown_percent(ended.rollout.reached(now))
        yield f"The rollout of {ended} ends at {reached}: its hosts {_after_that(ended, after)}"


def _after_that(ended: "Release", after: "Release") -> str:
    if after.rollout is None:
        return f"get {after.version} as all others"
    if ended.rollout is None or ended.rollout.before is None:
        return f"stay on it until {after.version} reaches them"
    return f"roll back to {ended.rollout.before.version} until {after.version} reaches them"


def _channels(directory: Path, passphrase_file: Path | None) -> "Channels":
    from bundles.publisher.channels import Channels
    from bundles.publisher.site import Site

    return Channels(Site(directory), passphrase_of_keys(passphrase_file))


def _tell(statement: "Statement", directory: Path) -> None:
    for line in account(statement):
        click.echo(line)
    if statement.changed:
        click.echo(next_step(directory))
