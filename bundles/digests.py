"""SHA-256, without importing ``hashlib`` where that does not pay.

It loads libcrypto, which takes a fortieth of a run that finds nothing to do, and is up to six times as fast: so it is
for what is large, and for all where it is there anyway.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256  # Python 3.12 and newer
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:  # a Python that has it of libcrypto alone, as Red Hat's
            from hashlib import sha256

if TYPE_CHECKING:
    import hashlib

__all__ = ["sha256", "sha256_beginning"]

_LARGE = 64 * 1024


def sha256_beginning(first: bytes) -> "hashlib._Hash":
    """The digest of contents whose ``first`` piece this is, to be updated with the others."""
    if len(first) < _LARGE and "hashlib" not in sys.modules:
        return sha256(first)
    import hashlib

    return hashlib.sha256(first)
