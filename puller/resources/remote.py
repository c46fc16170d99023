"""Remote sources of resources: the content of a URL that a manifest names.

Without the site's credentials: a manifest may name any server, and those belong to the site alone.
"""

import io
from collections.abc import Callable

from bundles.deadline import Deadline
from bundles.errors import TransportError
from bundles.progress import transfer
from foundation.masking import mask_urls
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.checksums import sha256
from puller.system import signals

LIMIT = 512 * 1024 * 1024
"""The most bytes that a remote source may have; it is held in memory."""


TIME_LIMIT = 300.0
"""Seconds; for all of it, with its redirects and retries."""


def is_url(source: str) -> bool:
    """Whether a source is fetched from a server, and not a file of this machine or of the bundle."""
    return source.startswith(("http://", "https://"))


class EndUnknownError(TransportError):
    """A file that may be cut short: the server states no length. ``data`` is for callers with a checksum."""

    def __init__(self, url: str, data: bytes) -> None:
        from bundles.transport.settings import END_UNKNOWN

        super().__init__(url, END_UNKNOWN)
        self.data = data


def fetch_url(url: str) -> bytes:
    """Return the bytes at ``url``.

    Raises ``TransportError``, :class:`EndUnknownError`, and as ``signals.check_download``.
    """
    from bundles.transport.download import download_url  # and with it requests, which is slow to import

    buffer = io.BytesIO()
    with transfer(_name_of(url)):
        is_whole = download_url(url, LIMIT, buffer, deadline=Deadline(TIME_LIMIT, signals.check_download))
    if not is_whole:
        raise EndUnknownError(url, buffer.getvalue())
    return buffer.getvalue()


def fetched(fetch: Callable[[str], bytes], url: str, checksum: str | None) -> bytes:
    """Return the content of a source, which has this SHA-256 if one is given.

    Without a checksum, an empty file and a file that may be cut short are refused. Raises ``TransportError``,
    ``ResourceError`` and what ``fetch`` raises.
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
        what = f"source {mask_urls(url)} has sha256 {digest}, wanted {checksum}"
        raise ResourceError(what, code=ProblemCode.CHECKSUM_MISMATCH)
    return data


def _name_of(url: str) -> str:
    """The last component of its path: a password is in what comes before the path, or in the query."""
    path = url.partition("#")[0].partition("?")[0].partition("://")[2].partition("/")[2]
    return path.rpartition("/")[2] or "a remote source"
