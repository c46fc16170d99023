"""Signing keys of a site: Ed25519, each in a PEM file of its own.

* A private key is encrypted with a passphrase (PKCS #8), or its owner said in so many words that it is not.
* Key files are for their owner alone: mode 0600 in a directory of mode 0700. A key that is not encrypted and
  open to others is not used.
* The name of a file, ``<role>-<start of the key id>.pem``, says which key is in it without opening it.

`cryptography` encrypts with AES-256 under PBKDF2 of 2,048 rounds, and offers no choice: whoever gets
hold of a file can try many passphrases a second, so a long one is needed. A file written anew with more
rounds, by ``openssl pkcs8 -topk8 -iter 600000``, is read as well.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from securesystemslib.signer import CryptoSigner, Signer

from bundles.errors import KeyFileError
from bundles.files import read_limited, write_file

__all__ = ["Passphrase", "Signer", "generate_key", "key_file", "load_signer", "save_key"]

Passphrase = Callable[[Path], bytes]
"""Asked for the passphrase of one key file, and only when that file is encrypted."""

_LONGEST_KEY_FILE = 64 * 1024
_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_SHOWN_ID = 12
_LONGEST_PASSPHRASE = 1023  # OpenSSL's limit


def generate_key(directory: Path, role: str, passphrase: bytes | None) -> Signer:
    """Make a new key for ``role`` and write it to ``directory``; raises `KeyFileError` and ``OSError``."""
    key = Ed25519PrivateKey.generate()
    signer = CryptoSigner(key)
    save_key(key_file(directory, role, signer.public_key.keyid), key, passphrase)
    return signer


def key_file(directory: Path, role: str, key_id: str) -> Path:
    """Where the private key of ``role`` with this id is kept."""
    return directory / f"{role}-{key_id[:_SHOWN_ID]}.pem"


def save_key(path: Path, key: Ed25519PrivateKey, passphrase: bytes | None) -> None:
    """Write a private key; encrypted, unless ``passphrase`` is ``None``."""
    _check_passphrase(path, passphrase)
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption), mode=0o600)


def _check_passphrase(path: Path, passphrase: bytes | None) -> None:
    if passphrase == b"":
        raise KeyFileError(str(path), "the passphrase is empty, wanted one or none at all")
    if passphrase is not None and len(passphrase) > _LONGEST_PASSPHRASE:
        raise KeyFileError(str(path), f"the passphrase has more than {_LONGEST_PASSPHRASE} bytes")


def load_signer(path: Path, passphrase: Passphrase) -> Signer:
    """Read a private key; raises `KeyFileError`: unreadable, open to others, wrong passphrase, wrong type."""
    pem = _read(path)
    encrypted = _ENCRYPTED in pem
    if not encrypted:
        _check_is_private(path)
    try:
        key = load_pem_private_key(pem, passphrase(path) if encrypted else None)
    except (ValueError, TypeError):
        wrong = "the passphrase is wrong" if encrypted else "is not a private key in PEM form"
        raise KeyFileError(str(path), wrong) from None
    if not isinstance(key, Ed25519PrivateKey):
        kind = type(key).__name__.removesuffix("PrivateKey")
        raise KeyFileError(str(path), f"is a key of type {kind}, wanted Ed25519")
    return CryptoSigner(key)


def _read(path: Path) -> bytes:
    try:
        return read_limited(path, _LONGEST_KEY_FILE)
    except OSError as error:
        raise KeyFileError(str(path), error.strerror or str(error)) from error
    except ValueError:
        raise KeyFileError(str(path), f"is no key file: it has more than {_LONGEST_KEY_FILE} bytes") from None


def _check_is_private(path: Path) -> None:
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o077:
        raise KeyFileError(
            str(path), f"is not encrypted, and its mode is {mode:04o}, wanted 0600: chmod 600 {path}"
        )
