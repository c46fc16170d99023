"""SHA-256, without the import of ``hashlib`` for small data.

``hashlib`` loads libcrypto, which takes a fortieth of a run without changes, but is up to six times as fast. It is used
for large data, and for all data if it is already imported.
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
        except ImportError:  # Python with SHA-256 from libcrypto only, as on Red Hat
            from hashlib import sha256

if TYPE_CHECKING:
    import hashlib

__all__ = ["fast_sha256", "sha256", "sha256_beginning"]

_LARGE = 64 * 1024


def sha256_beginning(first: bytes) -> "hashlib._Hash":
    """Return a digest for contents that start with ``first``. The caller adds the other pieces."""
    if len(first) < _LARGE and "hashlib" not in sys.modules:
        return sha256(first)
    digest = fast_sha256()
    digest.update(first)
    return digest


def fast_sha256() -> "hashlib._Hash":
    """Return a digest of libcrypto, for data whose size is unknown."""
    import hashlib  # 2 % of an idle run, which reads no large file

    return hashlib.sha256()
