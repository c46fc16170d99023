"""The indexes and site data that were trusted last, from this machine alone: no mirror is asked, no expiry matters.

Signatures do: the stored targets and bins count only if the stored root stands behind them, and an index or document
only if its bin names it.
"""

from collections.abc import Iterable
from typing import Any

from tuf.api.exceptions import RepositoryError

from bundles.client.targets import explained, is_target
from bundles.client.trusted_metadata import TrustDirectory, document_file, index_file
from bundles.errors import StoreError
from bundles.filesystem.atomic import read_limited
from bundles.format.index import Index, Indexes, index_path
from bundles.format.limits import LARGEST_STORED
from bundles.format.site_data import SiteDocument, data_path, read_custom
from bundles.format.tuf import Metadata, Root, SuccinctRoles, TargetFile, Targets

_BACK = "the next refresh brings it back"


def load_stored(store: TrustDirectory, bundles: Iterable[str], documents: Iterable[str]) -> Indexes:
    """The stored indexes of ``bundles``, and the stored ``documents``; raises `StoreError`."""
    indexes, data = {}, {}
    with explained(store.path):
        root: Root = _load(store, Root.type).signed
        bins = _bins(store, root)
        for bundle in bundles:
            if info := _find(store, bins, index_path(bundle), root):
                indexes[bundle] = Index.parse(_contents(store, index_file(bundle), info), bundle)
        for name in documents:
            if info := _find(store, bins, data_path(name), root):
                published = read_custom(info.custom, data_path(name))
                data[name] = SiteDocument(name, _contents(store, document_file(name), info), published)
    return Indexes(indexes, data)


def _find(store: TrustDirectory, bins: SuccinctRoles, path: str, root: Root) -> TargetFile | None:
    return _verified(store, bins.get_role_for_target(path), root).targets.get(path)


def _bins(store: TrustDirectory, root: Root) -> SuccinctRoles:
    targets = _verified(store, Targets.type, root)
    roles = targets.delegations.succinct_roles if targets.delegations else None
    if roles is None:
        raise StoreError(str(store.path / "targets.json"), f"damaged; {_BACK}")
    return roles


def _contents(store: TrustDirectory, name: str, info: TargetFile) -> bytes:
    data = store.read(name)
    if data is None or not is_target(info, data):
        raise StoreError(str(store.path / name), f"is missing or damaged; {_BACK}")
    return data


def _verified(store: TrustDirectory, role: str, root: Root) -> Targets:
    metadata = _load(store, role)
    try:
        root.verify_delegate(Targets.type, metadata.signed_bytes, metadata.signatures)
    except RepositoryError as error:
        raise StoreError(str(store.path), f"damaged; {_BACK} ({error})") from None
    signed: Targets = metadata.signed
    return signed


def _load(store: TrustDirectory, role: str) -> Metadata[Any]:
    path = store.path / f"{role}.json"
    try:
        return Metadata.from_bytes(read_limited(path, LARGEST_STORED))
    except FileNotFoundError:
        what = "nothing was trusted yet on this host" if role == Root.type else f"is missing; {_BACK}"
        raise StoreError(str(path), what) from None
    except (RepositoryError, ValueError) as error:
        raise StoreError(str(path), f"damaged; {_BACK} ({error})") from None
