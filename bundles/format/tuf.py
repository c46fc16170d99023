"""The only import of python-tuf's metadata and securesystemslib's keys, without libraries of tokens and key services.

* The signers of securesystemslib import the library of every installed service, even if it is unused. boto3 alone takes
  longer than a publication. This module hides the libraries, so that the signers consider them *not installed*.
  ``bundles/publisher/keys.py`` reloads a signer with its library when a key needs it.
* This requires that these modules are first imported here, so other modules must not import them directly
  (``tests/puller/test_imports.py``). An earlier import by another program only costs time.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
]
