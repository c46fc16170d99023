"""Editions: a ``timestamp.json`` and the metadata that it leads to, at a destination or in the site."""

from collections.abc import Callable
from typing import Any

from tuf.api.exceptions import RepositoryError

from bundles.format.tuf import Metadata, Root, Signed

Read = Callable[[str], bytes | None]
"""Gives the contents of a file of the site, ``None`` when there is none."""


class Edition:
    """The signed metadata of one edition, as far as it can be read."""

    def __init__(self, timestamp: bytes, read: Read) -> None:
        self._documents: dict[str, Metadata[Any] | None] = {"timestamp": _parsed(timestamp)}
        for role, parent in (("snapshot", "timestamp"), ("targets", "snapshot")):
            named = self._documents[parent]
            self._documents[role] = _named(named.signed, role, read) if named else None

    @property
    def version(self) -> int:
        """The version of the timestamp; 0 for one that cannot be read."""
        timestamp = self._documents["timestamp"]
        return timestamp.signed.version if timestamp else 0

    def names(self) -> set[str]:
        """The paths of all metadata that readers are led to by it, but for the roots."""
        timestamp, snapshot = self._documents["timestamp"], self._documents["snapshot"]
        found = {f"metadata/{timestamp.signed.snapshot_meta.version}.snapshot.json"} if timestamp else set()
        meta = snapshot.signed.meta if snapshot else {}
        return found | {f"metadata/{named.version}.{name}" for name, named in meta.items()}

    def holds_under(self, root: bytes | None) -> bool:
        """Whether all of it is signed by enough keys of a root; false where something of it cannot be read."""
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
