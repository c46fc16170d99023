"""Signing keys that cannot be exported: hardware tokens, and the key services of clouds and of Vault.

* The signers of securesystemslib do the communication. A URI names the key. Their further dependencies are extras, and
  an error names a missing extra.
* Each library is imported when a key needs it. `bundles.format.tuf` prevents earlier imports.
* Every error of a token, a service or a library becomes a `TokenError`.
"""

import sys
from collections.abc import Callable
from functools import cache
from importlib import reload
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from securesystemslib.exceptions import UnsupportedLibraryError

from bundles.errors import TokenError, reason_of
from bundles.format.tuf import SIGNER_FOR_URI_SCHEME, Key, Signer
from foundation.extras import how_to_install
from foundation.problems import ProblemCode

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
