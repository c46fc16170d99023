"""A single file of a bundle on a site: a gzip file, named by the SHA-256 of its contents.

* All versions and bundles with this file share it. ``bundle.json`` is stored in the same way.
* The compression is unsigned. The uncompressed data must have the signed length and SHA-256, and is never inflated
  beyond that length.
"""

import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bundles.errors import FormatError
from bundles.filesystem.trees import open_regular
from bundles.format.index import Digest

_COMPRESSED = 64 * 1024
_PIECE = 256 * 1024
_GZIP = 31


def file_path(sha256: str) -> str:
    """Return the path of the file with this SHA-256, below ``targets/`` of a site."""
    return f"files/{sha256[:2]}/{sha256}.gz"


def longest_compressed(size: int) -> int:
    """Return the largest valid size of a gzip file for ``size`` bytes. Incompressible data is stored in blocks."""
    return size + size // 1000 + 1000


def inflated(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """Inflate a gzip file of one member with ``size`` bytes. Raises `FormatError` for another size."""
    inflate, remaining = zlib.decompressobj(wbits=_GZIP), size
    while not inflate.eof:
        piece = _next(inflate, stream, min(remaining + 1, _PIECE))
        remaining -= len(piece)
        if remaining < 0:
            raise FormatError("", f"contains more than the signed length of {size} bytes")
        yield piece
    if remaining:
        raise FormatError(
            "", f"contains {size - remaining} bytes, expected the signed length of {size} bytes"
        )
    if inflate.unused_data or stream.read(1):
        raise FormatError("", "has bytes after the end of the gzip member")


def verified(stream: BinaryIO, digest: Digest) -> Iterator[bytes]:
    """Yield the contents of a gzip file in pieces. They are unverified until the iteration ends.

    Raises `FormatError` if the contents do not match ``digest``.
    """
    contents = hashlib.sha256()
    for piece in inflated(stream, digest.length):
        contents.update(piece)
        yield piece
    if (result := contents.hexdigest()) != digest.sha256:
        raise FormatError("", f"sha256 of the content is {result}, expected the signed {digest.sha256}")


def verify(data: bytes | BinaryIO, digest: Digest) -> None:
    """Raise `FormatError` if the contents of a gzip file do not match ``digest``."""
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    stream.seek(0)
    for _ in verified(stream, digest):
        pass


def read_verified(path: Path, digest: Digest) -> bytes:
    """Return the contents of a small gzip file. Raises `FormatError` and ``OSError``."""
    with open_regular(path) as stream:
        return b"".join(verified(stream, digest))


def _next(inflate: "zlib._Decompress", stream: BinaryIO, most: int) -> bytes:
    compressed = inflate.unconsumed_tail or stream.read(_COMPRESSED)
    if not compressed:
        raise FormatError("", "is truncated")
    try:
        # Limited, because a few bytes can expand to more data than fits into memory.
        return inflate.decompress(compressed, most)
    except zlib.error as error:
        raise FormatError("", f"the compressed data is damaged: {error}") from None
