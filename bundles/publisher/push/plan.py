"""Files of a site below ``public/``, and the plan of a push: the files to copy, their order, and the files to remove.

======================  =========================================================================
targets                 names start with the SHA-256; only requested if metadata names them
metadata                ``N.ROLE.json``; only requested if a ``timestamp.json`` leads to the version
roots                   ``N.root.json``; every reader requests the next number
timestamp               ``timestamp.json``: the only name with changing contents
======================  =========================================================================

Other files below ``public/`` are unrelated, here and at a destination. They are neither copied nor removed.

If a push ends early, readers still see one complete edition, because the order is:

1. targets, and metadata with versions in their names, which readers do not request yet
2. new roots that still verify the current edition at the destination
3. ``timestamp.json``, which makes the new edition visible at once
4. new roots that verify only the new edition, because they remove keys
5. removal of files that are gone from the site, after the time in which readers may still request them

An `Edition` is a ``timestamp.json`` with the metadata that it references, at a destination or in the site.
"""

import enum
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from tuf.api.exceptions import RepositoryError

from bundles.errors import FormatError, PublishError
from bundles.filesystem.trees import measure, open_regular
from bundles.format.index import Digest
from bundles.format.size_limits import verify
from bundles.format.tuf import Metadata, Root, Signed

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
    match = _ROOT.fullmatch(path)
    return int(match[1]) if match else 0


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
    result: dict[str, int] = {}
    for top in filter(os.path.lexists, (os.path.join(public, "metadata"), os.path.join(public, "targets"))):
        for directory, names, files in os.walk(top, onerror=_raise):  # each may be a link to another disk
            # Hidden directories are unrelated: a publisher packs in them, and removes them at any time.
            names[:] = sorted(name for name in names if not name.startswith("."))
            for name in files:
                full = os.path.join(directory, name)
                path = os.path.relpath(full, public)
                if kind_of_file(path) is not None:
                    result[path] = os.stat(full).st_size
    return result


def verify_source(source: Source) -> None:
    """Raise `PublishError` for a damaged target, whose contents contradict its name. Raises ``OSError``, too."""
    if (match := _TARGET.fullmatch(source.path)) is None:
        return
    try:
        if source.path.startswith(FILES):
            _verify_compressed(source.file, match["sha256"])
        elif measure(source.file).sha256 != match["sha256"]:
            raise FormatError("", "has another sha256")
    except FormatError as error:
        detail = f"differs from the checksum in its name ({error.what})"
        raise PublishError(str(source.file), detail, hint="`puller site verify` checks all files") from None


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


class Plan(msgspec.Struct, frozen=True):
    """The steps of one push, with paths relative to ``public/``."""

    groups: tuple[tuple[str, ...], ...]
    """Files to copy, in groups."""
    removed: tuple[str, ...] = ()
    """Files to remove now."""
    gone: Mapping[str, datetime] = {}
    """Unreferenced files to keep for a while, and since when they are unreferenced."""
    sizes: Mapping[str, int] = {}
    """Sizes in bytes of copied and removed files."""
    is_remembered: bool = False
    """Whether the plan relies on the record of earlier pushes instead of checking the destination."""

    @property
    def copied(self) -> tuple[str, ...]:
        """Return all files to copy, in order."""
        return tuple(path for group in self.groups for path in group)

    @property
    def copied_bytes(self) -> int:
        """Return the number of bytes to copy."""
        return sum(self.sizes[path] for path in self.copied)

    @property
    def removed_bytes(self) -> int:
        """Return the number of bytes to remove."""
        return sum(self.sizes[path] for path in self.removed)

    @property
    def is_empty(self) -> bool:
        """Return whether the destination equals the site, except for later removals."""
        return not self.groups and not self.removed


