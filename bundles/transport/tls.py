"""The TLS of connections that are made without ``requests``."""

from __future__ import annotations

import os
import ssl
from typing import Protocol

from bundles.certificates import accept_alike


class Keys(Protocol):
    """The settings of TLS."""

    @property
    def ca_bundle(self) -> str | None: ...
    @property
    def client_cert(self) -> str | None: ...
    @property
    def client_key(self) -> str | None: ...


def make_context(settings: Keys) -> ssl.SSLContext:
    """The context with the authorities that ``bundles.transport.web`` has, and the client certificate if there is one.

    Raises ``ValueError`` for authorities that are a case for that module, ``OSError`` for files that are not what they
    should be.
    """
    # Where the system has none, that is a case for it.
    paths = ssl.get_default_verify_paths()
    file, directory = settings.ca_bundle or paths.cafile, None if settings.ca_bundle else paths.capath
    if not (file or directory) or (settings.ca_bundle and os.path.isdir(settings.ca_bundle)):
        raise ValueError("the authorities are not in one file")
    context = accept_alike(ssl.create_default_context(cafile=file, capath=directory))
    if settings.client_cert is not None:
        context.load_cert_chain(settings.client_cert, settings.client_key)
    return context
