"""Remote sources of resources: the content of a URL that a manifest names.

Without the site's credentials: a manifest may name any server, and those belong to the site alone.
"""

import io

from bundles.progress import transfer
from puller.system import signals

LIMIT = 512 * 1024 * 1024
"""The most bytes that a remote source may have; it is held in memory."""


TIME_LIMIT = 300.0
"""Seconds; for all of it, with its redirects and retries."""


def is_url(source: str) -> bool:
    """Whether a source is fetched from a server, and not a file of this machine or of the bundle."""
    return source.startswith(("http://", "https://"))


def fetch_url(url: str) -> bytes:
    """The bytes at ``url``; raises ``TransportError``, and as ``signals.check_download``."""
    from bundles.deadline import Deadline
    from bundles.transport.download import download_url  # and with it requests, which is slow to import

    buffer = io.BytesIO()
    with transfer(_name_of(url)):
        download_url(url, LIMIT, buffer, deadline=Deadline(TIME_LIMIT, signals.check_download))
    return buffer.getvalue()


def _name_of(url: str) -> str:
    """The last component of its path: a password is in what comes before the path, or in the query."""
    path = url.partition("#")[0].partition("?")[0].partition("://")[2].partition("/")[2]
    return path.rpartition("/")[2] or "a remote source"
