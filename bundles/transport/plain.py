"""Connections of the standard library alone, for what every run says to a server.

``requests`` takes longer to import than all else that a run with nothing to do needs. What it knows and this does not
(a proxy, authorities that the system does not name in one place) is left to it.
"""

import http.client
import os
import socket

from bundles.transport.settings import TransportSettings

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class _Connection(http.client.HTTPConnection):
    """Over HTTP, to a name in ASCII: for one that is text, Python imports the codec of international names."""

    def connect(self) -> None:
        address = (self.host.encode("ascii"), self.port)
        self.sock = socket.create_connection(address, self.timeout)  # type: ignore[arg-type]  # bytes are taken, too
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def connect_plainly(scheme: str, netloc: str, settings: TransportSettings) -> http.client.HTTPConnection:
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


def goes_through_proxy(settings: TransportSettings) -> bool:
    """Whether a proxy is configured, or the environment names one, be it for other URLs."""
    environment = {name.lower() for name, value in os.environ.items() if value}
    return bool(settings.proxy and settings.proxy.reveal()) or not environment.isdisjoint(_PROXIES)
