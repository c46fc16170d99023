"""``puller site``: publish signed bundles in a static directory that any web server can serve."""

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bundles.errors import KeyFileError, SettingsError
from bundles.files import read_limited

if TYPE_CHECKING:
    from bundles.keys import Passphrase
    from bundles.site import Publication, RoleStatus

_VARIABLE = "PULLER_PASSPHRASE"
_LONGEST_PASSPHRASE = 64 * 1024

_directory = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
_passphrase_file = click.option(
    "--passphrase-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"Read the passphrase of the keys from this file.  [default: ${_VARIABLE}, else a question]",
)


@click.group("site")
def site() -> None:
    """Publish signed bundles in a static site.

    A site is a directory. Its part public/ goes to any web server, object store or stick; hosts trust none of
    these, only the signatures. The keys are in keys/, and stay on the machine that publishes.

    \b
    Example:
      puller site init site
      puller site publish site web --version 1.4.0
      rsync -a --delay-updates site/public/ www:/srv/www/puller/
    """


@site.command("init")
@_directory
@_passphrase_file
@click.option(
    "--no-passphrase", is_flag=True, help="Store the keys unencrypted; who can read them can publish."
)
@click.option(
    "--expiry",
    multiple=True,
    metavar="ROLE=TIME",
    help="How long signatures of a role last: root=365d, targets=90d, snapshot=30d, timestamp=7d.",
)
def init(directory: Path, passphrase_file: Path | None, no_passphrase: bool, expiry: tuple[str, ...]) -> None:
    """Make a new site in DIR, with new keys.

    Choose a long passphrase: it protects the keys from whoever gets hold of the files.

    Hosts refuse what has expired, so that nobody can hold them on old content unnoticed. `puller site
    refresh` signs anew; let a timer run it well within the lifetime of the timestamp. The lifetimes are
    in DIR/site.yaml.

    \b
    Example:
      puller site init site
      puller site init site --passphrase-file /root/site.pass --expiry timestamp=2d
    """
    from bundles.site import Site

    if no_passphrase and passphrase_file is not None:
        raise click.UsageError("--no-passphrase and --passphrase-file exclude each other")
    passphrase = None if no_passphrase else _new_passphrase(passphrase_file)
    made = Site.init(directory, passphrase, dict(_lifetime(text) for text in expiry))
    click.echo(f"{directory}: a new site; its keys are in {directory / 'keys'}, {_protection(passphrase)}")
    click.echo("Next:")
    click.echo(f"  copy {made.anchor} to /etc/puller/root.json on each host")
    click.echo(f"  puller site publish {directory} BUNDLE --version 1.0.0")


@site.command("publish")
@_directory
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--name", help="What the bundle is called.  [default: the name of the directory]")
@click.option("--version", help="Its version, such as 1.4.0. A built bundle states its own.")
@click.option("--channel", default="stable", show_default=True, help="Whose hosts get it.")
@_passphrase_file
def publish(
    directory: Path,
    source: Path,
    name: str | None,
    version: str | None,
    channel: str,
    passphrase_file: Path | None,
) -> None:
    """Publish SOURCE, a bundle's directory or a built .tar.gz, in the site DIR.

    The hosts that follow the channel get this version with their next run, also when it is an older
    one: publish what was published before to go back. The contents of a version never change;
    publishing the same again does nothing.

    \b
    Example:
      puller site publish site web --version 1.4.0
      puller site publish site web-1.5.0.tar.gz --channel canary
    """
    from bundles.site import Site

    made = Site(directory)
    published = made.publish(
        source, _passphrase(passphrase_file), name=name, version=version, channel=channel
    )
    click.echo(_account(published))
    if published.changed:
        click.echo(f"Next:\n  rsync -a --delay-updates {made.public}/ www:/srv/www/puller/")


@site.command("list")
@_directory
def list_(directory: Path) -> None:
    """Show what the site DIR tells hosts to run, and how long its signatures last."""
    from bundles.site import Site

    made = Site(directory)
    releases = [
        (item.channel, item.release.bundle, item.release.version, item.sha256[:12], f"{item.size} bytes")
        for item in made.releases()
    ]
    if releases:
        _print_table(("CHANNEL", "BUNDLE", "VERSION", "SHA256", "SIZE"), releases)
    else:
        click.echo(f"{directory}: nothing is published yet")
    click.echo()
    _print_roles(made.roles())


