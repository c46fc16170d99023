"""Bytes that are of use only to who has a certain text: what is kept of the text shows nothing of it.

A stream of keyed BLAKE2b in counter mode; the bytes are compressed before. The key is a digest of the text. That of the
stream is made of it and of a digest of the bytes, which stands in front of them: so no part of a stream is used for two
things, and damage is noticed. Who knows a text but for a short password can try passwords, as with any digest.
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
    packed = zlib.compress(data, _LEVEL)
    mark = blake2b(packed, key=key, digest_size=DIGEST_SIZE).digest()
    return mark + _streamed(packed, key, mark)


def unseal(sealed: bytes, key: bytes) -> bytes:
    """The bytes that were sealed with this key; raises ``ValueError`` where it was another, or they are damaged."""
    mark, rest = sealed[:DIGEST_SIZE], sealed[DIGEST_SIZE:]
    packed = _streamed(rest, key, mark)
    if blake2b(packed, key=key, digest_size=DIGEST_SIZE).digest() != mark:
        raise ValueError("is sealed with another key, or damaged")
    return zlib.decompress(packed)


def _streamed(data: bytes, key: bytes, mark: bytes) -> bytes:
    own = blake2b(mark, key=key).digest()
    blocks = [blake2b(b"%d" % number, key=own).digest() for number in range(-(-len(data) // _BLOCK))]
    stream = int.from_bytes(b"".join(blocks)[: len(data)], "little")
    return (int.from_bytes(data, "little") ^ stream).to_bytes(len(data), "little")
