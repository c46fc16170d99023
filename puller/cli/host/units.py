"""``puller install-units``: systemd services and timers with the path of this command."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from bundles.filesystem.safe_paths import write_output
from foundation.problems import ProblemCode
from puller.cli.output import say
from puller.config.configuration import require_user
from puller.errors import ConfigurationError, UsageError, file_problem
from puller.state import users_configuration

_PLACEHOLDER = "@PULLER@"
_VERSIONS = "/usr/lib/puller/"
_PACKAGED = "/usr/bin/puller"  # of a package, which has a directory for each version, and one command for all
_PLACES = {
    "puller.service": "etc/systemd/system/puller.service",
    "puller.timer": "etc/systemd/system/puller.timer",
    "puller-boot.timer": "etc/systemd/system/puller-boot.timer",
    "puller-check.service": "etc/systemd/system/puller-check.service",
    "puller-check.timer": "etc/systemd/system/puller-check.timer",
    "puller-tmpfiles.conf": "etc/tmpfiles.d/puller.conf",
}
_TIGHT_PLACES = {
    "puller.service": "etc/systemd/system/puller.service.d/50-tight.conf",
    "puller-check.service": "etc/systemd/system/puller-check.service.d/50-tight.conf",
}
"""By the units that share the drop-in."""
_TIGHT = "puller-tight.conf"
_USERS_PLACES = {
    "puller-user.service": "puller.service",
    "puller-user.timer": "puller.timer",
    "puller-user-boot.timer": "puller-boot.timer",
}
_PUBLISHERS_PLACES = {
    "puller-site-refresh@.service": "etc/systemd/system/puller-site-refresh@.service",
    "puller-site-refresh@.timer": "etc/systemd/system/puller-site-refresh@.timer",
}
_NEXT = "systemctl daemon-reload && systemctl enable --now puller.timer"
_TIGHT_NEXT = "systemctl daemon-reload. `systemd-analyze security puller.service` shows the effect"
_USERS_NEXT = (
    "systemctl --user daemon-reload && systemctl --user enable --now puller.timer\n"
    "to let it run also while you are not logged in: loginctl enable-linger"
)
_PUBLISHERS_NEXT = (
    "put the passphrase of the keys of /srv/site into /etc/puller/publisher/srv-site.passphrase, then\n"
    "  systemctl daemon-reload && systemctl enable --now puller-site-refresh@srv-site.timer"
)


@click.command("install-units")
@click.option(
    "--root", metavar="DIR", default="/", show_default=True, help="Install below this directory, for images."
)
@click.option("--stdout", is_flag=True, help="Print the files instead of installing them.")
@click.option(
    "--publisher", is_flag=True, help="Install the units that refresh the signatures of a site each day."
)
@click.option("--tight", is_flag=True, help="Install the tight profile: drop-ins for hosts without packages.")
@click.option(
    "--user", "as_user", is_flag=True, help="Install the units of a user's own agent, without root."
)
def install_units(root: str, stdout: bool, publisher: bool, tight: bool, as_user: bool) -> None:
    """Install the systemd services and timers.

    The command installs puller.service, puller-check.service, their timers and tmpfiles in /etc. The timer
    puller-check.timer runs the health checks every minute, and repairs failures by a run. Enable it if you need it.

    --publisher installs puller-site-refresh@.service and its timer instead. Their instance is the path of a site, as
    `systemd-escape --path` prints it.

    --tight installs a drop-in for both services instead. It forbids all operations that hosts without packages do not
    need (docs/units.md). To remove it, delete 50-tight.conf from puller.service.d and puller-check.service.d.

    --user installs a service and a timer for the systemd instance of the current user (docs/as-user.md).

    The services start the current command by its absolute path. Put local changes into drop-ins (`systemctl edit
    puller.timer`). The command never overwrites drop-ins. If a package has installed the units, it installs nothing.

    \b
      puller install-units
      systemctl daemon-reload && systemctl enable --now puller.timer
    """
    if publisher + tight + as_user > 1:
        raise UsageError("install-units: --publisher, --tight and --user are each for themselves")
    if as_user:
        _install_users(root, stdout=stdout)
        return
    if tight:
        text = _read_unit(_TIGHT)
        _give([(place, text) for place in _TIGHT_PLACES.values()], root, _TIGHT_NEXT, stdout=stdout)
        return
    following = _PUBLISHERS_NEXT if publisher else _NEXT
    if _is_packaged() and root == "/" and not stdout:
        # Units in /etc would override those that the package updates.
        say(f"the package of Puller has brought the units already\nnext: {following}")
        return
    places = _PUBLISHERS_PLACES if publisher else _PLACES
    _give(_with_command(places), root, following, stdout=stdout)


def _install_users(root: str, *, stdout: bool) -> None:
    """Install units in the user's own configuration directory."""
    if root != "/":
        raise UsageError("install-units: --root and --user exclude each other")
    require_user()
    directory = f"{os.path.dirname(users_configuration())}/systemd/user"
    places = {name: f"{directory.lstrip('/')}/{unit}" for name, unit in _USERS_PLACES.items()}
    _give(_with_command(places), root, _USERS_NEXT, stdout=stdout)


def _with_command(places: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the places of units, and their texts with the path of this command."""
    command = _command_path()
    return [(place, _read_unit(name).replace(_PLACEHOLDER, command)) for name, place in places.items()]


def _give(files: Sequence[tuple[str, str]], root: str, following: str, *, stdout: bool) -> None:
    """Print files, or install them and print the next step."""
    for place, text in files:
        if stdout:
            say(f"# /{place}\n{text}")
        else:
            _install(Path(root) / place, text)
    if not stdout:
        say(f"next: {following}")


def _install(path: Path, text: str) -> None:
    try:
        write_output(path, text.encode(), make_directories=True)
    except OSError as error:
        raise ConfigurationError(
            file_problem(error, "cannot be written", where=path), code=ProblemCode.UNWRITABLE_OUTPUT
        ) from error
    say(f"installed {path}")


def _command_path() -> str:
    result = _PACKAGED if _is_packaged() else _find_command()
    if result is None:
        raise UsageError("install-units: no executable `puller` was found beside this Python or in PATH")
    if any(character.isspace() or character in "\"'\\" for character in result):
        raise UsageError(
            f"install-units: {result!r} cannot stand in a unit: it has blanks, quotes or backslashes"
        )
    return result.replace("%", "%%")  # % begins an expansion in a unit


def _is_packaged() -> bool:
    return sys.prefix.startswith(_VERSIONS)


def _find_command() -> str | None:
    beside = Path(sys.executable).with_name("puller")
    return str(beside) if beside.exists() else shutil.which("puller")


def _read_unit(name: str) -> str:
    """Return the text of a shipped unit. Raises ``ConfigurationError`` if this installation has no units."""
    path = _shipped() / name
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            file_problem(
                error, "cannot be read: this installation of Puller lacks its systemd units", where=path
            ),
            code=ProblemCode.MISSING_DEPENDENCY,
            hint="install Puller from its package or wheel, which contain them",
        ) from error


def _shipped() -> Path:
    """Return the directory of the shipped units: in the package if installed, beside it in a working tree."""
    installed = Path(__file__).parents[2] / "units"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "systemd"
