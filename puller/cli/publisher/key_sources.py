"""Keys, passphrases and PINs for the commands of ``puller site``.

* Passphrases of key files and PINs of hardware tokens come from a file, else from the environment, else from a
  prompt.
* Line ends after the secret in a file are removed.
* Prompts require a terminal. A command prompts once for all key files, and once for each token.
"""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from bundles.errors import KeyFileError
from bundles.filesystem.atomic import read_limited
from bundles.publisher.keys import (
    NewKey,
    Passphrase,
    Signer,
    import_key,
    is_encrypted,
    load_public_key,
    load_signer,
    make_key,
    open_token,
    token_key,
)
from bundles.publisher.roles import RoleKeys
from bundles.publisher.site import Site

# Passphrases and PINs.

KEYS_VARIABLE = "PULLER_PASSPHRASE"
NEW_KEYS_VARIABLE = "PULLER_NEW_PASSPHRASE"
PIN_VARIABLE = "PULLER_PIN"
PIN_FILE = "puller.pin_file"
"""Key of ``click.Context.meta`` with the value of ``--pin-file``, because tokens are opened far from command
parameters.
"""

_LONGEST = 64 * 1024
"""Maximum bytes of a file with a secret."""


def passphrase_of_keys(file: Path | None) -> Passphrase:
    """Return a function that returns the passphrase of an existing key. It prompts once for all keys.

    Each token has its own PIN. The function raises ``KeyFileError`` if a prompt is impossible.
    """
    requested: list[bytes] = []
    pins: dict[Path, bytes] = {}

    def passphrase(key: Path) -> bytes:
        if key.suffix == ".uri":  # the file of a token contains only the location of the key
            if key not in pins:
                pins[key] = pin_of(str(key))
            return pins[key]
        if (provided := _given(file, KEYS_VARIABLE)) is not None:
            return provided
        if not requested:
            requested.append(_ask_passphrase(f"Passphrase of {key}", confirm=False))
        return requested[0]

    return passphrase


def new_passphrase(file: Path | None) -> bytes:
    """Return the passphrase for new keys. Raises ``KeyFileError`` if a prompt is impossible."""
    provided = _given(file, KEYS_VARIABLE)
    return _ask_passphrase("Passphrase for the new keys", confirm=True) if provided is None else provided


def changed_passphrase(file: Path | None) -> bytes:
    """Return the new passphrase of existing keys. Raises ``KeyFileError`` if a prompt is impossible."""
    if (provided := _given(file, NEW_KEYS_VARIABLE)) is not None:
        return provided
    sources = f"--new-passphrase-file or ${NEW_KEYS_VARIABLE}"
    return _ask("New passphrase of the keys", "new passphrase", sources, confirm=True)


def pin_of(token: str) -> bytes:
    """Return the PIN of a hardware token. The prompt names its URI or its file."""
    if (provided := _given(click.get_current_context().meta.get(PIN_FILE), PIN_VARIABLE)) is not None:
        return provided
    return _ask(f"PIN for {token}", "PIN", f"--pin-file or ${PIN_VARIABLE}", confirm=False)


def is_terminal() -> bool:
    """Return whether a prompt is possible."""
    return sys.stdin.isatty()


def _given(file: Path | None, variable: str) -> bytes | None:
    if file is not None:
        return read_limited(file, _LONGEST).rstrip(b"\r\n")
    # As bytes, because a passphrase need not be text in the encoding of this locale.
    return os.environb.get(variable.encode()) or None


def _ask_passphrase(question: str, *, confirm: bool) -> bytes:
    return _ask(question, "passphrase", f"--passphrase-file or ${KEYS_VARIABLE}", confirm=confirm)


def _ask(question: str, description: str, sources: str, *, confirm: bool) -> bytes:
    """Prompt at the terminal. Without a terminal, raise ``KeyFileError`` with the alternative ``sources``."""
    if not is_terminal():
        raise KeyFileError(description, f"is required, and there is no terminal for a prompt: use {sources}")
    # On stderr, because stdout may be a file: `puller site keys public > alice.pub`.
    answer: str = click.prompt(question, hide_input=True, confirmation_prompt=confirm, err=True)
    return answer.encode()


def role_keys(directory: Path, passphrase_file: Path | None = None) -> "RoleKeys":
    """Return the roles of a site with their keys. The options provide the passphrase."""
    return RoleKeys(Site(directory), passphrase_of_keys(passphrase_file))


def key_maker(
    roles: "RoleKeys", uri: str | None, public: Path | None, no_passphrase: bool, passphrase_file: Path | None
) -> Callable[[], NewKey]:
    """Return the function that makes or fetches a new key, according to the options. Raises ``click.UsageError``."""
    if sum((uri is not None, public is not None, no_passphrase)) > 1:
        raise click.UsageError("--uri, --public and --no-passphrase exclude each other")
    if uri is not None:
        return lambda: token_key(uri, _pin_once(uri))
    if public is not None:
        return lambda: load_public_key(public)
    passphrase = None if no_passphrase else _shared_passphrase(roles, passphrase_file)
    return lambda: make_key(passphrase)


def _shared_passphrase(roles: "RoleKeys", passphrase_file: Path | None) -> bytes:
    """Return the passphrase of the existing keys, so that one passphrase opens all.

    Raises ``KeyFileError`` if it is wrong.
    """
    encrypted = [path for path in sorted(roles.site.keys.glob("*.pem")) if is_encrypted(path)]
    if not encrypted:
        return new_passphrase(passphrase_file)
    load_signer(encrypted[0], roles.passphrase)
    return roles.passphrase(encrypted[0])


def signer_of(file: Path | None, uri: str | None, passphrase_file: Path | None) -> Signer:
    """Return the signer of ``--key`` or ``--uri``. Raises ``click.UsageError`` unless exactly one is given."""
    if file is not None and uri is None:
        return load_signer(file, passphrase_of_keys(passphrase_file))
    if uri is None or file is not None:
        raise click.UsageError("expected one of --key and --uri")
    pin = _pin_once(uri)
    return open_token(*import_key(uri, pin), pin)


def _pin_once(uri: str) -> "Callable[[], bytes]":
    # The PIN is needed twice, to find a key in a token and to open it. One prompt is enough.
    return functools.cache(functools.partial(pin_of, uri))
