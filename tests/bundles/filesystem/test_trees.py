"""Size and SHA-256 of the pieces of a file."""

import hashlib

import pytest

from bundles.filesystem.trees import Counted


@pytest.mark.parametrize(
    "pieces", [[], [b""], [b"a"], [b"", b"a", b"", b"b"], [b"x" * 70_000, b"y"], [b"y", b"x" * 70_000]]
)
def test_size_and_sha256_do_not_depend_on_the_pieces(pieces: list[bytes]) -> None:
    counted = Counted(pieces)
    assert list(counted) == pieces
    text = b"".join(pieces)
    assert (counted.size, counted.sha256) == (len(text), hashlib.sha256(text).hexdigest())
