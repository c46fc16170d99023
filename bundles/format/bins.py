"""Bins: the parts into which the targets of a site are divided, so that a host reads only the bins of its bundles.

* They are TUF's succinct hashed bins (TAP 15): the first bits of the SHA-256 of a target's path select its bin.
* Each bin must be signed with the keys that the *root* assigns to the targets, and with the keys of the delegation. A
  key that the root revokes can therefore no longer sign bins, even if old targets delegate to it.
* The signed part of each bin contains its own name. TUF metadata does not contain the name of a role. An attacker with
  the keys of snapshot and timestamp could otherwise replace a bin by another one.
* Runs without a new release import this module, so it does not import python-tuf.
"""

import re

from bundles.digests import sha256

BIN_PREFIX = "bin"
BIN_BITS = 6
"""64 bins: with 1,000 bundles, each bin has 31 targets in 5 KB, and the snapshot has 8 KB for all of them."""

BIN_NAME = "x-puller-bin"
"""The field of a bin with its own name."""

_FILE = rf"{BIN_PREFIX}-[0-9a-f]{{1,8}}\.json"


def bin_of(path: str, bits: int = BIN_BITS) -> str:
    """Return the name of the bin for the target ``path``, among two to the power of ``bits``."""
    first = int.from_bytes(sha256(path.encode()).digest()[:4], "big") >> (32 - bits)
    return f"{BIN_PREFIX}-{first:0{(bits + 3) // 4}x}"


def is_bin_file(name: str) -> bool:
    """Return whether a file of trusted metadata is a bin, by its name."""
    return re.fullmatch(_FILE, name) is not None
