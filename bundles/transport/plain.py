"""Connections with ``http.client``, and the two small requests of most runs: the next root, and the timestamp.

Importing ``requests`` takes longer than the rest of a run without changes. ``requests`` handles proxies, and
certificate authorities that the system does not keep in one place. The caller compares the answers of the two requests
with verified metadata.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  names of hosts are encoded when a worker can no longer read Python's files
import http.client
import os
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple, Protocol

from bundles.certificates import accept_alike
from bundles.deadline import Deadline
from bundles.transport.transfer_limits import Reading, answers_under


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
        raise ValueError("the certificate authorities are not in one file")
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


_LARGEST_REFUSAL = 64 * 1024  # bytes of the body of a 404


class Place(NamedTuple):
    """A mirror, and the settings of a connection to it. Times are seconds."""

    scheme: str
    netloc: str
    path: str
    headers: Mapping[str, str]
    connect_timeout: float
    read_timeout: float
    ca_bundle: str | None
    client_cert: None = None
    client_key: None = None


class Glance:
    """A connection to a place. The first request opens it."""

    readable: tuple[str, ...] = ()
    """Readable paths, as in a session of ``bundles.confined.worker``. ``__init__`` reads certificate authorities."""

    def __init__(self, place: Place) -> None:
        """Raises ``ValueError`` and ``OSError`` like ``connect_plainly``."""
        self._place = place
        self._connection = connect_plainly(place.scheme, place.netloc, place)

    def __call__(self, arguments: Any, _into: object) -> tuple[bytes, bytes]:
        """Process a call of a session: `take`, with seconds as the deadline, and the status in digits."""
        root, timestamp, length, seconds = arguments
        status, content = self.take(root, timestamp, length, Deadline(seconds))
        return b"%d" % status, content

    def take(self, root: str, timestamp: str, length: int, deadline: Deadline) -> tuple[int, bytes]:
        """Return the status of ``root``, and the first ``length + 1`` bytes of ``timestamp``.

        Both are paths below the place. The timestamp is requested only if the status of the root is 404. Raises
        ``OSError`` and ``ValueError`` for each failure, and the errors of the deadline.
        """
        reading = Reading(deadline, self._place.read_timeout)
        self._connection.response_class = answers_under(lambda: reading)  # type: ignore[assignment]  # a hook
        try:
            with self._request(root, reading) as answer:
                refusal = answer.read(_LARGEST_REFUSAL)
                if answer.status != HTTPStatus.NOT_FOUND:
                    return answer.status, b""
                if len(refusal) == _LARGEST_REFUSAL:
                    raise ValueError("the body of the response is too large")
            with self._request(timestamp, reading) as answer:
                if answer.status != HTTPStatus.OK:
                    raise ValueError(f"status {answer.status}")
                return HTTPStatus.NOT_FOUND, answer.read(length + 1)
        except HTTPException as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        finally:
            self._connection.close()

    def _request(self, path: str, reading: Reading) -> HTTPResponse:
        reading.ask()
        self._connection.request("GET", f"{self._place.path}/{path}", headers=dict(self._place.headers))
        return self._connection.getresponse()


def open_glance(arguments: Any) -> Glance:
    """Return the operation for a worker. ``arguments`` are the fields of `Place`."""
    return Glance(Place(*arguments))
