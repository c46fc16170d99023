"""Passphrases of key files and PINs of hardware tokens: from a file, else from the environment, else asked for.

* Line ends behind a secret in a file do not belong to it.
* A question is asked at a terminal only, once for all key files and once for each token.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bundles.errors import KeyFileError
from bundles.filesystem.atomic import read_limited

if TYPE_CHECKING:
    from bundles.publisher.keys import Passphrase

KEYS_VARIABLE = "PULLER_PASSPHRASE"
NEW_KEYS_VARIABLE = "PULLER_NEW_PASSPHRASE"
PIN_VARIABLE = "PULLER_PIN"
PIN_FILE = "puller.pin_file"
"""Where ``click.Context.meta`` has the value of ``--pin-file``: a token is opened far from any command's parameters."""

_LONGEST = 64 * 1024
"""Bytes of a file with a secret."""


def passphrase_of_keys(file: Path | None) -> "Passphrase":
    """The function that gives the passphrase of an existing key; a question is asked once, for all of them.

    Each token has a PIN of its own. The function raises ``KeyFileError`` when there is nobody to ask.
    """
    asked: list[bytes] = []
    pins: dict[Path, bytes] = {}

    def passphrase(key: Path) -> bytes:
        if key.suffix == ".uri":  # the file of a token says only where the key is
            if key not in pins:
                pins[key] = pin_of(str(key))
            return pins[key]
        if (given := _given(file, KEYS_VARIABLE)) is not None:
            return given
        if not asked:
            asked.append(_ask_passphrase(f"Passphrase of {key}", confirm=False))
        return asked[0]

    return passphrase


def new_passphrase(file: Path | None) -> bytes:
    """The passphrase for keys that are about to be made; raises ``KeyFileError`` when there is nobody to ask."""
    given = _given(file, KEYS_VARIABLE)
    return _ask_passphrase("Passphrase for the new keys", confirm=True) if given is None else given


def changed_passphrase(file: Path | None) -> bytes:
    """The passphrase that replaces the present one; raises ``KeyFileError`` when there is nobody to ask."""
    if (given := _given(file, NEW_KEYS_VARIABLE)) is not None:
        return given
    sources = f"--new-passphrase-file or ${NEW_KEYS_VARIABLE}"
    return _ask("New passphrase of the keys", "new passphrase", sources, confirm=True)


def pin_of(token: str) -> bytes:
    """The PIN of a hardware token, which the question names by its URI or its file."""
    if (given := _given(click.get_current_context().meta.get(PIN_FILE), PIN_VARIABLE)) is not None:
        return given
    return _ask(f"PIN for {token}", "PIN", f"--pin-file or ${PIN_VARIABLE}", confirm=False)


def is_terminal() -> bool:
    """Whether somebody may be asked."""
    return sys.stdin.isatty()


def _given(file: Path | None, variable: str) -> bytes | None:
    if file is not None:
        return read_limited(file, _LONGEST).rstrip(b"\r\n")
    # As bytes: a passphrase need not be text in the encoding of this locale.
    return os.environb.get(variable.encode()) or None


def _ask_passphrase(question: str, *, confirm: bool) -> bytes:
    return _ask(question, "passphrase", f"--passphrase-file or ${KEYS_VARIABLE}", confirm=confirm)


def _ask(question: str, what: str, sources: str, *, confirm: bool) -> bytes:
    """Ask at the terminal; raises ``KeyFileError`` that names the other ``sources`` when there is none."""
    if not is_terminal():
        raise KeyFileError(what, f"is needed, and there is no terminal to ask at: use {sources}")
    # On stderr: stdout may be a file, as `puller site keys public > alice.pub` makes it.
    answer: str = click.prompt(question, hide_input=True, confirmation_prompt=confirm, err=True)
    return answer.encode()
