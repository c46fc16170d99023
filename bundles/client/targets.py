"""Targets of a repository, and how one gets here (TUF specification, 5.7).

* A file is checked while nobody else can see it, and placed afterwards.
* A download that broke off goes on where it ended, on any mirror; it is the whole that is checked.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from tuf.api.exceptions import LengthOrHashMismatchError

from bundles.client.partial_downloads import is_kept, partial_download
from bundles.client.tuf_errors import mismatch
from bundles.deadline import Deadline, aside
from bundles.errors import OversizeError, SignatureError, StoreError, TransportError
from bundles.filesystem.free_space import check_free_space
from bundles.filesystem.trees import open_regular
from bundles.format.target_paths import digest_of
from bundles.format.tuf import TargetFile
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
