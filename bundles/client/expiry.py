"""Expiry of a site's stored metadata, as far as this host needs it.

The publisher chooses the lifetimes of signatures: ``bundles/publisher/settings.py``.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from bundles.filesystem.atomic import read_limited
from bundles.format.bins import bin_of
from bundles.format.index import index_path
from bundles.format.site_data import data_path
from bundles.format.size_limits import LARGEST_STORED


class _SuccinctRoles(msgspec.Struct):
    bit_length: Annotated[int, msgspec.Meta(ge=1, le=32)]


class _Delegations(msgspec.Struct):
    succinct_roles: _SuccinctRoles


class _Signed(msgspec.Struct):
    expires: Annotated[datetime, msgspec.Meta(tz=True)]
    delegations: _Delegations | None = None


class _Metadata(msgspec.Struct):
    signed: _Signed


def first_expiry(trust: Path, bundles: Iterable[str], documents: Iterable[str] = ()) -> datetime | None:
    """Return when the metadata in ``trust`` expires. ``None`` if it is missing or incomplete.

    Only the bins of ``bundles`` and site data ``documents`` count, because other stored bins are no longer used.
    Signatures are not verified.
    """
    results = [
        _read(trust / f"{name}.json")
        for name in _names(trust, [*map(index_path, bundles), *map(data_path, documents)])
    ]
    expiries = [signed.expires for signed in results if signed is not None]
    return min(expiries).astimezone(UTC) if len(expiries) == len(results) else None


def _names(trust: Path, paths: Iterable[str]) -> Iterator[str]:
    yield from ("root", "timestamp", "snapshot", "targets")
    targets = _read(trust / "targets.json")
    if targets is not None and targets.delegations is not None:
        bits = targets.delegations.succinct_roles.bit_length
        yield from {bin_of(path, bits) for path in paths}


def _read(path: Path) -> _Signed | None:
    """Return ``None`` for a missing or damaged file, which the next run fetches again."""
    try:
        return msgspec.json.decode(read_limited(path, LARGEST_STORED), type=_Metadata).signed
    except (OSError, ValueError, RecursionError):
        return None
