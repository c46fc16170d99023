"""``puller rollback``: back to the bundle before, by hand."""

import click

from bundles.store.contents import Installed
from bundles.store.store import Store
from puller.cli.completing import bundles_of_host
from puller.cli.host.common import chosen, config_option, load_host, one_line, state_in_use, user
from puller.cli.output import say, warn
from puller.errors import BusyError
from puller.run.jobs import RunOptions, run
from puller.run.policy.pins import Pins
from puller.run.policy.quarantine import Quarantine
from puller.run.policy.rollback import roll_back
from puller.run.trials import Trials
from puller.state.lock import only_run


@click.command()
@click.argument("bundle", shell_complete=bundles_of_host)
@click.option("--reason", default="", help="Why, for whoever looks into the quarantine later.")
@click.option("--later", is_flag=True, help="Leave it to the next run to apply it.")
@config_option
def rollback(bundle: str, reason: str, later: bool, path: str) -> int:
    """Roll back to the last good version of BUNDLE, or else to the one before, and apply it.

    What is enforced now is quarantined by its digest, so that no run takes it again; something newer from the site is
    taken as usual. Applying asks no site, and the exit status is that of the run. Refuses when there is nothing to go
    back to. Exits with status 75 while a run is at work.

    \b
    Example:
      puller rollback web --reason "logins fail since 1.5.0"
    """
    configuration, directories = load_host(path)
    choice = chosen(configuration, bundle)
    why = f"rolled back by {user()}" + (f": {one_line('--reason', reason)}" if reason else "")
    with only_run(directories.run), state_in_use("written"):
        quarantine = Quarantine.load(directories, warn)
        trials = Trials(directories, warn, noop=False)
        current, target = roll_back(Store(directories.bundles), quarantine, trials, bundle, why)
        pinned = Pins.load(directories, warn).find(bundle) or choice.version
    _tell(current, target, pinned)
    if later:
        say("the next run applies it; `puller run` does it now")
        return 0
    return _apply(path)


def _tell(current: Installed, target: Installed, pinned: str | None) -> None:
    say(f"{target.name} {target.version} is current again, was {current.version}")
    say(f"{current.name} {current.version} is quarantined (sha256 {current.sha256})")
    if pinned == current.version:
        say(f"{current.name} is still pinned to {pinned}, which is not tried again: pin it to another")


def _apply(path: str) -> int:
    try:
        return run(RunOptions(config=path, offline=True))
    except BusyError:  # it began after the links were changed
        say("another run has just begun, and applies it")
        return 0
