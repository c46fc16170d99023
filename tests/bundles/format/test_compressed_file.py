"""Compressed files of a site, named by the SHA-256 of their contents: inflation stops at the signed length."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles.archive.pack import gzipped
from bundles.errors import FormatError
from bundles.format.index import Digest
from bundles.format.size_limits import longest_compressed, verified, verify
from tests.support.rows import each_row


def digest_of(data: bytes) -> Digest:
    return Digest(len(data), hashlib.sha256(data).hexdigest())


def compressed(data: bytes, piece: int = 256 * 1024) -> bytes:
    return b"".join(gzipped(data[at : at + piece] for at in range(0, len(data), piece)))


def read(file: bytes, digest: Digest) -> bytes:
    return b"".join(verified(io.BytesIO(file), digest))


@given(st.binary(max_size=10_000) | st.integers(0, 600_000).map(lambda n: b"line\n" * n))
def test_compressed_file_round_trip(data: bytes) -> None:
    assert read(compressed(data), digest_of(data)) == data


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 70_000, 3_000_001])
def test_incompressible_file_stays_below_the_limit_of_hosts(size: int) -> None:
    noise = random.Random(size).randbytes(size)
    file = compressed(noise)
    assert len(file) <= longest_compressed(size)
    assert read(file, digest_of(noise)) == noise


DATA = b"ServerName example.org\n" * 100
OTHER = b"ServerName example.net\n" * 100


@each_row(
    ("file", "message"),
    [
        (compressed(OTHER), "sha256 of the content is "),
        (compressed(DATA + b"x"), "contains more than the signed length of 2300 bytes"),
        (compressed(DATA[:-1]), "contains 2299 bytes, expected the signed length of 2300 bytes"),
        (compressed(DATA)[:-1], "is truncated"),
        (compressed(DATA)[:20], "is truncated"),
        (b"", "is truncated"),
        (DATA, "the compressed data is damaged: "),
        (compressed(DATA)[:-5] + b"\0" + compressed(DATA)[-4:], "the compressed data is damaged: "),
        (compressed(DATA) + compressed(DATA), "has bytes after the end of the gzip member"),
        (compressed(DATA) + b"\0", "has bytes after the end of the gzip member"),
    ],
)
def test_a_lie_is_named(file: bytes, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        verify(file, digest_of(DATA))
    assert caught.value.what.startswith(message)


@given(st.integers(0, len(compressed(DATA)) - 1), st.integers(1, 255))
def test_flipped_byte_never_changes_the_output(at: int, change: int) -> None:
    file = bytearray(compressed(DATA))
    file[at] ^= change
    try:
        result = read(bytes(file), digest_of(DATA))
    except FormatError:
        return
    assert result == DATA  # the change is in a field of the header that does not affect the contents


def test_a_bomb_is_left_after_the_length_that_was_signed_for() -> None:
    bomb = gzip.compress(bytes(30_000_000), compresslevel=1)
    tracemalloc.start()
    with pytest.raises(FormatError, match="contains more than the signed length of 2300 bytes"):
        verify(bomb, digest_of(DATA))
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
