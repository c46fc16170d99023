"""Connections of the standard library alone, for what every run says to a server.

``requests`` takes longer to import than all else that a run with nothing to do needs. What it knows and this does not
(a proxy, authorities that the system does not name in one place) is left to it.
"""

from __future__ import annotations

import http.client
import os
import socket

TYPE_CHECKING = False  # as in ``bundles.deadline``
if TYPE_CHECKING:
    from typing import Protocol

    class Reach(Protocol):
        """What of settings counts here."""

        @property
        def connect_timeout(self) -> float: ...
        @property
        def ca_bundle(self) -> str | None: ...
        @property
        def client_cert(self) -> str | None: ...
        @property
        def client_key(self) -> str | None: ...


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
    import ssl

    # The same authorities as bundles.transport.web has; where the system has none, that is a case for it.
    paths = ssl.get_default_verify_paths()
    file, directory = settings.ca_bundle or paths.cafile, None if settings.ca_bundle else paths.capath
    if not (file or directory) or (settings.ca_bundle and os.path.isdir(settings.ca_bundle)):
        raise ValueError("the authorities are not in one file")
    context = ssl.create_default_context(cafile=file, capath=directory)
    if settings.client_cert is not None:
        context.load_cert_chain(settings.client_cert, settings.client_key)
    return http.client.HTTPSConnection(netloc, timeout=settings.connect_timeout, context=context)
