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
from bundles.filesystem.free_space import check_free_space
from bundles.filesystem.trees import open_regular
from bundles.format import bins
from bundles.format.compressed_file import file_path, longest_compressed, verify
from bundles.format.index import Digest, Index, Indexes, index_path
from bundles.format.metadata import digest_of, target_path
from bundles.format.site_data import SiteDocument, data_path, read_custom
from bundles.format.size_limits import LARGEST_INDEX, LARGEST_SITE_DATA
from bundles.format.tuf import Metadata, Root, TargetFile, Targets
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
    """Place what ``mirror`` has at ``path`` at ``destination``, if it is what ``info`` says.

    What an earlier attempt has left, all of it or its beginning, is made use of. Raises ``TransportError``,
    ``SignatureError``, ``StoreError`` for this machine, also when there is no space, and what ``check`` raises.

    1. What is at ``destination`` already, and is right, is the answer.
    2. Open the partial download, which is named by the SHA-256 of the whole; a new one is empty.
    3. Is there space for the rest?
    4. Ask for the rest, up to the signed length, and verify the whole (TUF 5.7.3). When what was held does not fit
       together with it, start over, once.
    5. Place the whole by a rename, on the disk before; what is not worth going on with is removed when a step fails.
    """

    def verify(data: bytes | BinaryIO) -> None:
        """Aside, for large files: a gigabyte takes seconds, in code that is not ours and asks nobody."""
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
    """``error`` with how far a download came."""
    if not is_kept(held):
        return error
    what = f"{error.what}; {size_text(held)} of {size_text(length)} are here, and the next attempt goes on from there"
    return type(error)(error.where, what, code=error.code)


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
    """Write a target to ``into`` and verify it; raises ``TransportError``, ``SignatureError``.

    At most ``limit`` bytes are taken. ``resume`` is that of ``Mirror.download``. Without ``is_exact``, the length of
    ``info`` is only the largest that the file may have. A file that is too short is a ``TransportError``.
    """
    try:
        mirror.download(path, limit, into, resume=resume, is_exact=is_exact and limit == info.length)
        (verify or info.verify_length_and_hashes)(into)
    except OversizeError as error:
        what = f"{error.what}, the signed metadata says {info.length}"
        raise SignatureError(error.where, what, code=ProblemCode.CHECKSUM_MISMATCH) from None
    except LengthOrHashMismatchError as error:
        raise SignatureError(
            f"{mirror}/{path}", mismatch(error), code=ProblemCode.CHECKSUM_MISMATCH
        ) from None


def is_target(info: TargetFile, data: bytes | BinaryIO) -> bool:
    """Whether these are the bytes that ``info`` speaks of."""
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
    except OSError:  # it is not there, or something else is; either way it is replaced
        return False


def _download_rest(
    mirror: Mirror, info: TargetFile, path: str, partial: BinaryIO, verify: _Verify, *, is_exact: bool
) -> None:
    """Go on with what ``partial`` holds; when that was of another file after all, start over, once."""

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
    # Resumed after all: the rest of what it has itself begun.
    download()


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """A problem with this machine's own files, in our words: an ``OSError`` within raises ``StoreError``."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or path)
        raise StoreError(where, error.strerror or str(error)) from error


# Single files of bundles. Their uncompressed length and SHA-256 come from the signed description. The compressed
# length is unsigned, so the download is bounded. Later users of a file compare it again.


class CompressedFile(TargetFile):
    """A file as the target that it would be: its length is the most that it may have."""

    def __init__(self, digest: Digest) -> None:
        path = file_path(digest.sha256)
        super().__init__(longest_compressed(digest.length), {"sha256": digest.sha256}, path)
        self._digest = digest

    def verify_length_and_hashes(self, data: Any) -> None:
        """Raises ``LengthOrHashMismatchError`` for a file that does not hold what was signed for."""
        try:
            verify(data, self._digest)
        except FormatError as error:
            raise LengthOrHashMismatchError(error.what) from None


def fetch_file(digest: Digest, destination: Path, check: Callable[[], None], mirror: Mirror) -> None:
    """Place a file, compressed, at ``destination``, whose directory is made; raises as ``fetch_target``."""
    with explained(destination):
        destination.parent.mkdir(mode=0o700, exist_ok=True)
    path = f"targets/{file_path(digest.sha256)}"
    fetch_target(mirror, CompressedFile(digest), path, destination, check, is_exact=False)


# The indexes of bundles and the site data of one mirror, each found through its bin.


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
