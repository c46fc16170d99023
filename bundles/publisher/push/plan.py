"""Plan of a push: the files to copy, their order, and the files to remove, without any input or output.

If a push ends early, readers still see one complete edition, because the order is:

1. targets, and metadata with versions in their names, which readers do not request yet
2. new roots that still verify the current edition at the destination
3. ``timestamp.json``, which makes the new edition visible at once
4. new roots that verify only the new edition, because they remove keys
5. removal of files that are gone from the site, after the time in which readers may still request them

An `Edition` is a ``timestamp.json`` with the metadata that it references, at a destination or in the site.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from tuf.api.exceptions import RepositoryError

from bundles.format.tuf import Metadata, Root, Signed
from bundles.publisher.push.contents import TIMESTAMP, Kind, in_order, kind_of_file, root_version


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
    wanted: Collection[str],
    there: Mapping[str, int],
    gone: Mapping[str, datetime],
    keep: timedelta,
    now: datetime,
    holds_under: Callable[[int], bool],
    *,
    is_remembered: bool = False,
) -> Plan:
    """Return the plan that makes a destination equal to the site.

    ``local`` and ``there`` are the files of both, with their sizes. ``wanted`` are the files of the site to copy.
    ``gone`` are the times since when files are unreferenced. ``holds_under`` returns whether a version of the root
    verifies the current edition at the destination. ``is_remembered``: see `Plan`.
    """
    kinds: dict[Kind | None, list[str]] = {}
    for path in wanted:
        kinds.setdefault(kind_of_file(path), []).append(path)
    roots = in_order(kinds.get(Kind.ROOT, []))
    early = _early(roots, holds_under) if TIMESTAMP in there else []
    groups = (
        sorted(kinds.get(Kind.TARGET, [])),
        sorted(kinds.get(Kind.METADATA, [])),
        *([root] for root in early),
        [TIMESTAMP] if TIMESTAMP in wanted else [],
        *([root] for root in roots[len(early) :]),
    )
    removed, waiting = _gone(local, there, gone, keep, now)
    return Plan(
        tuple(tuple(group) for group in groups if group),
        tuple(removed),
        waiting,
        {**{path: there[path] for path in removed}, **{path: local[path] for path in wanted}},
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
        found = {f"metadata/{timestamp.signed.snapshot_meta.version}.snapshot.json"} if timestamp else set()
        meta = snapshot.signed.meta if snapshot else {}
        return found | {f"metadata/{named.version}.{name}" for name, named in meta.items()}

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
