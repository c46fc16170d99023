"""The index as it was trusted last, from this machine alone: no mirror is asked, and expiry does not matter.

Signatures do: the stored targets count only if the stored root stands behind them, and the index only if they name it.
"""

from typing import Any

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, Targets

from bundles.client.targets import explained, is_target
from bundles.client.trusted_metadata import TrustDirectory
from bundles.errors import StoreError
from bundles.filesystem.atomic import read_limited
from bundles.format.index import INDEX
from bundles.format.limits import LARGEST_STORED


def load_stored(store: TrustDirectory) -> tuple[Targets, bytes]:
    """The stored targets, and the index that they name; raises `StoreError`."""
    with explained(store.path):
        targets, data = _load_targets(store), store.read(INDEX)
    info = targets.targets.get(INDEX)
    if info is None or data is None or not is_target(info, data):
        raise StoreError(str(store.path / INDEX), "is missing or damaged; the next refresh brings it back")
    return targets, data


def _load_targets(store: TrustDirectory) -> Targets:
    root, targets = _load(store, Root.type), _load(store, Targets.type)
    try:
        root.signed.verify_delegate(Targets.type, targets.signed_bytes, targets.signatures)
    except RepositoryError as error:
        raise StoreError(str(store.path), f"damaged; the next refresh brings it back ({error})") from None
    signed: Targets = targets.signed
    return signed


def _load(store: TrustDirectory, role: str) -> Metadata[Any]:
    path = store.path / f"{role}.json"
    try:
        return Metadata.from_bytes(read_limited(path, LARGEST_STORED))
    except FileNotFoundError:
        raise StoreError(str(path), "nothing was trusted yet on this host") from None
    except (RepositoryError, ValueError) as error:
        raise StoreError(str(path), f"damaged; the next refresh brings it back ({error})") from None
