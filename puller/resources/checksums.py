"""SHA-256 checksums: computation, validation in manifests, and a short form for people."""

import re
from collections.abc import Iterable, Iterator

from bundles.format.identity import SHA256
from puller.errors import ChangedMeanwhile
from puller.resources.base import PropertyError


def sha256(chunks: Iterable[bytes]) -> str:
    """Return the digest of all pieces together, in hexadecimal."""
    import hashlib  # slow to import because of OpenSSL, and not needed for a comparison of bytes

    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def verified(chunks: Iterable[bytes], digest: str, path: str) -> Iterator[bytes]:
    """Yield ``chunks`` of the file at ``path``. Raises ``ChangedMeanwhile`` at the end if SHA-256 is not ``digest``."""
    import hashlib

    actual = hashlib.sha256()
    for chunk in chunks:
        actual.update(chunk)
        yield chunk
    if actual.hexdigest() != digest:
        raise ChangedMeanwhile(f"{path}: was written to by somebody else while Puller copied it")


def short(digest: str) -> str:
    """Return the beginning of a checksum, which names a content to people."""
    return digest[:8]


def check_sha256(name: str, checksum: str) -> Iterator[PropertyError]:
    """Yield an error if a property ``name`` is not a SHA-256 in the lower-case form of digests."""
    if not re.fullmatch(SHA256, checksum):
        yield PropertyError(name, f"is {checksum!r}", expected="64 lower-case hexadecimal digits (SHA-256)")
