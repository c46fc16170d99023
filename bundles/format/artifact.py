"""The files of a site that make up one version of a bundle, as its index names them.

Trust goes from the index on by SHA-256: to the archive, and to the description ``bundle.json``, which names every file
of the bundle by its own.
"""

from typing import Any, Self

import msgspec

from bundles.format import fields
from bundles.format.paths import MemberPath


class Digest(msgspec.Struct, frozen=True):
    """Bytes that are known by their ``length`` and SHA-256."""

    length: int
    sha256: str

    @classmethod
    def parse(cls, value: Any, place: str) -> Self:
        """From a signed document; raises `FormatError` with the place."""
        known = fields.known_fields(value, place, {"length", "sha256"})
        return cls(fields.size(known, "length", place), fields.sha256(known, "sha256", place))

    def fields(self) -> dict[str, Any]:
        """As documents write it."""
        return {"length": self.length, "sha256": self.sha256}


class Archive(msgspec.Struct, frozen=True):
    """The archive of a bundle; ``path`` is below ``targets/`` of a site, with the SHA-256 in its name."""

    path: str
    length: int
    sha256: str

    @classmethod
    def of(cls, bundle: str, version: str, digest: Digest) -> Self:
        """The archive that a site publishes under this name and version."""
        return cls(f"{bundle}/{digest.sha256}.{bundle}-{version}.tar.gz", digest.length, digest.sha256)

    @classmethod
    def parse(cls, value: Any, place: str) -> Self:
        """From a signed document; raises `FormatError` with the place."""
        known = fields.known_fields(value, place, {"path", "length", "sha256"})
        path = fields.checked(f"{place}.path", MemberPath, fields.text(known, "path", place)).text
        return cls(path, fields.size(known, "length", place), fields.sha256(known, "sha256", place))

    def fields(self) -> dict[str, Any]:
        """As documents write it."""
        return {"path": self.path, "length": self.length, "sha256": self.sha256}


class Artifact(msgspec.Struct, frozen=True):
    """The archive of one version, and its description."""

    archive: Archive
    description: Digest

    @classmethod
    def parse(cls, value: Any, place: str) -> Self:
        """From a signed document; raises `FormatError` with the place."""
        known = fields.known_fields(value, place, {"archive", "description"})
        archive = Archive.parse(known.get("archive"), f"{place}.archive")
        return cls(archive, Digest.parse(known.get("description"), f"{place}.description"))

    def fields(self) -> dict[str, Any]:
        """As documents write it."""
        return {"archive": self.archive.fields(), "description": self.description.fields()}
