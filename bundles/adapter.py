"""The adapter of ``requests`` for all HTTPS of this project. See ``bundles/certificates.py``."""

import ssl
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context

from bundles.certificates import accept_alike


class Adapter(HTTPAdapter):
    """Connections that accept the same certificates with all versions of Python."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, ssl_context=_context(), **options)

    def proxy_manager_for(self, proxy: Any, **options: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=_context(), **options)


def session() -> requests.Session:
    """Return a session with this adapter for HTTPS."""
    made = requests.Session()
    made.mount("https://", Adapter())
    return made


def _context() -> ssl.SSLContext:
    context: ssl.SSLContext = create_urllib3_context()
    return accept_alike(context)
