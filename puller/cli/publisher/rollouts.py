"""``puller site promote``, ``rollout``, ``halt``, ``back`` and ``withdraw``: the releases of hosts."""

from datetime import timedelta
from pathlib import Path

import click

from bundles.publisher.channels import Channels
from bundles.publisher.site import Site
from puller.cli.completing import bundles_of_site
from puller.cli.output import say
from puller.cli.publisher.key_sources import passphrase_of_keys
from puller.cli.publisher.site_options import (
    channel_option,
    over_option,
    passphrase_option,
    percent_option,
    print_statement,
    print_statements,
    rollout_options,
    rollout_request,
    site_directory,
)

_bundle = click.argument("bundle", shell_complete=bundles_of_site)
_bundles = click.argument(
    "bundles", metavar="BUNDLE...", nargs=-1, required=True, shell_complete=bundles_of_site
)


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
    over: timedelta | None,
    start: str | None,
    wave: str | None,
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
    request = rollout_request(percent, over, start, wave)
    print_statement(
        directory, _channels(directory, passphrase_file).promote(bundle, source, channel, request)
    )


@click.command()
@site_directory
@_bundles
@channel_option
@percent_option
@over_option
@click.option("--complete", is_flag=True, help="All hosts, now; the rollout is over.")
@click.option("--resume", is_flag=True, help="Go on after a halt, alone or with one of the others.")
@passphrase_option
def rollout(
    directory: Path,
    bundles: tuple[str, ...],
    channel: str,
    percent: float | None,
    over: timedelta | None,
    complete: bool,
    resume: bool,
    passphrase_file: Path | None,
) -> None:
    """Let a rollout that is going on reach more hosts.

    A rollout never shrinks: a host that has got the release keeps it. With --over, the rest of the hosts
    is reached within that time from now. Several bundles, as those of one wave, are steered in one signed step.

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
    request = rollout_request(100.0 if complete else percent, over)
    channels = _channels(directory, passphrase_file)
    print_statements(directory, channels.steer_all(bundles, channel, request, resume=resume))


@click.command()
@site_directory
@_bundles
@channel_option
@passphrase_option
def halt(directory: Path, bundles: tuple[str, ...], channel: str, passphrase_file: Path | None) -> None:
    """Stop a rollout at once: no host that does not run the release yet gets it.

    Hosts that run it stay on it. `puller site rollout --resume` goes on, `puller site back` takes it back.

    \b
    Example:
      puller site halt site web
    """
    print_statements(directory, _channels(directory, passphrase_file).halt_all(bundles, channel))
    names = " ".join(bundles)
    say(f"Go on:    puller site rollout {directory} {names} --channel {channel} --resume")
    say(f"Roll back:  puller site back {directory} {names} --channel {channel}")


@click.command()
@site_directory
@_bundles
@channel_option
@click.option(
    "--version",
    help="Any version that was published.  [default: the one before the last publication or rollout]",
)
@passphrase_option
def back(
    directory: Path,
    bundles: tuple[str, ...],
    channel: str,
    version: str | None,
    passphrase_file: Path | None,
) -> None:
    """Give all hosts of a channel an older release, at once.

    This is a new signed statement, so no mirror can undo it, and none can make it.

    \b
    Example:
      puller site back site web
      puller site back site web --version 1.3.0
    """
    channels = _channels(directory, passphrase_file)
    print_statements(directory, channels.roll_back_all(bundles, channel, version))


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
    print_statement(directory, _channels(directory, passphrase_file).withdraw(bundle, channel))


def _channels(directory: Path, passphrase_file: Path | None) -> "Channels":
    return Channels(Site(directory), passphrase_of_keys(passphrase_file))
