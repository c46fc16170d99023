"""``puller quarantine``: the bundles that this host does not try again."""

import click
import msgspec

from puller.cli.completing import quarantined_bundles, quarantined_versions
from puller.cli.host.common import config_option, load_host, state_in_use
from puller.cli.options import text_format_option
from puller.cli.output import say, show, warn
from puller.errors import UsageError
from puller.run.policy.quarantine import Quarantine
from puller.state.lock import only_run


@click.group()
def quarantine() -> None:
    """Show the bundles that this host does not try again, or let them be tried.

    A bundle comes here when its health checks failed, when runs with it were cut short twice or failed as often as its
    give_up_after says, or by `puller rollback`.
    Its digest is what counts: the same files under another version are another bundle.
    """


@quarantine.command("list")
@text_format_option
@config_option
def list_entries(output_format: str, path: str) -> None:
    """List them, oldest first, with the reason.

    \b
    Example:
      puller quarantine list --format json
    """
    _, directories = load_host(path)
    with state_in_use("read"):
        entries = Quarantine.load(directories, warn, noop=True).entries
    if output_format == "json":
        show(msgspec.to_builtins(entries), "json")
        return
    for entry in entries:
        say(entry)
        for failure in entry.failed:
            say(f"  failed: {failure}")
        for change in entry.not_undone:
            say(f"  not undone: {change}")
    if not entries:
        say("nothing is quarantined")


@quarantine.command()
@click.argument("bundle", required=False, shell_complete=quarantined_bundles)
@click.argument("version", required=False, shell_complete=quarantined_versions)
@click.option("--all", "everything", is_flag=True, help="Clear the bundles of every name.")
@config_option
def clear(bundle: str | None, version: str | None, everything: bool, path: str) -> None:
    """Let the versions of BUNDLE, or one VERSION of it, be tried again by the next run.

    A run that is at work writes the same file, so this exits with status 75 while there is one.

    \b
    Examples:
      puller quarantine clear web 1.5.0
      puller quarantine clear --all
    """
    if everything == (bundle is not None):
        raise UsageError("quarantine clear: wanted the name of a bundle, or --all")
    _, directories = load_host(path)
    with only_run(directories.run), state_in_use("written"):
        cleared = Quarantine.load(directories, warn).clear(bundle, version)
    for entry in cleared:
        say(f"{entry.bundle} {entry.version} may be tried again; it was quarantined: {entry.reason}")
    if not cleared:
        say("nothing of that is quarantined" if bundle else "nothing is quarantined")
