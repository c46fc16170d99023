"""The answers of several mirrors, weighed against each other: which is behind, and which failure is told.

Nothing here touches disk, network or clock.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bundles.errors import BundleError, FormatError, NotFoundError, RollbackError, TrustError
from bundles.format.index import Indexes
from bundles.transport.mirror import Mirror


@dataclass(frozen=True, slots=True)
class View:
    """The verified metadata of one mirror; ``version`` is that of its timestamp."""

    mirror: Mirror
    indexes: Indexes
    version: int


def find_behind(
    views: Sequence[View], failures: Mapping[Mirror, BundleError]
) -> Iterator[tuple[Mirror, str]]:
    """Mirrors that have what was published before, and how it can be told; the last of ``views`` is the newest."""
    newest = views[-1]
    for view in views:
        if view.version < newest.version:
            what = f"its timestamp is version {view.version}, {newest.mirror} has {newest.version}"
            yield view.mirror, what
    for mirror, error in failures.items():
        if isinstance(error, RollbackError):
            yield mirror, within(mirror, error)


def within(mirror: Mirror, error: BundleError) -> str:
    """An error as a sentence, its place relative to the mirror."""
    where = error.where.removeprefix(f"{mirror}/").removeprefix(str(mirror))
    return f"{where}: {error.what}" if where else error.what


def worst(failures: Sequence[BundleError]) -> BundleError:
    """The one to raise when no mirror helped: an attack before a format, and that before the network."""
    return max(failures, key=lambda error: (_severity(error, failures), _is_incomplete(error)))


def _severity(error: BundleError, among: Sequence[BundleError]) -> int:
    if isinstance(error, RollbackError) and any(map(_is_incomplete, among)):
        return 0  # a mirror that is behind one that is incomplete, as while both are uploaded to
    return 2 if isinstance(error, TrustError) else 1 if isinstance(error, FormatError) else 0


def _is_incomplete(error: BundleError) -> bool:
    """Whether a mirror lacks a file that its own verified metadata names: its timestamp is as new as any."""
    return isinstance(error, NotFoundError) and not error.where.endswith("/timestamp.json")
