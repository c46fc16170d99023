"""``puller forget``: remove what is kept of a bundle that this host does not follow any more."""

import click

from foundation.quantities import size_text
from puller.cli.completing import bundles_with_state, left_behind
from puller.cli.host.common import config_option, load_host, state_in_use
from puller.cli.output import say, warn
from puller.errors import UsageError
from puller.run.policy.forgetting import forget as forget_bundle
from puller.run.policy.forgetting import forget_left
from puller.state.directories import Directories
from puller.state.lock import only_run


@click.command()
@click.argument("bundle", shell_complete=bundles_with_state)
@click.argument("references", nargs=-1, metavar="[REFERENCE]...", shell_complete=left_behind)
@click.option("--left", is_flag=True, help="List no longer what BUNDLE has left behind, or these of it.")
@config_option
def forget(bundle: str, references: tuple[str, ...], left: bool, path: str) -> None:
    """Remove what is kept of BUNDLE, which the configuration does not name any more: its versions, and its pin.

    What it has put on this machine stays as it is, and what is in quarantine stays there. Until then a bundle that
    comes back into the configuration is enforced at once, also without the site. Exits with status 75 while a run is at
    work.

    With --left, which also works for a bundle that is followed, only the list of what it has left behind is made
    shorter: resources that no version declares any more.

    \b
    Examples:
      puller forget web
      puller forget web --left
      puller forget web --left file#/etc/old.conf
    """
    configuration, directories = load_host(path)
    if left:
        _forget_left(directories, bundle, references)
        return
    if references:
        raise UsageError("forget: references are for --left")
    if any(choice.name == bundle for choice in configuration.bundles):
        raise UsageError(
            f"{bundle}: is in {path}", hint="take it out there first, or the next run brings it again"
        )
    with only_run(directories.run), state_in_use("written"):
        found = forget_bundle(directories, bundle, warn)
    version = f" {found.version}" if found.version else ""
    say(f"{bundle}{version} is forgotten, {size_text(found.size)} are free; what it has made here stays")


def _forget_left(directories: Directories, bundle: str, references: tuple[str, ...]) -> None:
    with only_run(directories.run), state_in_use("written"):
        forgotten = forget_left(directories, bundle, references, warn)
    for one in forgotten:
        say(f"{one.reference} is forgotten, and stays as it is")
    if not forgotten:
        say(f"{bundle} has left nothing behind")
