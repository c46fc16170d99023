"""Signing keys of a site: the files in ``keys/``, and signing with files, tokens and key services.

::

    <role>-<start of the key id>.pem    an Ed25519 private key, encrypted with a passphrase (PKCS #8)
    <role>-<start of the key id>.uri    the location of the private key in a hardware token or key service

* Private keys are encrypted unless the owner explicitly chose otherwise.
* The files have mode 0600 in a directory of mode 0700. An unencrypted key that other users can read is rejected.
* The file name identifies the key without opening the file. A key that does not match its file name is rejected.
* `Keyring` requests the passphrase or PIN of a key once. It verifies each new signature at once, because otherwise
  hosts would be the first to detect an invalid one.

`cryptography` encrypts with AES-256 and PBKDF2 with 2,048 rounds, and this number is fixed. A thief of a file can try
many passphrases a second, so use a long passphrase. A file converted to more rounds with ``openssl pkcs8 -topk8 -iter
600000`` works as well.

Tokens and key services do not export their keys:

* The signers of securesystemslib do the communication. A URI names the key. Their further dependencies are extras, and
  an error names a missing extra.
* Each library is imported when a key needs it. `bundles.format.tuf` prevents earlier imports.
* Every error of a token, a service or a library becomes a `TokenError`.
"""

import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import reload
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.exceptions import UnsupportedLibraryError, UnverifiedSignatureError
from tuf.api.exceptions import UnsignedMetadataError

from bundles.errors import KeyFileError, TokenError, reason_of
from bundles.filesystem.atomic import read_limited, write_file
from bundles.format.tuf import SIGNER_FOR_URI_SCHEME, CryptoSigner, Key, Metadata, Root, Signer, SSlibKey
from foundation.extras import how_to_install
from foundation.problems import ProblemCode

__all__ = [
    "NewKey",
    "Passphrase",
    "Signer",
    "change_passphrase",
    "find_key_file",
    "generate_key",
    "is_encrypted",
    "key_file",
    "load_public_key",
    "load_signer",
    "load_uri",
    "make_key",
    "open_key",
    "public_pem",
    "shown_id",
    "token_key",
]

Passphrase = Callable[[Path], bytes]
"""Returns the secret for a key file: the passphrase of an encrypted ``.pem``, or the PIN of the token that a ``.uri``
names.
"""

PEM, URI = ".pem", ".uri"

