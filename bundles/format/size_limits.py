"""Size limits of bundles and of a site's metadata.

* Publishers and hosts use the same limits, so that every published bundle can be read and unpacked.
* The sizes in a bundle are known before its first file is written: ``bundle.json`` comes first and lists every size.
"""

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from bundles.errors import FormatError
from foundation.problems import ProblemCode

if TYPE_CHECKING:
    from bundles.format.description import BundleDescription


MIB = 1024 * 1024


class Limits(msgspec.Struct, frozen=True):
    """Upper bounds; sizes are bytes."""

    archive: int = 1024 * MIB
    """The compressed archive."""
    size: int = 4096 * MIB
    """All files together."""
    description: int = 8 * MIB
    """``bundle.json``, which is held in memory."""
    ratio: int = 200
    """Files to archive. Text compresses five to ten times; what deflate can do at most is 1030."""
    ratio_from: int = 64 * MIB
    """Files of this size together may have any ratio: one large empty log is no bomb."""

    def check_archive(self, size: int) -> None:
        """Raises ``FormatError``, as all of these do, with the value and the limit."""
        _at_most("", size, self.archive)

    def check_description(self, size: int) -> None:
        """Raises ``FormatError`` for a ``bundle.json`` of too many bytes."""
        _at_most("bundle.json", size, self.description)

    def check_files(self, description: "BundleDescription") -> None:
        """Raises ``FormatError`` for files of too many bytes together."""
        _at_most("files", description.size, self.size)

    def check_ratio(self, description: "BundleDescription", archive: int) -> None:
        """Raises ``FormatError`` for files that are larger than ``archive`` bytes can honestly hold: a bomb."""
        if description.size > self.ratio_from and description.size > archive * self.ratio:
            what = f"{description.size} bytes from {archive}, at most {self.ratio} times as many are allowed"
            raise FormatError("files", what, code=ProblemCode.UNPACKABLE_FILE)


LIMITS = Limits()

LARGEST_METADATA: Final = MappingProxyType(
    {"root": 512_000, "timestamp": 16_384, "snapshot": 2_000_000, "targets": 4_000_000}
)
"""Bytes, by role; each bin may be as large as the targets. Four million in each of 64 are 800,000 bundles."""

LARGEST_STORED: Final = max(LARGEST_METADATA.values())
"""Bytes; nothing that was accepted from a site, archives aside, is larger."""

LARGEST_SITE_DATA: Final = LARGEST_STORED
"""Bytes of one document; the addresses of 40,000 hosts."""

LARGEST_INDEX: Final = 1_000_000
"""Bytes; 3,000 versions of one bundle."""

LARGEST_HISTORY: Final = 32_000_000
"""Bytes; 50,000 publications of one bundle."""


def _at_most(where: str, value: int, limit: int) -> None:
    if value > limit:
        raise FormatError(where, f"{value} bytes, at most {limit} are allowed")
