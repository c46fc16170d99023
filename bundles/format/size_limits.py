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
