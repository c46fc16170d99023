"""Remote sources of resources: the content of a URL that a manifest names.

Without the site's credentials: a manifest may name any server, and those belong to the site alone.
"""

import io
from urllib.parse import urlsplit

LIMIT = 512 * 1024 * 1024
"""The most bytes that a remote source may have; it is held in memory."""


def fetch_url(url: str) -> bytes:
    """The bytes at ``url``; raises ``TransportError``."""
    from bundles.transport import TransportSettings, open_mirrors  # requests is slow to import

    parts = urlsplit(url)
    base, _, name = parts.path.rpartition("/")
    (mirror,) = open_mirrors([parts._replace(path=f"{base}/", query="").geturl()], TransportSettings())
    buffer = io.BytesIO()
    mirror.download(f"{name}?{parts.query}" if parts.query else name, LIMIT, buffer)
    return buffer.getvalue()
