"""``puller pin`` and ``puller unpin``: the version of a bundle, decided on the host."""

import click

from bundles.format.identity import parse_version
from bundles.store.contents import Installed
from bundles.store.store import Store
from foundation.problems import ProblemCode
from puller.cli.completing import bundles_of_host, versions_on_host
from puller.cli.host.common import chosen, config_option, load_host, state_in_use
from puller.cli.output import say, warn
from puller.config.configuration import BundleChoice
from puller.errors import ConfigurationError, UsageError
from puller.run.policy.pins import Pins
from puller.run.policy.quarantine import Quarantine
from puller.state.directories import Directories
from puller.state.lock import only_run


@click.command()
@click.argument("bundle", shell_complete=bundles_of_host)
@click.argument("version", required=False, shell_complete=versions_on_host)
@config_option
def pin(bundle: str, version: str | None, path: str) -> None:
    """Hold BUNDLE at VERSION, or at the version that is enforced now, until `puller unpin`.

    The next run brings another VERSION than the enforced one, if the site has it. A pin wins over the channel; where
    the configuration names another version, one of the two has to go. Exits with status 75 while a run is at work.

    \b
    Examples:
      puller pin web
      puller pin web 1.4.0
    """
    configuration, directories = load_host(path)
    choice = chosen(configuration, bundle)
    with only_run(directories.run), state_in_use("written"):
        enforced = Store(directories.bundles).current(bundle)
        wanted = _version(bundle, version, enforced)
        _check_configured(choice, wanted, path)
        Pins.load(directories, warn).set(bundle, wanted)
    _tell(bundle, wanted, enforced)
    _tell_of_quarantine(directories, bundle, wanted)


@click.command()
@click.argument("bundle", shell_complete=bundles_of_host)
@config_option
def unpin(bundle: str, path: str) -> None:
    """Let BUNDLE follow its channel again, or the version of the configuration if that has one.

    \b
    Example:
      puller unpin web
    """
    configuration, directories = load_host(path)
    with only_run(directories.run), state_in_use("written"):
        pins = Pins.load(directories, warn)
        if pins.find(bundle) is None:  # a pin may outlive its bundle's place in the configuration
            chosen(configuration, bundle)
        version = pins.remove(bundle)
    say(f"{bundle} is not pinned any more; it was to {version}" if version else f"{bundle} is not pinned")


def _version(bundle: str, version: str | None, enforced: Installed | None) -> str:
    if version is not None:
        return parse_version(version)
    if enforced is None:
        raise UsageError(
            f"{bundle}: nothing is enforced yet; name the version to pin it to",
            code=ProblemCode.NOTHING_TO_ENFORCE,
        )
    return enforced.version


def _check_configured(choice: BundleChoice, version: str, path: str) -> None:
    if choice.version not in (None, version):
        raise ConfigurationError(
            f"{path}: {choice.name} has version {choice.version} there, wanted a pin to {version}; "
            "change it there, or remove it there to pin it here"
        )


def _tell(bundle: str, version: str, enforced: Installed | None) -> None:
    change = ""
    if enforced is None or enforced.version != version:
        change = f"; enforced now: {enforced.version if enforced else 'nothing'}, the next run changes that"
    say(f"{bundle} is pinned to {version}{change}")


def _tell_of_quarantine(directories: Directories, bundle: str, version: str) -> None:
    for entry in Quarantine.load(directories, warn, noop=True).entries:
        if (entry.bundle, entry.version) == (bundle, version):
            say(f"{entry}; `puller quarantine clear {bundle} {version}` lets it be tried again")
