"""How much may come out of an archive, counted while it is read.

* A declared size is never believed: what is counted is what comes out, headers and padding included.
* Nothing beyond a limit is written.
"""

import msgspec

from bundles.errors import FormatError

MIB = 1024 * 1024
GIB = 1024 * MIB


class Limits(msgspec.Struct, frozen=True):
    """Upper bounds; sizes are bytes."""

    archive: int = 8 * GIB
    """The file that is downloaded."""
    size: int = 32 * GIB
    """All that comes out of it."""
    entries: int = 500_000
    """Files, directories and links."""
    directory: int = 256 * MIB
    """The table of contents of a zip, which is held in memory."""
    ratio: int = 200
    """Out of it to its own size. Text compresses five to ten times; what deflate can do at most is 1030."""
    ratio_from: int = 64 * MIB
    """So much may come out at any ratio: one large empty file is no bomb."""


LIMITS = Limits()


class Budget:
    """The rest of the limits, for one archive of ``archive_size`` bytes. Methods raise ``FormatError``."""

    def __init__(self, limits: Limits, archive_size: int) -> None:
        self._limits = limits
        self._archive_size = archive_size
        self._entries = 0
        self._size = 0

    def take_entry(self) -> None:
        self._entries += 1
        if self._entries > self._limits.entries:
            raise FormatError("", f"holds more than {self._limits.entries} files, directories and links")

    def take(self, count: int) -> None:
        self._size += count
        limits = self._limits
        if self._size > limits.size:
            raise FormatError("", f"holds more than {limits.size} bytes")
        if self._size > limits.ratio_from and self._size > self._archive_size * limits.ratio:
            what = f"holds more than {limits.ratio} times its own {self._archive_size} bytes"
            raise FormatError("", what)
