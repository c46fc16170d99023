"""Remote sources of resources: the content of a URL that a manifest names.

Without the site's credentials: a manifest may name any server, and those belong to the site alone.
"""

import io

LIMIT = 512 * 1024 * 1024
"""The most bytes that a remote source may have; it is held in memory."""


def fetch_url(url: str) -> bytes:
    """The bytes at ``url``; raises ``TransportError``."""
    from bundles.transport import download_url  # and with it requests, which is slow to import

    buffer = io.BytesIO()
    download_url(url, LIMIT, buffer)
    return buffer.getvalue()
