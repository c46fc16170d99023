"""One file of a bundle as a site has it: a gzip file, under the SHA-256 of what it holds.

* Every version, and every bundle, that has the same file has it there. ``bundle.json`` is such a file, too.
* How it was compressed is nobody's promise. What counts is what comes out: as many bytes as were signed for, of the
  SHA-256 that was signed for, and not a byte more is ever inflated.
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
    """Where a site has the file with this SHA-256, below ``targets/``."""
    return f"files/{sha256[:2]}/{sha256}.gz"


def longest_compressed(size: int) -> int:
    """Bytes that a gzip file of ``size`` bytes may have: what does not shrink is stored in it, in blocks."""
    return size + size // 1000 + 1000


def inflated(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """The ``size`` bytes that a gzip file of one member holds; raises `FormatError` when there are more or fewer."""
    inflate, left = zlib.decompressobj(wbits=_GZIP), size
    while not inflate.eof:
        piece = _next(inflate, stream, min(left + 1, _PIECE))
        left -= len(piece)
        if left < 0:
            raise FormatError("", f"holds more than the {size} bytes that were signed for")
        yield piece
    if left:
        raise FormatError("", f"holds {size - left} bytes, {size} were signed for")
    if inflate.unused_data or stream.read(1):
        raise FormatError("", "has bytes after the end of the gzip member")


def verified(stream: BinaryIO, digest: Digest) -> Iterator[bytes]:
    """The contents of a gzip file in pieces, none of which is known to be right before all have come.

    Raises `FormatError` when it is not what ``digest`` says.
    """
    contents = hashlib.sha256()
    for piece in inflated(stream, digest.length):
        contents.update(piece)
        yield piece
    if (found := contents.hexdigest()) != digest.sha256:
        raise FormatError("", f"holds what has the sha256 {found}, {digest.sha256} was signed for")


def verify(data: bytes | BinaryIO, digest: Digest) -> None:
    """Raises `FormatError` when a gzip file does not hold what ``digest`` says."""
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    stream.seek(0)
    for _ in verified(stream, digest):
        pass


def read_verified(path: Path, digest: Digest) -> bytes:
    """The contents of a gzip file that are not large; raises `FormatError` and ``OSError``."""
    with open_regular(path) as stream:
        return b"".join(verified(stream, digest))


def _next(inflate: "zlib._Decompress", stream: BinaryIO, most: int) -> bytes:
    compressed = inflate.unconsumed_tail or stream.read(_COMPRESSED)
    if not compressed:
        raise FormatError("", "is cut off")
    try:
        # At most so much: what a few bytes expand to would otherwise be in memory before it is counted.
        return inflate.decompress(compressed, most)
    except zlib.error as error:
        raise FormatError("", f"the compressed data is damaged: {error}") from None
