"""Connections of the standard library alone, for what every run says to a server.

``requests`` takes longer to import than all else that a run with nothing to do needs. What it knows and this does not
(a proxy, authorities that the system does not name in one place) is left to it.
"""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bundles.transport.tls import Keys

    class Reach(Keys, Protocol):
        """What of settings counts here."""

        @property
        def connect_timeout(self) -> float: ...


class _Connection(http.client.HTTPConnection):
    """Over HTTP, to a name in ASCII: for one that is text, Python imports the codec of international names."""

    def connect(self) -> None:
        address = (self.host.encode("ascii"), self.port)
        self.sock = socket.create_connection(address, self.timeout)  # type: ignore[arg-type]  # bytes are taken, too
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def connect_plainly(scheme: str, netloc: str, settings: Reach) -> http.client.HTTPConnection:
    """A connection that is made by its first request, with the client certificate if there is one.

    Raises ``ValueError`` for authorities that are a case for ``bundles.transport.web``, ``OSError`` for files that are
    not what they should be.
    """
    if scheme == "http":
        return _Connection(netloc, timeout=settings.connect_timeout)
    from bundles.transport.tls import make_context

    return http.client.HTTPSConnection(
        netloc, timeout=settings.connect_timeout, context=make_context(settings)
    )