_LONGEST_KEY_FILE = 64 * 1024
_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_SHOWN_ID = 12
_LONGEST_PASSPHRASE = 1023  # OpenSSL's limit


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key for a role.

    ``signer`` and ``contents`` (of the file with this ``suffix``) are ``None`` if another person holds the private key.
    """

    public: Key
    signer: Signer | None = None
    contents: bytes | None = None
    suffix: str = PEM

    def save(self, directory: Path, role: str) -> None:
        """Write the file of the key into ``directory``. Raises ``OSError``."""
        if self.contents is None:
            return
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # `write_file` creates the file with this mode, so that other users can never read it.
        write_file(key_file(directory, role, self.public.keyid, self.suffix), self.contents, mode=0o600)


def make_key(passphrase: bytes | None) -> NewKey:
    """Return a new Ed25519 key in memory. If ``passphrase`` is ``None``, its file will not be encrypted."""
    return _made(passphrase)[1]


def token_key(uri: str, pin: Callable[[], bytes]) -> NewKey:
    """Return a key that stays in the token or key service at ``uri``. Raises `TokenError`."""
    result, public = import_key(uri, pin)
    return NewKey(public, open_token(result, public, pin), f"{result}\n".encode(), URI)


def generate_key(directory: Path, role: str, passphrase: bytes | None) -> Signer:
    """Create a key for ``role`` and write it to ``directory``. Raises `KeyFileError` and ``OSError``."""
    signer, made = _made(passphrase)
    made.save(directory, role)
    return signer


def _made(passphrase: bytes | None) -> tuple[Signer, NewKey]:
    key = Ed25519PrivateKey.generate()
    signer = CryptoSigner(key)
    return signer, NewKey(signer.public_key, signer, _pem(key, passphrase))


def key_file(directory: Path, role: str, key_id: str, suffix: str = PEM) -> Path:
    """Return the path of the private key of ``role`` with this id, or of its URI."""
    return directory / f"{role}-{shown_id(key_id)}{suffix}"


def shown_id(key_id: str) -> str:
    """Return the start of a key id, which is enough to distinguish the keys of a site."""
    return key_id[:_SHOWN_ID]


def find_key_file(directory: Path, role: str, key_id: str) -> Path | None:
    """Return the file of a private key, or ``None`` if another person holds it."""
    places = (key_file(directory, role, key_id, suffix) for suffix in (PEM, URI))
    return next((place for place in places if place.exists()), None)


def open_key(path: Path, public: Key, passphrase: Passphrase) -> Signer:
    """Return the signer for the key ``public`` from the file ``path``. Raises `KeyFileError`."""
    if path.suffix == URI:
        return open_token(load_uri(path), public, lambda: passphrase(path))
    signer = load_signer(path, passphrase)
    if signer.public_key.keyid != public.keyid:
        raise KeyFileError(
            str(path), f"contains the key {signer.public_key.keyid}", expected=f"{public.keyid}"
        )
    return signer


def load_signer(path: Path, passphrase: Passphrase) -> Signer:
    """Read a private key. Raises `KeyFileError`: unreadable, readable by others, wrong passphrase, wrong type."""
    return CryptoSigner(_load_private(path, passphrase))


def load_uri(path: Path) -> str:
    """Read the URI of a key from its file. Raises `KeyFileError`."""
    try:
        return _read(path).decode("ascii").strip()
    except UnicodeDecodeError:
        raise KeyFileError(
            str(path), "is not the URI of a key, because it contains characters outside ASCII"
        ) from None


def load_public_key(path: Path) -> NewKey:
    """Read the public key of another person from PEM. Raises `KeyFileError`."""
    try:
        return NewKey(SSlibKey.from_crypto(load_pem_public_key(_read(path))))
    except (ValueError, UnsupportedAlgorithm):
        expected = "a public key in PEM form: Ed25519, ECDSA on P-256, P-384 or P-521, or RSA"
        raise KeyFileError(str(path), "is not a supported public key", expected=expected) from None


def public_pem(key: Key) -> bytes:
    """Return the public key in the form that `load_public_key` reads."""
    text: str = key.keyval["public"]
    if text.startswith("-----BEGIN"):
        return text.encode()

    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def is_encrypted(path: Path) -> bool:
    """Return whether a key file needs a passphrase. Raises `KeyFileError`."""
    return path.suffix == PEM and _ENCRYPTED in _read(path)


def change_passphrase(path: Path, old: Passphrase, new: bytes | None) -> bytes | None:
    """Return a key file encrypted with ``new``, not yet written. ``None`` if ``new`` already opens it.

    Raises `KeyFileError` if neither passphrase opens it.
    """
    if _is_opened_by(path, new):
        return None
    return _pem(_load_private(path, old), new)


def _is_opened_by(path: Path, passphrase: bytes | None) -> bool:
    if passphrase is None or not is_encrypted(path):
        return passphrase is None and not is_encrypted(path)
    try:
        _load_private(path, lambda _: passphrase)
    except KeyFileError:
        return False
    return True


def _load_private(path: Path, passphrase: Passphrase) -> Ed25519PrivateKey:
    pem = _read(path)
    encrypted = _ENCRYPTED in pem
    if not encrypted:  # an encrypted file is protected by its passphrase
        _check_is_private(path)
    try:
        key = load_pem_private_key(pem, passphrase(path) if encrypted else None)
    except (ValueError, TypeError):
        wrong = "the passphrase is wrong" if encrypted else "is not a private key in PEM form"
        raise KeyFileError(str(path), wrong) from None
    if not isinstance(key, Ed25519PrivateKey):
        kind = type(key).__name__.removesuffix("PrivateKey")
        raise KeyFileError(str(path), f"is a key of type {kind}", expected="Ed25519")
    return key


def _pem(key: Ed25519PrivateKey, passphrase: bytes | None) -> bytes:
    _check_passphrase(passphrase)
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def _check_passphrase(passphrase: bytes | None) -> None:
    if passphrase == b"":
        raise KeyFileError("", "the passphrase is empty", expected="a passphrase, or an unencrypted key")
    if passphrase is not None and len(passphrase) > _LONGEST_PASSPHRASE:
        raise KeyFileError("", f"the passphrase has more than {_LONGEST_PASSPHRASE} bytes")


def _read(path: Path) -> bytes:
    try:
        return read_limited(path, _LONGEST_KEY_FILE)
    except OSError as error:
        raise KeyFileError(str(path), error.strerror or str(error)) from error
    except ValueError:
        raise KeyFileError(
            str(path), f"is not a key file: it has more than {_LONGEST_KEY_FILE} bytes"
        ) from None


def _check_is_private(path: Path) -> None:
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o077:
        raise KeyFileError(
            str(path),
            f"is not encrypted, and its mode is {mode:04o}, expected 0600",
            hint=f"run chmod 600 {path}",
        )


# Signing.


class Keyring:
    """The available private keys of a site. Requests the passphrase of each key once."""

    def __init__(self, directory: Path, passphrase: Passphrase) -> None:
        self.directory = directory
        self._passphrase = passphrase
        self._signers: dict[str, Signer] = {}

    def add(self, key: NewKey) -> None:
        """Add a key that has no file yet."""
        if key.signer is not None:
            self._signers[key.public.keyid] = key.signer

    def holds(self, role: str, root: Root) -> bool:
        """Return whether enough keys are available to sign for ``role``."""
        return len(self._here(role, root)) >= root.roles[role].threshold

    def sign(self, metadata: Metadata[Any], role: str, root: Root) -> None:
        """Sign with the keys of ``role``. Raises `KeyFileError` for missing or unusable keys.

        An unreachable token is only an error if the other keys are not enough.
        """
        self.check_holds(role, root)
        failures = self.sign_as_far_as_possible(metadata, role, root)
        if failures and not is_verified(metadata, root):
            raise failures[0]

    def check_holds(self, role: str, root: Root) -> None:
        """Raise `KeyFileError` if too few keys are available to sign for ``role``."""
        here, threshold = self._here(role, root), root.roles[role].threshold
        if len(here) < threshold:
            expected = ", ".join(
                key_file(self.directory, role, key_id).name for key_id in root.roles[role].keyids
            )
            detail = f"contains {len(here)} of the {threshold} keys required to sign for {role}, expected {expected}"
            raise KeyFileError(str(self.directory), detail)

    def sign_as_far_as_possible(self, metadata: Metadata[Any], role: str, root: Root) -> list[TokenError]:
        """Sign with all available keys of ``role``. Returns the errors of tokens.

        Raises `KeyFileError` for an unusable key file.
        """
        failures: list[TokenError] = []
        for key_id in self._here(role, root):
            if key_id in metadata.signatures:  # request each PIN once only
                continue
            try:
                signer = self._signer(role, root, key_id)
                sign_with(metadata, signer, str(find_key_file(self.directory, role, key_id) or "a new key"))
            except TokenError as error:
                failures.append(error)
        return failures

    def _here(self, role: str, root: Root) -> list[str]:
        return [
            key_id
            for key_id in root.roles[role].keyids
            if key_id in self._signers or find_key_file(self.directory, role, key_id)
        ]

    def _signer(self, role: str, root: Root, key_id: str) -> Signer:
        if key_id not in self._signers:
            path = find_key_file(self.directory, role, key_id) or key_file(self.directory, role, key_id)
            self._signers[key_id] = open_key(path, root.get_key(key_id), self._passphrase)
        return self._signers[key_id]


def sign_with(metadata: Metadata[Any], signer: Signer, where: str) -> None:
    """Add one signature, and verify it. Raises `TokenError`, and `KeyFileError` if the PIN is missing."""
    try:
        signature = metadata.sign(signer, append=True)
        # A token may hold another key by now. Without this check, hosts would be the first to detect it.
        signer.public_key.verify_signature(signature, metadata.signed_bytes)
    except UnsignedMetadataError as error:
        cause = error.__cause__ or error
        if isinstance(cause, KeyFileError):
            raise cause from None
        raise TokenError(where, f"cannot sign: {reason_of(cause)}") from error
    except UnverifiedSignatureError:
        del metadata.signatures[signer.public_key.keyid]
        detail = f"signs with another key than {signer.public_key.keyid} of the site"
        raise TokenError(where, detail) from None


def is_verified(metadata: Metadata[Any], root: Root) -> bool:
    """Return whether enough keys of its role have signed metadata. Bins have the role of the targets."""
    role = metadata.signed.type
    return bool(root.get_verification_result(role, metadata.signed_bytes, metadata.signatures))


Pin = Callable[[], bytes]
"""Returns the PIN of a token. Called if the token requires it."""

_Imported = tuple[str, Key]


class _Scheme(NamedTuple):
    extra: str
    form: str
    find: Callable[[str, Pin], _Imported]
    """Returns the complete URI and the public key. May raise any error."""


def import_key(uri: str, pin: Pin) -> _Imported:
    """Return the complete URI and its public key. Raises `TokenError`."""
    scheme = _scheme(uri)
    try:
        return scheme.find(uri, pin)
    except Exception as error:  # these libraries have no common base class for errors
        raise _explained(uri, scheme, error) from error


def open_token(uri: str, public: Key, pin: Pin) -> Signer:
    """Return the signer for ``public`` with the key at ``uri``. Raises `TokenError`."""
    scheme = _scheme(uri)
    try:
        signer_of(uri.partition(":")[0])
        return Signer.from_priv_key_uri(uri, public, lambda _: pin().decode())
    except Exception as error:
        raise _explained(uri, scheme, error) from error


@cache
def signer_of(scheme: str) -> Any:
    """Return the signer for URIs of ``scheme``, reloaded with its library."""
    known: Any = SIGNER_FOR_URI_SCHEME[scheme]
    signer = getattr(reload(sys.modules[known.__module__]), known.__name__)
    SIGNER_FOR_URI_SCHEME[scheme] = signer
    return signer


def _scheme(uri: str) -> _Scheme:
    name = uri.partition(":")[0]
    if name not in _SCHEMES:
        forms = ", ".join(scheme.form for scheme in _SCHEMES.values())
        raise TokenError(uri, "is not the URI of a signing key", expected=f"one of {forms}")
    return _SCHEMES[name]


def _explained(uri: str, scheme: _Scheme, error: Exception) -> TokenError:
    if isinstance(error, TokenError):
        return error
    if isinstance(error, UnsupportedLibraryError):
        return TokenError(
            uri,
            f"requires a library that is not installed ({error}). {how_to_install(scheme.extra)}",
            code=ProblemCode.MISSING_DEPENDENCY,
        )
    return TokenError(uri, f"cannot be used as a key: {reason_of(error)} (the format is {scheme.form})")


def _in_token(uri: str, pin: Pin) -> _Imported:
    url_parts = urlsplit(uri)
    number = int(url_parts.path) if url_parts.path else None
    label = dict(parse_qsl(url_parts.query)).get("label")
    imported: _Imported = signer_of("hsm").import_(number, label, lambda _: pin().decode())
    return imported


def _in_aws(uri: str, _: Pin) -> _Imported:
    imported: _Imported = signer_of("awskms").import_(uri.partition(":")[2])
    return imported


def _in_google(uri: str, _: Pin) -> _Imported:
    imported: _Imported = signer_of("gcpkms").import_(uri.partition(":")[2])
    return imported


def _in_azure(uri: str, _: Pin) -> _Imported:
    url_parts = urlsplit(uri)
    name, *version = url_parts.path.removeprefix("/keys/").split("/")
    return _same_version(
        uri, version, signer_of("azurekms").import_(url_parts.netloc.partition(".")[0], name)
    )


def _in_vault(uri: str, _: Pin) -> _Imported:
    name, *version = uri.partition(":")[2].split("/")
    return _same_version(uri, version, signer_of("hv").import_(name))


def _same_version(uri: str, version: list[str], imported: _Imported) -> _Imported:
    """Require the newest version of a key, because both services only return that version."""
    newest = imported[0].rpartition("/")[2]
    if version not in ([], [newest]):
        raise TokenError(uri, f"has a newer version, {newest}", hint="add the newest version of the key")
    return imported


_SCHEMES = {
    "hsm": _Scheme("hsm", "hsm:2?label=TOKEN", _in_token),
    "awskms": _Scheme("awskms", "awskms:KEY_ID", _in_aws),
    "gcpkms": _Scheme(
        "gcpkms",
        "gcpkms:projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/V",
        _in_google,
    ),
    "azurekms": _Scheme("azurekms", "azurekms://VAULT.vault.azure.net/keys/KEY/VERSION", _in_azure),
    "hv": _Scheme("vault", "hv:KEY/VERSION", _in_vault),
}
