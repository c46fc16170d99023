"""Assembly of a new version from files of stored bundles and downloads.

* Stored files are untrusted: each file is compared with its SHA-256 while it is copied.
* Files of unreadable bundles are not used.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from bundles.archive.unpack import Fetched, Parts, Source, Unpacked
from bundles.errors import FormatError
from bundles.format.description import BundleDescription, FileEntry, worth_asking_for
from bundles.format.index import Artifact, Digest
from bundles.format.size_limits import LIMITS
from bundles.store.contents import read_description

REQUEST = 16 * 1024
"""Cost of one more request in bytes. Requests are sequential, and a line of 10 Mbit/s with a round trip of 13 ms
transfers this much of the archive in that time.
"""


def is_promising(artifact: Artifact) -> bool:
    """Return whether to fetch the description. Not for an archive that is only slightly larger.

    Raises ``FormatError`` for a description above its size limit.
    """
    LIMITS.check_description(artifact.description.length)
    return _cost(artifact.description.length, 1) < artifact.archive.length


class Assembly:
    """The bundle of ``artifact`` with a verified ``description``, on a machine with bundles in ``directories``.

    Raises ``FormatError`` for an invalid description.
    """

    def __init__(self, artifact: Artifact, description: bytes, directories: Iterable[Path]) -> None:
        self._artifact = artifact
        self._description = description
        self._files = BundleDescription.parse(description)
        self._here = _files_of(directories)

    @property
    def missing(self) -> list[Digest]:
        """Return the distinct files that no local bundle has."""
        return [Digest(entry.size, sha256) for sha256, entry in self._missing.items()]

    @cached_property
    def _missing(self) -> dict[str, FileEntry]:
        entries = self._files.files.values()
        return {entry.sha256: entry for entry in entries if entry.sha256 not in self._here}

    @property
    def is_worth_it(self) -> bool:
        """Return whether fetching the missing files is cheaper than the archive, in bytes and requests.

        Compressed sizes are unsigned. They are estimated with the ratio of the archive.
        """
        if not self._missing.keys() <= worth_asking_for(self._files.files.values()).keys():
            return False
        size, archive = sum(digest.length for digest in self.missing), self._artifact.archive.length
        expected = archive * size // max(self._files.size, 1)
        return _cost(expected, len(self.missing)) < archive

    def parts(self, fetched: Mapping[str, Path]) -> Parts:
        """Return a source for each file: local, or ``fetched`` and compressed, by SHA-256."""
        sources: dict[str, Source] = {sha256: Fetched(path) for sha256, path in fetched.items()}
        return Parts(self._artifact, self._description, {**self._here, **sources})


def _cost(size: int, requests: int) -> int:
    return size + requests * REQUEST


def _files_of(directories: Iterable[Path]) -> dict[str, Source]:
    sources: dict[str, Source] = {}
    for directory in directories:
        with suppress(OSError, ValueError, FormatError):
            description = BundleDescription.parse(read_description(directory))
            for path, entry in description.files.items():
                sources.setdefault(entry.sha256, Unpacked(directory / path.text))
    return sources
