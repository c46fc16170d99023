"""Bins: how the targets of a site are divided, so that a host reads those of its own bundles only.

* They are TUF's succinct hashed bins (TAP 15): the first bits of the SHA-256 of a target's path say which bin has it.
* Each is signed by the keys that the *root* gives to the targets, as well as by those that the targets delegate to: a
  key that the root takes away signs no bin any more, whatever older targets say.
* Each says in its signed part which bin it is. TUF does not write a role's name into its metadata, so that whoever has
  the keys of snapshot and timestamp could otherwise pass one bin off as another.
"""

import re

from bundles.digests import sha256

PREFIX = "bin"
BITS = 6
"""64 bins: with 1,000 bundles each has 31 targets in 5 KB, and all of them are 8 KB in the snapshot."""

NAME = "x-puller-bin"
"""The field of a bin that says its name."""

_FILE = rf"{PREFIX}-[0-9a-f]{{1,8}}\.json"


def bin_of(path: str, bits: int = BITS) -> str:
    """The name of the bin that has the target ``path``, among two to the power of ``bits``."""
    first = int.from_bytes(sha256(path.encode()).digest()[:4], "big") >> (32 - bits)
    return f"{PREFIX}-{first:0{(bits + 3) // 4}x}"


def is_bin_file(name: str) -> bool:
    """Whether a file is that of a bin, by its name among the trusted metadata of a host."""
    return re.fullmatch(_FILE, name) is not None
