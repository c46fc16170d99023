"""TUF metadata: the only import of python-tuf's metadata and securesystemslib's keys, and strict checks.

* The signers of securesystemslib import the library of every installed service, even if it is unused. boto3 alone takes
  longer than a publication. This module hides the libraries, so that the signers consider them *not installed*.
  ``bundles/publisher/signing_keys.py`` reloads a signer with its library when a key needs it.
* This requires that these modules are first imported here, so other modules must not import them directly
  (``tests/puller/test_imports.py``). An earlier import by another program only costs time.

Checks before python-tuf parses metadata:

* Metadata must be strict JSON with numeric numbers, so that every parser reads it alike.
* Each key counts once. python-tuf counts key *ids*, so a root or delegation that lists one key under two ids could
  reach a threshold of two with one key. Such metadata is rejected.

These checks decide nothing about trust. They raise `SignatureError`, because a publisher never signs such bytes.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from securesystemslib.exceptions import FormatError as FormatException
from securesystemslib.formats import encode_canonical
from tuf.api.exceptions import RepositoryError

from bundles.errors import FormatError, SignatureError
from foundation import strict_json

_LIBRARIES = ("azure", "boto3", "google", "hvac", "keylet", "pkcs11")


@contextmanager
def _not_found(names: tuple[str, ...]) -> Iterator[None]:
    """Prevent the import of packages within the block. Already imported packages stay."""
    hidden = [name for name in names if name not in sys.modules]
    # An entry of None makes an import raise ModuleNotFoundError (Python's reference, 5.3.1).
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


with _not_found(_LIBRARIES):
    from securesystemslib.signer import (
        SIGNER_FOR_URI_SCHEME,
        CryptoSigner,
        Key,
        Signature,
        Signer,
        SSlibKey,
    )

from tuf.api.metadata import (  # noqa: E402  it imports the signers
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Signed,
    Snapshot,
    SuccinctRoles,
    TargetFile,
    Targets,
    Timestamp,
    VerificationResult,
)

__all__ = [
    "SIGNER_FOR_URI_SCHEME",
    "SPECIFICATION",
    "CryptoSigner",
    "Delegations",
    "Key",
    "MetaFile",
    "Metadata",
    "Root",
    "SSlibKey",
    "Signature",
    "Signed",
    "Signer",
    "Snapshot",
    "SuccinctRoles",
    "TargetFile",
    "Targets",
    "Timestamp",
    "VerificationResult",
    "check_metadata",
    "digest_of",
    "hashed_path",
    "names_signatures",
    "target_path",
]

SPECIFICATION = "1"
"""Major version of the TUF specification. A later version may change the meaning of fields."""

_WHOLE_NUMBERS = ("version", "length", "threshold")


def check_metadata(data: bytes, where: str, role: str = "", delegator: Signed | None = None) -> None:
    """Raise `SignatureError` for invalid metadata, and `FormatError` for an unknown later specification.

    With a ``delegator``, the metadata must be signed for ``role`` to raise `FormatError`, which requests an upgrade.
    Otherwise anyone could write such a number into a file.
    """
    try:
        document = strict_json.load_exact(data)
    except ValueError as error:
        raise SignatureError(where, f"is not metadata: {error}") from None
    signed = document.get("signed") if isinstance(document, dict) else None
    if not isinstance(signed, dict):
        raise SignatureError(where, "is not metadata: 'signed' is missing")
    specification = signed.get("spec_version")
    if not isinstance(specification, str) or specification.partition(".")[0] != SPECIFICATION:
        result = f"follows version {str(specification)[:20]} of TUF, expected {SPECIFICATION}.x"
        if delegator is None or _is_signed(document, role, delegator):
            raise FormatError(where, f"{result}: upgrade Puller on this host")
        detail = f"{result}, and is not signed by the keys that {delegator.type} {delegator.version} requires"
        raise SignatureError(where, detail)
    for key, value in _members(document):
        if key in _WHOLE_NUMBERS and type(value) is not int:  # True == 1
            raise SignatureError(where, f"{key} is {str(value)[:40]!r}", expected="a whole number")
    _check_keys(signed.get("keys"), where)
    delegations = signed.get("delegations")
    _check_keys(delegations.get("keys") if isinstance(delegations, dict) else None, where)


def names_signatures(data: bytes) -> bool:
    """Return whether a document looks like modified metadata instead of an error message."""
    return b'"signed"' in data or b'"signatures"' in data


def _is_signed(document: dict[str, Any], role: str, delegator: Signed) -> bool:
    """Return whether enough keys of ``role`` signed a document that python-tuf cannot parse as metadata."""
    if not isinstance(delegator, Root | Targets):  # other roles have no keys
        return False
    try:
        signatures = {each["keyid"]: Signature.from_dict(dict(each)) for each in document["signatures"]}
        payload = encode_canonical(document["signed"])
        return bool(delegator.get_verification_result(role, str(payload).encode(), signatures))
    except (RepositoryError, FormatException, LookupError, TypeError, ValueError, AttributeError):
        return False


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key with its value, at any depth."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, item
            yield from _members(item)
    elif isinstance(value, list):
        for item in value:
            yield from _members(item)


def _check_keys(keys: Any, where: str) -> None:
    seen: dict[str, str] = {}
    for key_id, key in keys.items() if isinstance(keys, dict) else ():
        # Ignores scheme and spelling, because both may differ for the same key.
        public = _normalized_key(key.get("keyval") if isinstance(key, dict) else key)
        if (other := seen.setdefault(public, key_id)) != key_id:
            raise SignatureError(where, f"lists one key under two ids, {other[:12]}… and {key_id[:12]}…")


def _normalized_key(key: Any) -> str:
    """Return a key in one spelling. PEM varies in line lengths, surrounding text and compressed curve points."""
    text = str(key.get("public") if isinstance(key, dict) else key)
    if "-----BEGIN" not in text:
        return "".join(text.lower().split())

    try:
        pem_public_key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return text  # not a key: its signatures are never accepted
    return pem_public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo).hex()


# The paths of targets contain their hashes (consistent snapshots of TUF, 6.2.1).


def target_path(info: TargetFile) -> str:
    """Return the path of a target on a mirror."""
    return f"targets/{hashed_path(info)}"


def hashed_path(info: TargetFile) -> str:
    """Return a target's path with its hash in it, so that the contents of a URL never change."""
    directory, slash, name = info.path.rpartition("/")
    return f"{directory}{slash}{digest_of(info)}.{name}"


def digest_of(info: TargetFile) -> str:
    """Return the SHA-256, or another hash for repositories without SHA-256."""
    return info.hashes.get("sha256") or next(iter(info.hashes.values()))
