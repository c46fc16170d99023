"""Downloads of targets: indexes, site data, archives and single files (TUF specification, 5.7).

* A file is verified before it is placed under its name.
* An interrupted download is resumed, on any mirror. The verification covers the whole file.
* Bins, indexes and documents that are stored and still match the signed metadata are not fetched again.
* A bundle or document that its bin does not list is not published.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from tuf.api.exceptions import LengthOrHashMismatchError

from bundles.client.partial_downloads import is_kept, partial_download
from bundles.client.trust import TrustDirectory, document_file, index_file
from bundles.client.updater import Workflow, mismatch
from bundles.deadline import Deadline, aside
from bundles.errors import FormatError, OversizeError, SignatureError, StoreError, TransportError
from bundles.filesystem.trees import check_free_space, open_regular
from bundles.format.index import Digest, Index, Indexes, index_path
from bundles.format.site_targets import BIN_NAME, BIN_PREFIX, SiteDocument, data_path, read_custom
from bundles.format.size_limits import LARGEST_INDEX, LARGEST_SITE_DATA, file_path, longest_compressed, verify
from bundles.format.tuf import Metadata, Root, TargetFile, Targets, digest_of, target_path
from bundles.transport.mirror import Mirror
from foundation.problems import ProblemCode
from foundation.quantities import size_text

_Verify = Callable[[bytes | BinaryIO], None]


def fetch_target(
    mirror: Mirror,
    info: TargetFile,
    path: str,
    destination: Path,
    check: Callable[[], None] = lambda: None,
    *,
    is_exact: bool = True,
) -> None:
    """Download the target ``info`` from ``path`` on ``mirror`` to ``destination``.

    Uses the data of an earlier attempt. Raises ``TransportError``, ``SignatureError``, ``StoreError`` for this machine,
    including insufficient space, and the errors of ``check``.

    1. If ``destination`` has the right contents, return.
    2. Open the partial download, which is named by the SHA-256 of the complete file. A new one is empty.
    3. Check the free space for the remaining data.
    4. Request the remaining data, up to the signed length, and verify the complete file (TUF 5.7.3). If that fails with
       existing data, start over once.
    5. Flush the file and rename it to its destination. If a step fails, remove a partial download that is not worth
       resuming.
    """

    def verify(data: bytes | BinaryIO) -> None:
        """Verify in another thread: a gigabyte takes seconds in library code that does not call ``check``."""
        aside(lambda: info.verify_length_and_hashes(data), Deadline(float("inf"), check))

    # 1.
    if _is_placed(verify, destination):
        return
    # 2., and 5. at the end of the block
    with explained(destination), partial_download(destination, digest_of(info)) as partial:
        # 3.
        held = partial.seek(0, os.SEEK_END)
        check_free_space(destination, destination.parent, size=max(info.length - held, 0), files=1)
        # 4.
        try:
            _download_rest(mirror, info, path, partial, verify, is_exact=is_exact)
        except TransportError as error:
            raise _with_progress(error, partial.seek(0, os.SEEK_END), info.length) from None


def _with_progress(error: TransportError, held: int, length: int) -> TransportError:
    """Return ``error`` with the progress of the download."""
    if not is_kept(held):
        return error
    hint = f"{size_text(held)} of {size_text(length)} are downloaded, and the next attempt resumes there"
    return type(error)(error.where, error.what, code=error.code, hint=hint)


def download_target(
    mirror: Mirror,
    info: TargetFile,
    path: str,
    limit: int,
    into: BinaryIO,
    *,
    resume: bool = False,
    is_exact: bool = True,
    verify: _Verify | None = None,
) -> None:
    """Write a target to ``into`` and verify it. Raises ``TransportError`` and ``SignatureError``.

    Reads at most ``limit`` bytes. ``resume`` is the argument of ``Mirror.download``. Without ``is_exact``, the length
    of ``info`` is only an upper limit. A truncated file is a ``TransportError``.
    """
    try:
        mirror.download(path, limit, into, resume=resume, is_exact=is_exact and limit == info.length)
        (verify or info.verify_length_and_hashes)(into)
    except OversizeError as error:
        detail = f"{error.what}, the signed metadata has the length {info.length}"
        raise SignatureError(error.where, detail, code=ProblemCode.CHECKSUM_MISMATCH) from None
    except LengthOrHashMismatchError as error:
        raise SignatureError(
            f"{mirror}/{path}", mismatch(error), code=ProblemCode.CHECKSUM_MISMATCH
        ) from None


def is_target(info: TargetFile, data: bytes | BinaryIO) -> bool:
    """Return whether ``data`` matches ``info``."""
    return _fits(info.verify_length_and_hashes, data)


def _fits(verify: _Verify, data: bytes | BinaryIO) -> bool:
    try:
        verify(data)
    except LengthOrHashMismatchError:
        return False
    return True


def _is_placed(verify: _Verify, destination: Path) -> bool:
    try:
        with open_regular(destination) as placed:
            return _fits(verify, placed)
    except OSError:  # missing or not a regular file: it is replaced in both cases
        return False


def _download_rest(
    mirror: Mirror, info: TargetFile, path: str, partial: BinaryIO, verify: _Verify, *, is_exact: bool
) -> None:
    """Resume ``partial``. If its data belongs to another file, start over once."""

    def download() -> None:
        download_target(
            mirror, info, path, info.length, partial, resume=True, is_exact=is_exact, verify=verify
        )

    held = partial.seek(0, os.SEEK_END)
    if held and _fits(verify, partial):
        return
    if 0 < held < info.length:
        with contextlib.suppress(SignatureError):
            download()
            return
    partial.truncate(0)
    # Resumes only data of this attempt, if the first request fails.
    download()


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise ``StoreError`` for an ``OSError`` of this machine's own files within the block."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or path)
        raise StoreError(where, error.strerror or str(error)) from error


# Single files of bundles. Their uncompressed length and SHA-256 come from the signed description. The compressed
# length is unsigned, so the download is bounded. Later users of a file compare it again.


class CompressedFile(TargetFile):
    """A compressed file as a target. Its length is an upper limit."""

    def __init__(self, digest: Digest) -> None:
        path = file_path(digest.sha256)
        super().__init__(longest_compressed(digest.length), {"sha256": digest.sha256}, path)
        self._digest = digest

    def verify_length_and_hashes(self, data: Any) -> None:
        """Raise ``LengthOrHashMismatchError`` if the uncompressed contents differ from the signed digest."""
        try:
            verify(data, self._digest)
        except FormatError as error:
            raise LengthOrHashMismatchError(error.what) from None


def fetch_file(digest: Digest, destination: Path, check: Callable[[], None], mirror: Mirror) -> None:
    """Place a compressed file at ``destination``, and create its directory. Raises like ``fetch_target``."""
    with explained(destination):
        destination.parent.mkdir(mode=0o700, exist_ok=True)
    path = f"targets/{file_path(digest.sha256)}"
    fetch_target(mirror, CompressedFile(digest), path, destination, check, is_exact=False)


# The indexes of bundles and the site data of one mirror, each found through its bin.


class SiteWorkflow(Workflow):
    """The client workflow on a Puller site, with stricter rules for bins than TUF.

    Each bin must contain its own name, and be signed as the root requires for the targets.
    """

    def _persist_metadata(self, rolename: str, data: bytes) -> None:
        """Check a bin before it is stored, because stored bins are not fetched again."""
        if self.is_delegated:
            signed = Metadata[Targets].from_bytes(data)
            check_bin(signed, rolename, self.trusted.root, self.fetcher.where)
        super()._persist_metadata(rolename, data)


def check_bin(metadata: Metadata[Targets], name: str, root: Root, where: str) -> None:
    """Raise `SignatureError` for another bin, or a bin that is not signed as ``root`` requires for targets."""
    if (result := metadata.signed.unrecognized_fields.get(BIN_NAME)) != name:
        raise SignatureError(where, f"is signed as bin {str(result)[:40]!r}", expected=name)
    signatures = root.get_verification_result(Targets.type, metadata.signed_bytes, metadata.signatures)
    if not signatures:
        detail = f"is signed by {len(signatures.signed)} of the {signatures.threshold} keys that root {root.version}"
        raise SignatureError(where, f"{detail} requires for targets")


def fetch_indexes(
    workflow: Workflow,
    mirror: Mirror,
    store: TrustDirectory,
    bundles: Iterable[str],
    documents: Iterable[str],
) -> Indexes:
    """Return the indexes of ``bundles``, and the ``documents`` of site data, after the refresh of ``workflow``.

    Raises `FormatError`, `SignatureError`, ``TransportError``, ``OSError``, and the errors of python-tuf for a bin.
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
    """Raise `FormatError` for targets without delegation to bins."""
    roles = targets.delegations.succinct_roles if targets.delegations else None
    if roles is None or roles.name_prefix != BIN_PREFIX:
        raise FormatError(
            where, "contains no indexes of bundles: the site was made by another version of Puller"
        )


def _find(workflow: Workflow, path: str) -> TargetFile | None:
    """Return the target at ``path`` from its bin."""
    info = workflow.get_targetinfo(path)
    if info is not None and "sha256" not in info.hashes:
        raise FormatError(f"{workflow.fetcher.mirror}", f"lists {path} without a sha256")
    return info


def _contents(mirror: Mirror, store: TrustDirectory, name: str, info: TargetFile, largest: int) -> bytes:
    """Return the target, from the stored file ``name`` if it is unchanged. ``largest`` is bytes."""
    if (stored := store.read(name)) is not None and is_target(info, stored):
        return stored
    buffer = BytesIO()
    download_target(mirror, info, target_path(info), min(info.length, largest), buffer)
    store.write(name, buffer.getvalue())
    return buffer.getvalue()
