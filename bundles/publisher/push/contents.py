"""Files of a site below ``public/``, by their role for readers.

======================  =========================================================================
targets                 names start with the SHA-256; only requested if metadata names them
metadata                ``N.ROLE.json``; only requested if a ``timestamp.json`` leads to the version
roots                   ``N.root.json``; every reader requests the next number
timestamp               ``timestamp.json``: the only name with changing contents
======================  =========================================================================

Other files below ``public/`` are unrelated, here and at a destination. They are neither copied nor removed.
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
"""Names in this directory contain the SHA-256 of the uncompressed contents."""

_ROOT = re.compile(r"metadata/([0-9]{1,15})\.root\.json")
_METADATA = re.compile(r"metadata/[0-9]{1,15}\.[^/]+\.json")
_TARGET = re.compile(r"targets/(?:[^/.][^/]*/)*(?P<sha256>[0-9a-f]{64})(?:\.[^/]+)?")


class Kind(enum.Enum):
    """The role of a file for readers."""

    TARGET = enum.auto()
    METADATA = enum.auto()
    ROOT = enum.auto()
    TIMESTAMP = enum.auto()


def kind_of_file(path: str) -> Kind | None:
    """Return the kind of the file at ``path`` below ``public/``, or ``None`` for an unrelated file."""
    if path == TIMESTAMP:
        return Kind.TIMESTAMP
    if _ROOT.fullmatch(path):
        return Kind.ROOT
    if _METADATA.fullmatch(path):
        return Kind.METADATA
    return Kind.TARGET if _TARGET.fullmatch(path) else None


def root_version(path: str) -> int:
    """Return the version of the root at ``path``, or 0 for another file."""
    found = _ROOT.fullmatch(path)
    return int(found[1]) if found else 0


class Source(msgspec.Struct, frozen=True):
    """A file to copy: from the site, or with its own ``data``."""

    path: str
    """Relative to ``public/`` and to the destination."""
    size: int
    """Size in bytes."""
    file: Path
    data: bytes | None = None
    """Contents of a file that must not be read again, because ``timestamp.json`` may change meanwhile."""


def files_of(public: Path) -> dict[str, int]:
    """Return the path and size in bytes of each file of a site. Raises ``OSError``."""
    found: dict[str, int] = {}
    for top in filter(os.path.lexists, (os.path.join(public, "metadata"), os.path.join(public, "targets"))):
        for directory, names, files in os.walk(top, onerror=_raise):  # each may be a link to another disk
            # Hidden directories are unrelated: a publisher packs in them, and removes them at any time.
            names[:] = sorted(name for name in names if not name.startswith("."))
            for name in files:
                full = os.path.join(directory, name)
                path = os.path.relpath(full, public)
                if kind_of_file(path) is not None:
                    found[path] = os.stat(full).st_size
    return found


def verify_source(source: Source) -> None:
    """Raise `PublishError` for a damaged target, whose contents contradict its name. Raises ``OSError``, too."""
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
    """Raise ``FormatError`` for a file that hosts would reject."""
    with open_regular(path) as stream:
        # A gzip file ends with the size of its contents modulo 2**32, and files of bundles are smaller than that.
        stream.seek(max(os.fstat(stream.fileno()).st_size - 4, 0))
        verify(stream, Digest(int.from_bytes(stream.read(), "little"), sha256))


def in_order(paths: Iterator[str] | list[str]) -> list[str]:
    """Return paths in the order of copying: roots by their numbers."""
    return sorted(paths, key=lambda path: (root_version(path), path))


def _raise(error: OSError) -> None:
    raise error
