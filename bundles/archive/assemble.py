"""From files that are here to a directory: the tree that ``unpack`` makes of the archive, made without it.

* What is written is what the description lists, and every file is compared with its SHA-256 while it is written.
* Where a file comes from is no matter of trust: a version that is here, another bundle, a download.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from bundles.archive.new_tree import FILE_MODE, NewTree, fill_and_place
from bundles.archive.unpack import asking, check_identity, check_space
from bundles.errors import FormatError, StoreError, UnpackError
from bundles.filesystem.trees import Counted, open_regular
from bundles.format.artifact import Artifact, Digest
from bundles.format.compressed_file import verified
from bundles.format.description import BundleDescription, FileEntry
from bundles.format.identity import DESCRIPTION
from bundles.format.limits import LIMITS, Limits
from bundles.format.paths import MemberPath


class Source(Protocol):
    """A file on this machine that may be the one that is wanted."""

    def put(self, tree: NewTree, path: MemberPath, entry: FileEntry, check: Callable[[], None]) -> None:
        """Write the next file of ``tree``; raises ``FormatError`` when it is another one, and ``OSError``."""
        ...


class Unpacked(msgspec.Struct, frozen=True):
    """A file of a bundle that is unpacked."""

    path: Path

    def put(self, tree: NewTree, path: MemberPath, entry: FileEntry, check: Callable[[], None]) -> None:
        """See ``Source``; raises as it says."""
        with open_regular(self.path) as stream:
            contents = Counted(asking(check, tree.copy(path, stream, entry.mode.unpacked)))
            for _ in contents:
                if contents.size > entry.size:  # it may grow as fast as it is read
                    break
        if (contents.size, contents.sha256) != (entry.size, entry.sha256):
            raise FormatError(
                str(self.path), f"was changed: wanted {entry.size} bytes, sha256 {entry.sha256}"
            )


class Fetched(msgspec.Struct, frozen=True):
    """A compressed file as it came from a site."""

    path: Path

    def put(self, tree: NewTree, path: MemberPath, entry: FileEntry, check: Callable[[], None]) -> None:
        """See ``Source``; raises as it says."""
        with open_regular(self.path) as stream:
            pieces = verified(stream, Digest(entry.size, entry.sha256))
            tree.write(path, asking(check, pieces), entry.mode.unpacked)


class Parts(msgspec.Struct, frozen=True):
    """All that a bundle is made of: its description, which was verified, and a source for each SHA-256."""

    artifact: Artifact
    description: bytes
    sources: Mapping[str, Source]


def assemble(
    parts: Parts,
    destination: Path,
    *,
    name: str,
    version: str,
    limits: Limits = LIMITS,
    check: Callable[[], None] = lambda: None,
) -> BundleDescription:
    """Make the tree of a bundle at ``destination``, which must not exist; its parent must.

    Raises ``UnpackError`` when the description, or a source, is not what it should be; ``StoreError`` when this
    machine cannot read or write; what ``check`` raises, which is asked all the time. Nothing is left then.

    1. The description is the signed one, within the limits of an archive, and of the name and version.
    2. Is there space for all that it lists?
    3. Write each file, in the order of the description; and make it a bundle as ``unpack`` does.
    """
    try:
        # 1.
        description = _checked(parts, limits)
        check_identity(description, name, version)
        # 2.
        check_space(description, destination)
        # 3.
        fill_and_place(destination, lambda tree: _fill(tree, parts, description, check))
    except FormatError as error:
        raise error.under(f"{destination}: {error.where}".removesuffix(": "), UnpackError) from None
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        raise StoreError(str(destination), f"cannot be put together: {reason}") from error
    return description


def _checked(parts: Parts, limits: Limits) -> BundleDescription:
    limits.check_archive(parts.artifact.archive.length)
    limits.check_description(len(parts.description))
    if hashlib.sha256(parts.description).hexdigest() != parts.artifact.description.sha256:
        raise FormatError(DESCRIPTION, "is not the one that the signed index names")
    description = BundleDescription.parse(parts.description)
    limits.check_files(description)
    limits.check_ratio(description, parts.artifact.archive.length)
    return description


def _fill(tree: NewTree, parts: Parts, description: BundleDescription, check: Callable[[], None]) -> None:
    tree.write(MemberPath(DESCRIPTION), iter([parts.description]), FILE_MODE)
    for path, entry in description.files.items():
        check()
        parts.sources[entry.sha256].put(tree, path, entry, check)
