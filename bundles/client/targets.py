"""Targets of a repository: where a mirror has them, and how one gets here.

* A file is checked while nobody else can see it, and placed afterwards.
* A download that broke off goes on where it ended, on any mirror; it is the whole that is checked.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from tuf.api.exceptions import LengthOrHashMismatchError
from tuf.api.metadata import TargetFile

from bundles.client.partial_downloads import is_kept, partial_download
from bundles.client.tuf_errors import mismatch
from bundles.deadline import Deadline, aside
from bundles.errors import OversizeError, SignatureError, StoreError, TransportError
from bundles.filesystem.free_space import check_free_space, readable
from bundles.filesystem.trees import open_regular
from bundles.transport.mirror import Mirror

_Verify = Callable[[bytes | BinaryIO], None]


def target_path(info: TargetFile) -> str:
    """Where a target is on a mirror of a site."""
    return f"targets/{hashed_path(info)}"


def hashed_path(info: TargetFile) -> str:
    """A target's path with its hash in it, so that no URL ever changes its contents."""
    directory, slash, name = info.path.rpartition("/")
    return f"{directory}{slash}{_digest(info)}.{name}"


def _digest(info: TargetFile) -> str:
    """SHA-256, which every site of Puller has; other repositories may have others."""
    return info.hashes.get("sha256") or next(iter(info.hashes.values()))


def fetch_target(
    mirror: Mirror, info: TargetFile, path: str, destination: Path, check: Callable[[], None] = lambda: None
) -> None:
    """Place what ``mirror`` has at ``path`` at ``destination``, if it is what ``info`` says.

    What an earlier attempt has left, all of it or its beginning, is made use of. Raises ``TransportError``,
    ``SignatureError``, ``StoreError`` for this machine, also when there is no space, and what ``check`` raises.
    """
    verify = _patiently(info.verify_length_and_hashes, check)
    if _is_placed(verify, destination):
        return
    with explained(destination), partial_download(destination, _digest(info)) as partial:
        held = partial.seek(0, os.SEEK_END)
        check_free_space(destination, destination.parent, size=max(info.length - held, 0), files=1)
        try:
            _download_rest(mirror, info, path, partial, verify)
        except TransportError as error:
            raise _with_progress(error, partial.seek(0, os.SEEK_END), info.length) from None


def _with_progress(error: TransportError, held: int, length: int) -> TransportError:
    """The same error, with how far a download came."""
    if not is_kept(held):
        return error
    what = f"{error.what}; {readable(held)} of {readable(length)} are here, and the next attempt goes on from there"
    return type(error)(error.where, what)


def _patiently(verify: _Verify, check: Callable[[], None]) -> _Verify:
    """The same for large files: a gigabyte takes seconds, in code that is not ours and asks nobody."""
    return lambda data: aside(lambda: verify(data), Deadline(float("inf"), check))


def download_target(
    mirror: Mirror,
    info: TargetFile,
    path: str,
    limit: int,
    into: BinaryIO,
    *,
    resume: bool = False,
    verify: _Verify | None = None,
) -> None:
    """Write a target to ``into`` and verify it; raises ``TransportError``, ``SignatureError``.

    At most ``limit`` bytes are taken. ``resume`` is that of ``Mirror.download``.
    """
    try:
        mirror.download(path, limit, into, resume=resume)
        (verify or info.verify_length_and_hashes)(into)
    except OversizeError as error:
        raise SignatureError(error.where, f"{error.what}, the signed metadata says {info.length}") from None
    except LengthOrHashMismatchError as error:
        raise SignatureError(f"{mirror}/{path}", mismatch(error)) from None


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


def _download_rest(mirror: Mirror, info: TargetFile, path: str, partial: BinaryIO, verify: _Verify) -> None:
    """Go on with what ``partial`` holds; when that was of another file after all, start over, once."""
    held = partial.seek(0, os.SEEK_END)
    if held and _fits(verify, partial):
        return
    if 0 < held < info.length:
        with contextlib.suppress(SignatureError):
            download_target(mirror, info, path, info.length, partial, resume=True, verify=verify)
            return
    partial.truncate(0)
    # Resumed after all: the rest of what it has itself begun.
    download_target(mirror, info, path, info.length, partial, resume=True, verify=verify)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """A problem with this machine's own files, in our words."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or path)
        raise StoreError(where, error.strerror or str(error)) from error
