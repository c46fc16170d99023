"""The indexes of some bundles, and site data, as one mirror publishes them: each by way of the bin that has it.

* A bin, an index, and a document, that is stored here and still is the one that is signed is not fetched again.
* A bundle that its bin does not name is not published: it has no index here. So it is with documents.
"""

from collections.abc import Iterable
from io import BytesIO

from bundles.client.targets import download_target, is_target
from bundles.client.trusted_metadata import TrustDirectory, document_file, index_file
from bundles.client.updater import Workflow
from bundles.errors import FormatError, SignatureError
from bundles.format import bins
from bundles.format.index import Index, Indexes, index_path
from bundles.format.limits import LARGEST_INDEX, LARGEST_SITE_DATA
from bundles.format.site_data import SiteDocument, data_path, read_custom
from bundles.format.target_paths import target_path
from bundles.format.tuf import Metadata, Root, TargetFile, Targets
from bundles.transport.mirror import Mirror


class SiteWorkflow(Workflow):
    """The client workflow on a site of Puller, whose bins are held to more than TUF asks for.

    Each must say which bin it is, and be signed as the root demands of the targets themselves.
    """

    def _persist_metadata(self, rolename: str, data: bytes) -> None:
        """Before a bin is kept: what is kept was verified, and is not asked for again."""
        if self.is_delegated:
            signed = Metadata[Targets].from_bytes(data)
            check_bin(signed, rolename, self.trusted.root, self.fetcher.where)
        super()._persist_metadata(rolename, data)


def check_bin(metadata: Metadata[Targets], name: str, root: Root, where: str) -> None:
    """Raises `SignatureError` for a bin that is another one, or is not signed as ``root`` demands of targets."""
    if (found := metadata.signed.unrecognized_fields.get(bins.NAME)) != name:
        raise SignatureError(where, f"is signed as {str(found)[:40]!r}", expected=name)
    signatures = root.get_verification_result(Targets.type, metadata.signed_bytes, metadata.signatures)
    if not signatures:
        what = f"is signed by {len(signatures.signed)} of the {signatures.threshold} keys that root {root.version}"
        raise SignatureError(where, f"{what} demands of targets")


def fetch_indexes(
    workflow: Workflow,
    mirror: Mirror,
    store: TrustDirectory,
    bundles: Iterable[str],
    documents: Iterable[str],
) -> Indexes:
    """The indexes of ``bundles``, and the ``documents`` of site data, after the refresh of ``workflow``.

    Raises `FormatError`, `SignatureError`, ``TransportError``, ``OSError``, and what python-tuf raises for a bin.
    """
    check_layout(workflow.targets, str(mirror))
    indexes, data = {}, {}
    for bundle in bundles:
        if (info := _find(workflow, index_path(bundle))) is not None:
            contents = _contents(mirror, store, index_file(bundle), info, LARGEST_INDEX)
            indexes[bundle] = Index.parse(contents, bundle, f"{mirror}/{target_path(info)}")
    for name in documents:
        if (info := _find(workflow, data_path(name))) is not None:
            published = read_custom(info.custom, f"{mirror}/{target_path(info)}")
            contents = _contents(mirror, store, document_file(name), info, LARGEST_SITE_DATA)
            data[name] = SiteDocument(name, contents, published)
    return Indexes(indexes, data)


def check_layout(targets: Targets, where: str) -> None:
    """Raises `FormatError` for targets that do not delegate to bins, as those of a site do."""
    roles = targets.delegations.succinct_roles if targets.delegations else None
    if roles is None or roles.name_prefix != bins.PREFIX:
        raise FormatError(where, "has no index of each bundle: is it a site of this version of Puller?")


def _find(workflow: Workflow, path: str) -> TargetFile | None:
    """The target at ``path`` as its bin names it."""
    info = workflow.get_targetinfo(path)
    if info is not None and "sha256" not in info.hashes:
        raise FormatError(f"{workflow.fetcher.mirror}", f"names {path} without its sha256")
    return info


def _contents(mirror: Mirror, store: TrustDirectory, name: str, info: TargetFile, largest: int) -> bytes:
    """The target, from where it is stored as ``name`` when it has not changed; ``largest`` is bytes."""
    if (stored := store.read(name)) is not None and is_target(info, stored):
        return stored
    buffer = BytesIO()
    download_target(mirror, info, target_path(info), min(info.length, largest), buffer)
    store.write(name, buffer.getvalue())
    return buffer.getvalue()
