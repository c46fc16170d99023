"""``puller forget``: remove what is kept of a bundle that this host does not follow any more."""

import click

from puller.cli.host.common import config_option, load_host, state_in_use
from puller.cli.output import warn
from puller.errors import UsageError
from puller.run.forget import forget as forget_bundle
from puller.state.lock import only_run


@click.command()
@click.argument("bundle")
@config_option
def forget(bundle: str, path: str) -> None:
    """Remove what is kept of BUNDLE, which the configuration does not name any more: its versions, and its pin.

    What it has put on this machine stays as it is, and what is in quarantine stays there. Until then a bundle that
    comes back into the configuration is enforced at once, also without the site. Exits with status 75 while a run is at
    work.

    \b
    Example:
      puller forget web
    """
    configuration, directories = load_host(path)
    if any(choice.name == bundle for choice in configuration.bundles):
        raise UsageError(f"{bundle}: is in {path}; take it out there first, or the next run brings it again")
    with only_run(directories.run), state_in_use("written"):
        left = forget_bundle(directories, bundle, warn)
    version = f" {left.version}" if left.version else ""
    click.echo(
        f"{bundle}{version} is forgotten, {left.size / 1_000_000:.1f} MB are free; what it has made here stays"
    )
