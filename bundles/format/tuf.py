"""The one door to python-tuf's metadata and securesystemslib's keys: without the libraries of tokens and key services.

* securesystemslib's signers import the library of each service that is installed, used or not: boto3 alone takes
  longer than a publication. They are not found meanwhile, which the signers take for *not installed*;
  ``bundles/publisher/tokens.py`` loads a signer anew, with its library, when a key wants it.
* That holds when these modules are imported here first, so nothing else imports them by their own names
  (``tests/puller/test_imports.py``). What came before, in somebody else's program, costs time and nothing else.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_LIBRARIES = ("azure", "boto3", "google", "hvac", "keylet", "pkcs11")


@contextmanager
def _not_found(names: tuple[str, ...]) -> Iterator[None]:
    """Packages that cannot be imported for now; those that have been stay."""
    hidden = [name for name in names if name not in sys.modules]
    # What is None there is not looked for (Python's reference, 5.3.1), and the import raises ModuleNotFoundError.
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
