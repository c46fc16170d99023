"""The files of a site below ``public/``, by what they are to readers.

======================  =========================================================================
targets                 under names that begin with their SHA-256; nobody asks for one that no metadata names
metadata                ``N.ROLE.json``; nobody asks for a version that no ``timestamp.json`` leads to
roots                   ``N.root.json``; every reader asks for the next one by its number
timestamp               ``timestamp.json``: the one name under which the contents change
======================  =========================================================================

Anything else below ``public/`` is somebody else's, here and at a destination: it is neither copied nor removed.
"""

import enum
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bundles.errors import FormatError, PublishError
from bundles.filesystem.trees import measure, open_regular
from bundles.format.compressed_file import verify
from bundles.format.index import Digest

TIMESTAMP = "metadata/timestamp.json"
FILES = "targets/files/"
"""Below it files have the SHA-256 of their contents before compression in their names."""

_ROOT = re.compile(r"metadata/([0-9]{1,15})\.root\.json")
_METADATA = re.compile(r"metadata/[0-9]{1,15}\.[^/]+\.json")
_TARGET = re.compile(r"targets/(?:[^/.][^/]*/)*(?P<sha256>[0-9a-f]{64})(?:\.[^/]+)?")


class Kind(enum.Enum):
    """The part that a file plays for readers."""

    TARGET = enum.auto()
    METADATA = enum.auto()
    ROOT = enum.auto()
    TIMESTAMP = enum.auto()


def kind_of_file(path: str) -> Kind | None:
    """The kind of the file at ``path`` below ``public/``; ``None`` for what is no file of a site."""
    if path == TIMESTAMP:
        return Kind.TIMESTAMP
    if _ROOT.fullmatch(path):
        return Kind.ROOT
    if _METADATA.fullmatch(path):
        return Kind.METADATA
    return Kind.TARGET if _TARGET.fullmatch(path) else None


def root_version(path: str) -> int:
    """The version of the root at ``path``; 0 for any other file."""
    found = _ROOT.fullmatch(path)
    return int(found[1]) if found else 0


class Source(msgspec.Struct, frozen=True):
    """One file to be copied: of the site, or with ``data`` of its own."""

    path: str
    """Below ``public/``, and below the destination."""
    size: int
    """Bytes."""
    file: Path
    data: bytes | None = None
    """The contents, where they must not be read again: those of ``timestamp.json`` may be new by then."""


def files_of(public: Path) -> dict[str, int]:
    """The path and the size in bytes of each file of a site; raises ``OSError``."""
    found: dict[str, int] = {}
    for top in filter(os.path.lexists, (os.path.join(public, "metadata"), os.path.join(public, "targets"))):
        for directory, names, files in os.walk(top, onerror=_raise):  # each may be a link to another disk
            # What is hidden is nobody's: a publisher packs there, and removes it while others look.
            names[:] = sorted(name for name in names if not name.startswith("."))
            for name in files:
                full = os.path.join(directory, name)
                path = os.path.relpath(full, public)
                if kind_of_file(path) is not None:
                    found[path] = os.stat(full).st_size
    return found


def verify_source(source: Source) -> None:
    """Raise `PublishError` for a target that is not what its name says: it was damaged here; and ``OSError``."""
    if (found := _TARGET.fullmatch(source.path)) is None:
        return
    try:
        if source.path.startswith(FILES):
            _verify_compressed(source.file, found["sha256"])
        elif measure(source.file).sha256 != found["sha256"]:
            raise FormatError("", "has another sha256")
    except FormatError as error:
        what = f"is not what its name says ({error.what}): `puller site verify` looks at all of them"
        raise PublishError(str(source.file), what) from None


def _verify_compressed(path: Path, sha256: str) -> None:
    """Raise ``FormatError`` for a file that hosts would refuse."""
    with open_regular(path) as stream:
        # A gzip file ends with the size of what it holds, modulo 2**32; that of a file in a bundle is below that.
        stream.seek(max(os.fstat(stream.fileno()).st_size - 4, 0))
        verify(stream, Digest(int.from_bytes(stream.read(), "little"), sha256))


def in_order(paths: Iterator[str] | list[str]) -> list[str]:
    """Paths in the order of copying: roots by their numbers."""
    return sorted(paths, key=lambda path: (root_version(path), path))


def _raise(error: OSError) -> None:
    raise error
