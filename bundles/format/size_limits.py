"""Sizes of the files of a site: their limits, and compressed files.

Size limits of bundles and of a site's metadata.

* Publishers and hosts use the same limits, so that every published bundle can be read and unpacked.
* The sizes in a bundle are known before its first file is written: ``bundle.json`` comes first and lists every size.

A single file of a bundle on a site: a gzip file, named by the SHA-256 of its contents.

* All versions and bundles with this file share it. ``bundle.json`` is stored in the same way.
* The compression is unsigned. The uncompressed data must have the signed length and SHA-256, and is never inflated
  beyond that length.
"""

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from bundles.digests import fast_sha256
from bundles.errors import FormatError
from bundles.filesystem.trees import open_regular
from bundles.format.index import Digest
from foundation.problems import ProblemCode

if TYPE_CHECKING:
    from bundles.format.description import BundleDescription


MIB = 1024 * 1024


class Limits(msgspec.Struct, frozen=True):
    """Upper limits. Sizes are bytes."""

    archive: int = 1024 * MIB
    """Size of the compressed archive."""
    size: int = 4096 * MIB
    """Total size of all files."""
    description: int = 8 * MIB
    """Size of ``bundle.json``, which is kept in memory."""
    ratio: int = 200
    """Ratio of files to archive. Text compresses five to ten times. The maximum of deflate is 1030."""
    ratio_from: int = 64 * MIB
    """Up to this total size, any ratio is accepted: a large empty log is not an attack."""

    def check_archive(self, size: int) -> None:
        """Raise ``FormatError`` with size and limit for an archive that is too large."""
        _at_most("", size, self.archive)

    def check_description(self, size: int) -> None:
        """Raise ``FormatError`` for a ``bundle.json`` that is too large."""
        _at_most("bundle.json", size, self.description)

    def check_files(self, description: "BundleDescription") -> None:
        """Raise ``FormatError`` for files that are too large together."""
        _at_most("files", description.size, self.size)

    def check_ratio(self, description: "BundleDescription", archive: int) -> None:
        """Raise ``FormatError`` for files too large for an archive of ``archive`` bytes: a decompression bomb."""
        if description.size > self.ratio_from and description.size > archive * self.ratio:
            detail = (
                f"{description.size} bytes from {archive}, at most {self.ratio} times as many are allowed"
            )
            raise FormatError("files", detail, code=ProblemCode.UNPACKABLE_FILE)


LIMITS = Limits()

LARGEST_METADATA: Final = MappingProxyType(
    {"root": 512_000, "timestamp": 16_384, "snapshot": 2_000_000, "targets": 4_000_000}
)
"""Bytes by role. Each bin may be as large as the targets. 64 bins of four million bytes hold 800,000 bundles."""

LARGEST_STORED: Final = max(LARGEST_METADATA.values())
"""Bytes. The largest file from a site, except for archives."""

LARGEST_SITE_DATA: Final = LARGEST_STORED
"""Bytes of one document, enough for the addresses of 40,000 hosts."""

LARGEST_INDEX: Final = 1_000_000
"""Bytes, enough for 3,000 versions of one bundle."""

LARGEST_HISTORY: Final = 32_000_000
"""Bytes, enough for 50,000 publications of one bundle."""


def _at_most(where: str, value: int, limit: int) -> None:
    if value > limit:
        raise FormatError(where, f"{value} bytes, at most {limit} are allowed")


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
    contents = fast_sha256()
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