@site.command("refresh")
@_directory
@_passphrase_file
def refresh(directory: Path, passphrase_file: Path | None) -> None:
    """Sign the metadata of the site DIR anew, before it expires.

    Always the timestamp; the rest when two thirds of its lifetime have passed. What is published stays
    the same.

    \b
    Example, daily, by cron or a systemd timer on the machine that publishes:
      puller site refresh site --passphrase-file /root/site.pass &&
        rsync -a --delay-updates site/public/ www:/srv/www/puller/
    """
    from bundles.site import Site

    made = Site(directory)
    renewal = made.refresh(_passphrase(passphrase_file))
    click.echo(f"{directory}: signed anew: {', '.join(renewal.signed)}")
    for role in renewal.due:
        click.echo(f"{directory}: {role} expires soon, and its key is not in {directory / 'keys'}", err=True)
    _print_roles(made.roles())


@site.command("verify")
@_directory
def verify(directory: Path) -> None:
    """Check everything in DIR/public as a host would: signatures, expiry, and every published file."""
    from bundles.site import Site

    made = Site(directory)
    found = made.verify()
    click.echo(f"{made.public}: {found.targets} published files, {found.size} bytes: all are as signed")
    _print_roles(found.roles)


@site.command("serve")
@_directory
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port; 0 takes a free one.",
)
def serve(directory: Path, address: str, port: int) -> None:
    """Serve DIR/public over HTTP, to try it out. Stop with Ctrl-C.

    Not for production: any web server that can serve files does that better.
    """
    from bundles.site import Site
    from bundles.webserver import open_server

    made = Site(directory)
    try:
        server = open_server(made.public, address, port)
    except OSError as error:
        raise SettingsError(f"{address}:{port}", f"cannot listen: {error.strerror}") from None
    with server:
        click.echo(f"{made.public} is at http://{address}:{server.server_port}/")
        _log_requests()
        server.serve_forever()


def _passphrase(file: Path | None) -> "Passphrase":
    """Where the passphrase of existing keys comes from; a question is asked once, for all of them."""
    asked: list[bytes] = []

    def passphrase(key: Path) -> bytes:
        if (given := _given_passphrase(file)) is not None:
            return given
        if not asked:
            asked.append(_ask(f"Passphrase of {key}", confirm=False))
        return asked[0]

    return passphrase


def _new_passphrase(file: Path | None) -> bytes:
    given = _given_passphrase(file)
    return _ask("Passphrase for the new keys", confirm=True) if given is None else given


def _given_passphrase(file: Path | None) -> bytes | None:
    """From the file, else from the environment; line ends after it do not belong to it."""
    if file is not None:
        return read_limited(file, _LONGEST_PASSPHRASE).rstrip(b"\r\n")
    return os.environb.get(_VARIABLE.encode()) or None


def _ask(question: str, *, confirm: bool) -> bytes:
    if not _is_terminal():
        what = f"is needed, and there is no terminal to ask at: use --passphrase-file or ${_VARIABLE}"
        raise KeyFileError("passphrase", what)
    answer: str = click.prompt(question, hide_input=True, confirmation_prompt=confirm, err=True)
    return answer.encode()


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _protection(passphrase: bytes | None) -> str:
    return "NOT encrypted: who can read them can publish" if passphrase is None else "encrypted"


def _lifetime(text: str) -> tuple[str, str]:
    role, equals, duration = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r}, wanted ROLE=TIME such as timestamp=2d", param_hint="--expiry")
    return role, duration


def _account(published: "Publication") -> str:
    release, channel = published.release, published.channel
    if not published.changed:
        return f"{release} is in channel {channel} already, with the same contents: nothing to do"
    before = f", was {published.before}" if published.before not in (None, release.version) else ""
    return f"{release} is in channel {channel}{before} ({published.size} bytes, sha256 {published.sha256})"


def _print_roles(roles: "list[RoleStatus]") -> None:
    rows = [
        (role.role, str(role.version), f"{role.expires:%Y-%m-%d %H:%M} UTC", _left(role.expires))
        for role in roles
    ]
    _print_table(("ROLE", "VERSION", "EXPIRES", ""), rows)


def _left(expires: datetime) -> str:
    left = expires - datetime.now(UTC)
    if left.total_seconds() < 0:
        return "has expired: puller site refresh"
    return f"in {left.days} days" if left.days > 1 else f"in {left.total_seconds() / 3600:.0f} hours"


def _print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _log_requests() -> None:
    import logging

    logger = logging.getLogger("bundles.webserver")
    logger.addHandler(logging.StreamHandler())
    logger.setLevel(logging.INFO)
