"""``puller site keys``, ``threshold`` and ``rotate``: the keys that may sign for a site."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bundles.errors import KeyFileError
from bundles.filesystem.output import write_output
from bundles.publisher.keys import make_key, public_pem
from foundation.problems import ProblemCode
from puller.cli.options import Decorator, text_format_option, together
from puller.cli.output import print_table, say, show
from puller.cli.publisher.key_sources import (
    NEW_KEYS_VARIABLE,
    changed_passphrase,
    key_maker,
    new_passphrase,
    role_keys,
    signer_of,
)
from puller.cli.publisher.site_options import passphrase_option, print_outcome, site_directory, uri_option

if TYPE_CHECKING:
    from bundles.publisher.roles import HeldKey

_ROLES = ("root", "targets", "snapshot", "timestamp")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_role: Decorator = click.argument("role", type=click.Choice(_ROLES), metavar="ROLE")
_threshold: Decorator = click.option(
    "--threshold", type=click.IntRange(min=1), help="From now on, so many keys of the role must sign."
)
_no_passphrase: Decorator = click.option(
    "--no-passphrase", is_flag=True, help="Store the new key unencrypted; who can read it can sign."
)
_public: Decorator = click.option(
    "--public", type=_FILE, metavar="FILE", help="Somebody else has the key; this is its public part, in PEM."
)


_new_key = together(uri_option, _public, _no_passphrase, passphrase_option)
"""Source of a new key: generated here, or ``--uri`` or ``--public``."""


@click.group("keys")
def keys() -> None:
    """Show and change who may sign for a site.

    A site has four roles. root says which keys the others have, and is best kept offline, with several
    keys; targets signs what hosts run; snapshot and timestamp keep all of it together and fresh.

    Every change is a new root. Hosts follow it by themselves, as it is signed by the keys they know. When
    the root's keys are not on this machine, the change waits: puller site root export.

    \b
    Example:
      puller site keys list site
      puller site keys add site root --public alice.pub
    """


@keys.command("list")
@site_directory
@text_format_option
def list_(directory: Path, output_format: str) -> None:
    """Show the keys of each role, how many of them must sign, and where their private parts are."""
    roles = role_keys(directory)
    if output_format == "json":
        show([_plain(key) for key in roles.held_keys()], "json")
        return
    rows = [
        (key.role, key.key_id[:12], key.scheme, key.needed, key.place or "not here")
        for key in roles.held_keys()
    ]
    print_table(("ROLE", "KEY", "TYPE", "MUST SIGN", "PRIVATE KEY"), rows)
    if (pending := roles.pending()) is not None:
        say(f"\nA change is pending, and waits for {'; '.join(pending.missing())}")
        say(f"  puller site root show {directory}")


@keys.command("add")
@site_directory
@_role
@_threshold
@_new_key
def add(
    directory: Path,
    role: str,
    threshold: int | None,
    uri: str | None,
    public: Path | None,
    no_passphrase: bool,
    passphrase_file: Path | None,
) -> None:
    """Let one more key sign for ROLE: a new one, made here, or one that is elsewhere.

    \b
    Example:
      puller site keys add site timestamp
      puller site keys add site targets --uri 'hsm:2?label=publisher' --threshold 2
      puller site keys add site root --public alice.pub
    """
    roles = role_keys(directory, passphrase_file)
    key = key_maker(roles, uri, public, no_passphrase, passphrase_file)()
    print_outcome(directory, roles.add(role, key, threshold))


@keys.command("remove")
@site_directory
@click.argument("key")
@click.option("--role", type=click.Choice(_ROLES), help="When several roles have keys that begin so.")
@_threshold
@passphrase_option
def remove(
    directory: Path, key: str, role: str | None, threshold: int | None, passphrase_file: Path | None
) -> None:
    """Take KEY, the start of a key's id, away from its role. Hosts then no longer accept what it signs.

    \b
    Example:
      puller site keys remove site 0d3a
    """
    print_outcome(directory, role_keys(directory, passphrase_file).remove(key, role, threshold))


@keys.command("passphrase")
@site_directory
@click.option(
    "--new-passphrase-file",
    type=_FILE,
    help=f"Read the new passphrase from this file.  [default: ${NEW_KEYS_VARIABLE}, else a question]",
)
@click.option("--no-passphrase", is_flag=True, help="Store the keys unencrypted from now on.")
@passphrase_option
def passphrase(
    directory: Path, new_passphrase_file: Path | None, no_passphrase: bool, passphrase_file: Path | None
) -> None:
    """Encrypt the key files of the site with a new passphrase.

    Copies of the old files still open with the old one: when that has become known, rotate the keys.

    \b
    Example:
      puller site keys passphrase site
      puller site keys passphrase site --passphrase-file old.pass --new-passphrase-file new.pass
    """
    if no_passphrase and new_passphrase_file is not None:
        raise click.UsageError("--no-passphrase and --new-passphrase-file exclude each other")
    roles = role_keys(directory, passphrase_file)
    changed = roles.change_passphrase(None if no_passphrase else changed_passphrase(new_passphrase_file))
    for path in changed:
        say(f"{path}: written with the new passphrase" if not no_passphrase else f"{path}: NOT encrypted")
    if not changed:
        say(f"{roles.site.keys}: all key files have this passphrase already: nothing to do")


@keys.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@_no_passphrase
@passphrase_option
def new(file: Path, no_passphrase: bool, passphrase_file: Path | None) -> None:
    """Make a key in FILE, away from any site, and its public part in FILE.pub.

    For somebody who is to sign for a site from a machine of their own. The publisher needs only the
    public part: puller site keys add SITE root --public FILE.pub.

    \b
    Example:
      puller site keys new alice.pem
    """
    if file == _public_file(file):
        raise KeyFileError(
            str(file),
            "is the name for the public part",
            code=ProblemCode.INVALID_NAME,
            expected="another such as FILE.pem",
        )
    for path in (file, _public_file(file)):
        if path.exists():
            raise KeyFileError(
                str(path), "exists, and keys are never written over", code=ProblemCode.UNWRITABLE_OUTPUT
            )
    made = make_key(None if no_passphrase else new_passphrase(passphrase_file))
    write_output(file, made.contents or b"", mode=0o600)
    write_output(_public_file(file), public_pem(made.public))
    say(f"{file}: a new key, {made.public.keyid}; keep it, and a copy, where only you get at it")
    say(f"{_public_file(file)}: its public part, for the publisher")


@keys.command("public")
@click.option("--key", "file", type=_FILE, metavar="FILE", help="The file of a private key.")
@uri_option
@passphrase_option
def public(file: Path | None, uri: str | None, passphrase_file: Path | None) -> None:
    """Print the public part of a key, for puller site keys add --public.

    \b
    Example:
      puller site keys public --uri 'hsm:2?label=alice' > alice.pub
    """
    say(public_pem(signer_of(file, uri, passphrase_file).public_key).decode(), nl=False)


@click.command("threshold")
@site_directory
@_role
@click.argument("number", type=click.IntRange(min=1))
@passphrase_option
def threshold(directory: Path, role: str, number: int, passphrase_file: Path | None) -> None:
    """Say that NUMBER keys of ROLE must sign.

    \b
    Example:
      puller site threshold site root 2
    """
    print_outcome(directory, role_keys(directory, passphrase_file).set_threshold(role, number))


@click.command("rotate")
@site_directory
@_role
@click.option("--key", metavar="KEY", help="Replace only the key whose id begins so.")
@_new_key
def rotate(
    directory: Path,
    role: str,
    key: str | None,
    uri: str | None,
    public: Path | None,
    no_passphrase: bool,
    passphrase_file: Path | None,
) -> None:
    """Replace the keys of ROLE by new ones, and sign anew what they signed.

    Hosts follow by themselves. The files of the old keys are kept in DIR/keys/retired.

    \b
    Example:
      puller site rotate site timestamp
      puller site rotate site root --key 0d3a --public bob.pub
    """
    roles = role_keys(directory, passphrase_file)
    if key is None and (uri or public) and sum(one.role == role for one in roles.held_keys()) > 1:
        raise click.UsageError(f"{role} has several keys: say with --key which one is replaced")
    make = key_maker(roles, uri, public, no_passphrase, passphrase_file)
    print_outcome(directory, roles.rotate(role, make, key))


def _public_file(file: Path) -> Path:
    return file.with_suffix(".pub")


def _plain(key: "HeldKey") -> dict[str, Any]:
    return {
        "role": key.role,
        "key": key.key_id,
        "type": key.scheme,
        "must_sign": key.needed,
        "private_key": key.place,
    }
