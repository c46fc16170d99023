"""Files of bundles, fetched one by one, for what this host has the rest of.

* A file is known by its length and SHA-256, which a description says; how long it is compressed nobody signs, so that
  is bounded, and what comes out of it is bounded by the length.
* What is in place was verified, and stays there for the next attempt; whoever makes use of it compares it again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuf.api.exceptions import LengthOrHashMismatchError

from bundles.client.targets import explained, fetch_target
from bundles.errors import FormatError
from bundles.format.artifact import Digest
from bundles.format.compressed_file import file_path, longest_compressed, verify
from bundles.format.tuf import TargetFile
from bundles.transport.mirror import Mirror


class CompressedFile(TargetFile):
    """A file as the target that it would be: its length is the most that it may have."""

    def __init__(self, digest: Digest) -> None:
        path = file_path(digest.sha256)
        super().__init__(longest_compressed(digest.length), {"sha256": digest.sha256}, path)
        self._digest = digest

    def verify_length_and_hashes(self, data: Any) -> None:
        """Raises ``LengthOrHashMismatchError`` for a file that does not hold what was signed for."""
        try:
            verify(data, self._digest)
        except FormatError as error:
            raise LengthOrHashMismatchError(error.what) from None


def fetch_file(digest: Digest, destination: Path, check: Callable[[], None], mirror: Mirror) -> None:
    """Place a file, compressed, at ``destination``, whose directory is made; raises as ``fetch_target``."""
    with explained(destination):
        destination.parent.mkdir(mode=0o700, exist_ok=True)
    path = f"targets/{file_path(digest.sha256)}"
    fetch_target(mirror, CompressedFile(digest), path, destination, check, is_exact=False)
