"""The bytes of an archive in order, from a file or inflated from gzip, in exact portions.

No more than a piece is held in memory, and what comes out is counted against the limits before it is handed on.
"""

import zlib
from collections.abc import Iterator
from typing import BinaryIO

from bundles.errors import FormatError
from bundles.filesystem.trees import pieces_of
from bundles.format.paths import shown
from puller.resources.archives.limits import Budget

_COMPRESSED = 64 * 1024
_PIECE = 256 * 1024
_GZIP = b"\x1f\x8b"


class ArchiveSource:
    """Reads ``pieces`` in portions; ``place`` is what is being read, for messages. Raises ``FormatError``."""

    def __init__(self, pieces: Iterator[bytes], budget: Budget) -> None:
        self.place = ""
        self._pieces = pieces
        self._budget = budget
        self._ready = b""
        self._at = 0

    def read(self, count: int) -> bytes:
        """Exactly ``count`` bytes, which should not be many."""
        while len(self._ready) - self._at < count:
            if not (piece := self._next()):
                raise FormatError(self.place, "the archive is cut off here")
            self._ready, self._at = self._ready[self._at :] + piece, 0
        self._at += count
        return self._ready[self._at - count : self._at]

    def pieces(self, count: int) -> Iterator[bytes]:
        """Exactly ``count`` bytes."""
        while count:
            if self._at == len(self._ready):
                self._ready, self._at = self._next(), 0
            portion = min(count, max(1, len(self._ready) - self._at))
            yield self.read(portion)
            count -= portion

    def rest(self) -> Iterator[bytes]:
        """All that is left."""
        yield self._ready[self._at :]
        while piece := self._next():
            yield piece

    def _next(self) -> bytes:
        piece = next(self._pieces, b"")
        self._budget.take(len(piece))
        return piece


def plain(stream: BinaryIO) -> Iterator[bytes]:
    """The bytes of a file as they are."""
    return pieces_of(stream)


def inflated(stream: BinaryIO) -> Iterator[bytes]:
    """The contents of a gzip file: of all its members, as gzip reads them. Raises ``FormatError``."""
    data = stream.read(_COMPRESSED)
    while True:
        if not data.startswith(_GZIP):
            raise FormatError("", f"is not gzip: {shown(data[:8])} stands where {_GZIP.hex(' ')} should")
        inflate = zlib.decompressobj(wbits=31)  # checks length and CRC-32 at the end of a member
        while not inflate.eof:
            data = data or stream.read(_COMPRESSED)
            if not data:
                raise FormatError("", "is cut off: its compressed data has no end")
            try:
                piece = inflate.decompress(data, _PIECE)
            except zlib.error as error:
                raise FormatError("", f"its compressed data is damaged: {error}") from None
            data = inflate.unconsumed_tail
            if piece:
                yield piece
        data = inflate.unused_data + stream.read(_COMPRESSED)
        if not data:
            return
