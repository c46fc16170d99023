"""``puller config``: the configuration of this host."""

import click

from bundles.masking import mask_location
from puller.cli.options import as_user_option, configuration_option
from puller.cli.output import say
from puller.config.configuration import load_configuration, sample


@click.group()
def config() -> None:
    """Check this host's configuration, or print a sample to start from."""


@config.command("sample")
@as_user_option
def print_sample(as_user: bool) -> None:
    """Print a configuration with every key, its default and what it means.

    \b
      puller config sample > /etc/puller/config.yaml
      puller config sample --as-user > ~/.config/puller/config.yaml
    """
    say(sample(as_user=as_user), nl=False)


@config.command()
@configuration_option("The configuration to check.")
def check(path: str) -> None:
    """Read the configuration as a run would, and say what it means.

    Exit status: 0 when it is valid, 78 when not; every problem is listed with its line.
    """
    configuration = load_configuration(path)
    say(f"{path}: valid")
    # A mirror may have a password in its URL.
    say(f"site: {', '.join(map(mask_location, configuration.mirrors))}")
    for choice in configuration.bundles:
        which = f"version {choice.version}" if choice.version else f"channel {choice.channel}"
        say(f"bundle: {choice.name}, {which}")
    for window in configuration.windows:
        say(f"window: {window}")
