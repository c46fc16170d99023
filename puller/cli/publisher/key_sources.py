"""The keys that a command works with, as its options say: those of a site, a new one, the one that signs."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bundles.publisher.keys import is_encrypted, load_public_key, load_signer, make_key, token_key
from bundles.publisher.roles import RoleKeys
from bundles.publisher.site import Site
from bundles.publisher.tokens import import_key, open_token
from puller.cli.publisher.secrets import new_passphrase, passphrase_of_keys, pin_of

if TYPE_CHECKING:
    from bundles.publisher.keys import NewKey, Signer


def role_keys(directory: Path, passphrase_file: Path | None = None) -> "RoleKeys":
    """The roles of a site with their keys, to be opened with the passphrase that the options say."""
    return RoleKeys(Site(directory), passphrase_of_keys(passphrase_file))


def key_maker(
    roles: "RoleKeys", uri: str | None, public: Path | None, no_passphrase: bool, passphrase_file: Path | None
) -> "Callable[[], NewKey]":
    """The function that makes or fetches a new key, as the options say; raises ``click.UsageError``."""
    if sum((uri is not None, public is not None, no_passphrase)) > 1:
        raise click.UsageError("only one of --uri, --public and --no-passphrase may be given")
    if uri is not None:
        return lambda: token_key(uri, _pin_once(uri))
    if public is not None:
        return lambda: load_public_key(public)
    passphrase = None if no_passphrase else _shared_passphrase(roles, passphrase_file)
    return lambda: make_key(passphrase)


def _shared_passphrase(roles: "RoleKeys", passphrase_file: Path | None) -> bytes:
    """The passphrase of the keys that are there: one question opens them all.

    Raises ``KeyFileError`` when it is wrong.
    """
    encrypted = [path for path in sorted(roles.site.keys.glob("*.pem")) if is_encrypted(path)]
    if not encrypted:
        return new_passphrase(passphrase_file)
    load_signer(encrypted[0], roles.passphrase)
    return roles.passphrase(encrypted[0])


def signer_of(file: Path | None, uri: str | None, passphrase_file: Path | None) -> "Signer":
    """The signer with the key that ``--key`` or ``--uri`` names; raises ``click.UsageError`` unless one does."""
    if file is not None and uri is None:
        return load_signer(file, passphrase_of_keys(passphrase_file))
    if uri is None or file is not None:
        raise click.UsageError("wanted one of --key and --uri")
    pin = _pin_once(uri)
    return open_token(*import_key(uri, pin), pin)


def _pin_once(uri: str) -> "Callable[[], bytes]":
    # Keys in a token are found with the PIN, and then opened with it: one question is enough.
    return functools.cache(functools.partial(pin_of, uri))
