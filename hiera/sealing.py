"""Bytes that are of use only to who has a certain text: what is kept of the text shows nothing of it.

A stream of keyed BLAKE2b in counter mode, whose key is a digest of the text; the bytes are compressed before. No two
texts have one key, and of one text the same is kept each time, so that no part of a stream is used for two things. Who
knows a text but for a short password can try passwords, as with any digest.
"""

from __future__ import annotations

import zlib

from hiera.keeping import DIGEST_SIZE, blake2b

_BLOCK = 64  # bytes of a digest
_LEVEL = 1  # of compression: texts of many resources repeat themselves


def names_of(text: bytes) -> tuple[bytes, bytes]:
    """The name that results of a text are found by, which anybody may know; and the key that they are sealed with."""
    both = blake2b(text, digest_size=2 * DIGEST_SIZE).digest()
    return both[:DIGEST_SIZE], both[DIGEST_SIZE:]


def seal(data: bytes, key: bytes) -> bytes:
    """The bytes that ``unseal`` makes ``data`` of, given the same key."""
    return _streamed(zlib.compress(data, _LEVEL), key)


def unseal(sealed: bytes, key: bytes) -> bytes:
    """The bytes that were sealed with this key; raises ``ValueError`` where it was another."""
    try:
        return zlib.decompress(_streamed(sealed, key))
    except zlib.error as error:
        raise ValueError("is sealed with another key") from error


def _streamed(data: bytes, key: bytes) -> bytes:
    blocks = [blake2b(b"%d" % number, key=key).digest() for number in range(-(-len(data) // _BLOCK))]
    stream = int.from_bytes(b"".join(blocks)[: len(data)], "little")
    return (int.from_bytes(data, "little") ^ stream).to_bytes(len(data), "little")
