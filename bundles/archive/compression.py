"""Deterministic gzip compression on all processors.

* Blocks of 256 KiB are compressed in parallel. The end of each block is the dictionary of the next block, so the
  result is almost as small as that of a single pass.
* Data that does not shrink, such as pictures, packages and encrypted files, is stored uncompressed in the same
  stream. Compressing a gigabyte of such data takes half a minute and saves nothing.
* The same pieces always give the same bytes. Time, machine and number of processors have no influence.
* Every inflate implementation can read the result: RFC 1951 allows a different kind of block at each block boundary.
"""

import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from bundles.archive.canonical_tar import GZIP_HEADER

# Threads are enough for the parallel work: C code such as zlib releases the interpreter lock.

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def side_by_side(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield the results of ``work`` for each of ``items``, in order. An error is raised in place of its result.

    Only a few items are processed ahead, so that memory use is bounded.
    """
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) < 2:  # not worth a thread
        yield from map(work, first)
        return
    threads = len(os.sched_getaffinity(0))
    begun: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in chain(first, items):
                begun.append(pool.submit(work, item))
                if len(begun) > 2 * threads:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for each in begun:
                each.cancel()


_LEVEL = 7
"""Compared with level 9: 0.1 to 0.6 % more bytes in half the time, for Python, HTML and ELF."""
_RAW = -15
_BLOCK = 256 * 1024
_WINDOW = 32 * 1024
"""The largest distance of a reference in deflate."""
_SMALLEST = 4096
"""Bytes. Compressing less data takes little time, and storing it would interrupt the block before it."""
_SAMPLES = 4
_SAMPLE = 1024
_SMALLEST_SAMPLE = 256
_PART = 64
"""The reciprocal of a sample's share of its piece. Larger samples would slow down many small texts by up to 10 %."""
_SHRINKS = 0.97
"""Samples that compress to a larger ratio are stored. Typical ratios: text 0.2 to 0.6, base64 0.77."""
_MOST_STORED = 65535
_MORE_STORED = b"\0"


def gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield one gzip member. The header of the ``gzip`` module depends on the versions of Python and zlib."""
    checksum = length = 0

    def counted() -> Iterator[bytes]:
        nonlocal checksum, length
        for piece in pieces:
            checksum = zlib.crc32(piece, checksum)
            length += len(piece)
            yield piece

    yield GZIP_HEADER
    yield from deflated(counted())
    yield checksum.to_bytes(4, "little") + (length % 2**32).to_bytes(4, "little")


class _Block(NamedTuple):
    """A part of a stream. ``before`` is the end of the data compressed before it, for references."""

    data: bytes
    before: bytes = b""
    is_stored: bool = False
    is_last: bool = False


def deflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Compress ``pieces`` to one raw deflate stream. Pieces that do not shrink are stored."""
    return side_by_side(_written, _blocks(pieces))


def _blocks(pieces: Iterable[bytes]) -> Iterator[_Block]:
    together: list[bytes] = []
    size, before = 0, b""
    for piece in pieces:
        is_stored = not shrinks(piece)
        if together and (is_stored or size >= _BLOCK):
            data = b"".join(together)
            yield _Block(data, before)
            together, size, before = [], 0, data[-_WINDOW:]
        if is_stored:
            yield _Block(piece, is_stored=True)
            before = b""  # nothing refers to stored data
        else:
            together.append(piece)
            size += len(piece)
    yield _Block(b"".join(together), before, is_last=True)


def _written(block: _Block) -> bytes:
    if block.is_stored:
        return _stored(block.data)
    deflate = zlib.compressobj(level=_LEVEL, wbits=_RAW, zdict=block.before)
    # A flush ends at a byte boundary, where the next block can follow.
    return deflate.compress(block.data) + deflate.flush(zlib.Z_FINISH if block.is_last else zlib.Z_SYNC_FLUSH)


def shrinks(piece: bytes) -> bool:
    """Return whether ``piece`` is worth compressing, estimated from a few samples."""
    if len(piece) < _SMALLEST:
        return True
    size = min(_SAMPLE, max(_SMALLEST_SAMPLE, len(piece) // _PART))
    step = (len(piece) - size) // (_SAMPLES - 1)
    sample = b"".join(piece[start : start + size] for start in range(0, step * _SAMPLES, step))
    return len(zlib.compress(sample, level=1)) < len(sample) * _SHRINKS


def _stored(piece: bytes) -> bytes:
    """Return stored blocks (RFC 1951, 3.2.4), none of them marked as the last block."""
    parts = []
    for start in range(0, len(piece), _MOST_STORED):
        block = piece[start : start + _MOST_STORED]
        length = len(block)
        parts += [_MORE_STORED, length.to_bytes(2, "little"), (length ^ 0xFFFF).to_bytes(2, "little"), block]
    return b"".join(parts)