def plan(
    local: Mapping[str, int],
    needed: Collection[str],
    there: Mapping[str, int],
    gone: Mapping[str, datetime],
    keep: timedelta,
    now: datetime,
    holds_under: Callable[[int], bool],
    *,
    is_remembered: bool = False,
) -> Plan:
    """Return the plan that makes a destination equal to the site.

    ``local`` and ``there`` are the files of both, with their sizes. ``needed`` are the files of the site to copy.
    ``gone`` are the times since when files are unreferenced. ``holds_under`` returns whether a version of the root
    verifies the current edition at the destination. ``is_remembered``: see `Plan`.
    """
    kinds: dict[Kind | None, list[str]] = {}
    for path in needed:
        kinds.setdefault(kind_of_file(path), []).append(path)
    roots = in_order(kinds.get(Kind.ROOT, []))
    early = _early(roots, holds_under) if TIMESTAMP in there else []
    groups = (
        sorted(kinds.get(Kind.TARGET, [])),
        sorted(kinds.get(Kind.METADATA, [])),
        *([root] for root in early),
        [TIMESTAMP] if TIMESTAMP in needed else [],
        *([root] for root in roots[len(early) :]),
    )
    removed, waiting = _gone(local, there, gone, keep, now)
    return Plan(
        tuple(tuple(group) for group in groups if group),
        tuple(removed),
        waiting,
        {**{path: there[path] for path in removed}, **{path: local[path] for path in needed}},
        is_remembered,
    )


def _early(roots: Sequence[str], holds_under: Callable[[int], bool]) -> list[str]:
    early: list[str] = []
    for path in roots:
        if not holds_under(root_version(path)):
            break
        early.append(path)
    return early


def _gone(
    local: Mapping[str, int],
    there: Mapping[str, int],
    gone: Mapping[str, datetime],
    keep: timedelta,
    now: datetime,
) -> tuple[list[str], dict[str, datetime]]:
    """Return files to remove now, and files to remove later.

    Roots are never removed, because a host that returns after years needs all of them.
    """
    removed: list[str] = []
    waiting: dict[str, datetime] = {}
    for path in sorted(there.keys() - local.keys()):
        if kind_of_file(path) not in (Kind.TARGET, Kind.METADATA):
            continue
        since = min(gone.get(path, now), now)  # a wrong clock in the past must not keep the file forever
        if now - since >= keep:
            removed.append(path)
        else:
            waiting[path] = since
    return removed, waiting


# Editions.

Read = Callable[[str], bytes | None]
"""Returns the contents of a file of the site, or ``None``."""


class Edition:
    """The readable signed metadata of one edition."""

    def __init__(self, timestamp: bytes, read: Read) -> None:
        self._documents: dict[str, Metadata[Any] | None] = {"timestamp": _parsed(timestamp)}
        for role, parent in (("snapshot", "timestamp"), ("targets", "snapshot")):
            named = self._documents[parent]
            self._documents[role] = _named(named.signed, role, read) if named else None

    @property
    def version(self) -> int:
        """Return the version of the timestamp, or 0 if it is unreadable."""
        timestamp = self._documents["timestamp"]
        return timestamp.signed.version if timestamp else 0

    def names(self) -> set[str]:
        """Return the paths of all metadata that the edition references, except the roots."""
        timestamp, snapshot = self._documents["timestamp"], self._documents["snapshot"]
        result = {f"metadata/{timestamp.signed.snapshot_meta.version}.snapshot.json"} if timestamp else set()
        meta = snapshot.signed.meta if snapshot else {}
        return result | {f"metadata/{named.version}.{name}" for name, named in meta.items()}

    def holds_under(self, root: bytes | None) -> bool:
        """Return whether enough keys of a root signed all of the metadata. False if any of it is unreadable."""
        parsed = _parsed(root) if root is not None else None
        if parsed is None or not isinstance(parsed.signed, Root):
            return False
        return all(_is_signed(parsed.signed, role, document) for role, document in self._documents.items())


def _named(signed: Signed, role: str, read: Read) -> Metadata[Any] | None:
    named = getattr(signed, "snapshot_meta", None) or getattr(signed, "meta", {}).get(f"{role}.json")
    data = read(f"metadata/{named.version}.{role}.json") if named else None
    return None if data is None else _parsed(data)


def _is_signed(root: Root, role: str, document: Metadata[Any] | None) -> bool:
    if document is None:
        return False
    try:
        root.verify_delegate(role, document.signed_bytes, document.signatures)
    except (RepositoryError, ValueError):
        return False
    return True


def _parsed(data: bytes) -> Metadata[Any] | None:
    try:
        return Metadata.from_bytes(data)
    except RepositoryError:
        return None
