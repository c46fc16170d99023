"""SHA-256 of what is small: of metadata, lists and names.

Importing ``hashlib`` takes a fortieth of a run that finds nothing to do: it loads libcrypto, which is several times
as fast with what is large, and used for files and archives.
"""

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

__all__ = ["sha256"]
