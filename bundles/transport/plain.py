"""Connections by ``http.client``, for the requests that most runs send.

Importing ``requests`` takes longer than the rest of a run without changes. Proxies, and certificate authorities that
are not in one place of the system, are left to ``requests``.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  names of hosts are encoded when a worker can no longer read Python's files
import http.client
from typing import Protocol

from bundles.transport.tls import Keys, make_context


class Reach(Keys, Protocol):
    """The settings of a connection."""

    @property
    def connect_timeout(self) -> float: ...


def connect_plainly(scheme: str, netloc: str, settings: Reach) -> http.client.HTTPConnection:
    """Return a connection, which its first request opens, with the client certificate of the settings, if any.

    Raises ``ValueError`` for authorities that only ``bundles.transport.web`` can use, and ``OSError`` for invalid
    files.
    """
    if scheme == "http":
        return http.client.HTTPConnection(netloc, timeout=settings.connect_timeout)
    return http.client.HTTPSConnection(
        netloc, timeout=settings.connect_timeout, context=make_context(settings)
    )
