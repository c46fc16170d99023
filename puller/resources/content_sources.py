"""Content sources of resources: URLs in manifests, files of the bundle, and their SHA-256 checksums.

Requests never carry the site's credentials, because a manifest may name any server.
"""

import io
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from bundles.deadline import Deadline
from bundles.digests import fast_sha256
from bundles.errors import END_UNKNOWN, TransportError
from bundles.format.fields import SHA256
from bundles.progress import transfer
from foundation.masking import mask_urls
from foundation.problems import ProblemCode
from puller.errors import ChangedMeanwhile, ResourceError, reason
from puller.resources.base import Context, PropertyError
from puller.system import processes


def sha256(chunks: Iterable[bytes]) -> str:
    """Return the digest of all pieces together, in hexadecimal."""
    digest = fast_sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def verified(chunks: Iterable[bytes], digest: str, path: str) -> Iterator[bytes]:
    """Yield ``chunks`` of the file at ``path``. Raises ``ChangedMeanwhile`` at the end if SHA-256 is not ``digest``."""
    actual = fast_sha256()
    for chunk in chunks:
        actual.update(chunk)
        yield chunk
    if actual.hexdigest() != digest:
        raise ChangedMeanwhile(f"{path}: another process wrote to it while Puller copied it")


def short(digest: str) -> str:
    """Return the beginning of a checksum, which names a content to people."""
    return digest[:8]


def check_sha256(name: str, checksum: str) -> Iterator[PropertyError]:
    """Yield an error if a property ``name`` is not a SHA-256 in the lower-case form of digests."""
    if not re.fullmatch(SHA256, checksum):
        yield PropertyError(name, f"is {checksum!r}", expected="64 lower-case hexadecimal digits (SHA-256)")


LIMIT = 512 * 1024 * 1024
"""The maximum size of a remote source in bytes. It is held in memory."""


TIME_LIMIT = 300.0
"""Seconds for a whole download, including redirects and retries."""


def is_url(source: str) -> bool:
    """Return whether a source is a URL, and not a file of this machine or of the bundle."""
    return source.startswith(("http://", "https://"))


class EndUnknownError(TransportError):
    """A file that may be cut short: the server states no length. ``data`` is for callers with a checksum."""

    def __init__(self, url: str, data: bytes) -> None:
        super().__init__(url, END_UNKNOWN)
        self.data = data


def fetch_url(url: str) -> bytes:
    """Return the bytes at ``url``.

    Raises ``TransportError``, :class:`EndUnknownError`, and the exceptions of ``processes.check_download``.
    """
    from bundles.transport.mirror import download_url  # 2 % of an idle apply, which downloads nothing

    buffer = io.BytesIO()
    with transfer(_name_of(url)):
        is_whole = download_url(url, LIMIT, buffer, deadline=Deadline(TIME_LIMIT, processes.check_download))
    if not is_whole:
        raise EndUnknownError(url, buffer.getvalue())
    return buffer.getvalue()


def fetched(fetch: Callable[[str], bytes], url: str, checksum: str | None) -> bytes:
    """Return the content of a source, verified with a SHA-256 if ``checksum`` is set.

    Without a checksum, an empty file and a file that may be cut short are rejected. Raises ``TransportError``,
    ``ResourceError`` and the exceptions of ``fetch``.
    """
    try:
        data = fetch(url)
    except EndUnknownError as error:
        if checksum is None:
            raise
        data = error.data
    if checksum is None and not data:
        raise ResourceError(f"source {mask_urls(url)} is empty", hint="give its checksum if it should be")
    if checksum is not None and (digest := sha256([data])) != checksum:
        detail = f"source {mask_urls(url)} has sha256 {digest}, expected {checksum}"
        raise ResourceError(detail, code=ProblemCode.CHECKSUM_MISMATCH)
    return data


def _name_of(url: str) -> str:
    """Return the last component of the path. A password can only be before the path, or in the query."""
    path = url.partition("#")[0].partition("?")[0].partition("://")[2].partition("/")[2]
    return path.rpartition("/")[2] or "a remote source"


# Bundle files that a resource copies unchanged. Authors compare them before a release.

_CHUNK = 1024 * 1024  # bytes


class BundledFile(msgspec.Struct, frozen=True):
    """A regular file of the bundle, of any size."""

    path: str
    size: int
    is_secret: bool = False
    executable: bool = False
    """Whether its owner may execute it."""

    def chunks(self) -> Iterable[bytes]:
        """Yield the content in pieces. Raises ``ResourceError`` if the file cannot be read."""
        try:
            with open(self.path, "rb") as file:
                while chunk := file.read(_CHUNK):
                    yield chunk
        except OSError as error:
            raise ResourceError(f"{self.path} cannot be read: {reason(error)}") from error


def bundled_contents(paths: Iterable[str], context: Context, below: str = "") -> Mapping[str, BundledFile]:
    """Return the bundle files of relative paths and all files below directories among them, by written path.

    ``below`` is the place of a directory on the machine, and renames its files accordingly. Absolute paths and URLs are
    skipped, because they are outside the bundle. Raises ``ResourceError`` for a missing file.
    """
    bundled_files: dict[str, BundledFile] = {}
    for path in paths:
        if not os.path.isabs(path) and not is_url(path):
            bundled_files.update(
                _files(context.files.find(path), path.rstrip("/"), below or path.rstrip("/"))
            )
    return bundled_files


_File = TypeVar("_File", bound=msgspec.Struct)


def plain_files(files: Mapping[str, _File]) -> Mapping[str, _File]:
    """Return the contents with ``executable`` cleared, for a resource whose mode makes no file executable."""
    return {path: msgspec.structs.replace(content, executable=False) for path, content in files.items()}


def _files(real: str, written: str, placed: str) -> Iterator[tuple[str, BundledFile]]:
    pending = [(real, written, placed)]  # not recursive: a tree may be deeper than Python's stack
    while pending:
        real, written, placed = pending.pop()
        try:
            status = os.stat(real)
            is_directory = stat.S_ISDIR(status.st_mode)
            names = os.listdir(real) if is_directory else []
        except OSError as error:
            raise ResourceError(
                f"{written} cannot be read: {reason(error)}", code=ProblemCode.MISSING_FILE, name=written
            ) from error
        if stat.S_ISREG(status.st_mode):
            yield placed, BundledFile(real, status.st_size, executable=bool(status.st_mode & stat.S_IXUSR))
        elif not is_directory:
            raise ResourceError(f"{written} is neither a regular file nor a directory")
        pending += (
            (os.path.join(real, name), f"{written}/{name}", f"{placed}/{name}")
            for name in sorted(names, reverse=True)
        )
