"""Connections with ``http.client``, and their TLS context, for the requests of most runs.

Importing ``requests`` takes longer than the rest of a run without changes. ``requests`` handles proxies, and
certificate authorities that the system does not keep in one place.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  names of hosts are encoded when a worker can no longer read Python's files
import http.client
import os
import ssl
from typing import Protocol

from bundles.certificates import accept_alike


class Keys(Protocol):
    """The TLS settings."""

    @property
    def ca_bundle(self) -> str | None: ...
    @property
    def client_cert(self) -> str | None: ...
    @property
    def client_key(self) -> str | None: ...


def make_context(settings: Keys) -> ssl.SSLContext:
    """Return a context with the authorities of ``bundles.transport.web``, and the client certificate if configured.

    Raises ``ValueError`` for authorities that only that module supports, and ``OSError`` for invalid files.
    """
    # `requests` has its own authorities if the system has none.
    paths = ssl.get_default_verify_paths()
    file, directory = settings.ca_bundle or paths.cafile, None if settings.ca_bundle else paths.capath
    if not (file or directory) or (settings.ca_bundle and os.path.isdir(settings.ca_bundle)):
        raise ValueError("the authorities are not in one file")
    context = accept_alike(ssl.create_default_context(cafile=file, capath=directory))
    if settings.client_cert is not None:
        context.load_cert_chain(settings.client_cert, settings.client_key)
    return context


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
