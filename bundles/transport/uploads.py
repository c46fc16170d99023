"""Uploads of documents to a web server, with one request each, no retries and no redirects.

* Credentials, client certificate, proxies and certificate authorities work as for sites (`bundles.transport.web`).
* A redirect is not followed, because the server must not choose where the body is sent.
* Only the status of a response is kept, and only a short part of its body is read.
* `ConfinedUploads` uses an unprivileged worker, if the network of this process is confined.
* `PlainUploads` uses the standard library alone, which covers the usual case.
"""

import contextlib
import http.client
from typing import Protocol
from urllib.parse import quote, urlsplit

from bundles.confined.current import current
from bundles.confined.network import Network
from bundles.deadline import Deadline
from bundles.errors import TransportError
from bundles.transport.plain import Reading, answers_under, connect_plainly
from bundles.transport.settings import (
    CHUNK,
    Location,
    TransportSettings,
    handed_over,
    request_headers,
    require_files,
    uses_proxy,
)


class PlainUploads:
    """`Uploads` with the standard library only, without proxies."""

    def __init__(self, location: Location, settings: TransportSettings) -> None:
        """Raises ``ValueError`` and ``OSError`` if the standard library is not enough."""
        url_parts = urlsplit(location.base)
        self._location = location
        self._settings = settings
        self._headers = request_headers(location, settings)
        self._connection = connect_plainly(url_parts.scheme, url_parts.netloc, settings)

    def send(self, method: str, url: str, data: bytes, kind: str, deadline: Deadline) -> int:
        """Send a document, as in `Uploads`. Raises the same errors."""
        reading = Reading(deadline, self._settings.read_timeout)
        connection = self._connection
        connection.response_class = answers_under(lambda: reading)  # type: ignore[assignment]  # a hook
        try:
            if connection.sock is None:
                self._connect(url, deadline)
            path = quote(urlsplit(url).path or "/", safe="/%:@!$&'()*+,;=~")
            # A server may respond and close the connection before it has read a body that it rejects.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, data, {**self._headers, "Content-Type": kind})
            answer = connection.getresponse()
        except (http.client.HTTPException, OSError, ValueError) as error:
            connection.close()
            deadline.verify()
            raise self._failure(error, url) from None
        self._finish(answer)
        return answer.status

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _connect(self, url: str, deadline: Deadline) -> None:
        self._connection.timeout = deadline.at_most(self._settings.connect_timeout)
        try:
            self._connection.connect()
        except TimeoutError:
            deadline.verify()
            raise TransportError(url, f"no connection within {self._settings.connect_timeout:g} s") from None

    def _finish(self, answer: http.client.HTTPResponse) -> None:
        """Read a short body, so that the connection can carry the next request. Otherwise close the connection."""
        # The status is known, so errors in the body do not matter.
        with contextlib.suppress(http.client.HTTPException, OSError, ValueError):
            answer.read(CHUNK)
        if not answer.isclosed():
            answer.close()
            self._connection.close()

    def _failure(self, error: Exception, url: str) -> TransportError:
        # requests takes 80 % of an idle run
        from bundles.transport.web import without_secrets
        from bundles.transport.web_failures import explain

        _, detail = explain(error, self._settings)
        return TransportError(url, without_secrets(detail, self._location, self._settings))


class ConfinedUploads:
    """`Uploads` whose requests an unprivileged worker makes."""

    def __init__(self, network: Network, location: Location, settings: TransportSettings) -> None:
        """Raises `SettingsError` for an unreadable file of ``settings``. Does not connect."""
        require_files(settings)
        self._connection = network.open(
            "bundles.transport.sessions:open_uploads", handed_over(location, settings), str(location)
        )

    def send(self, method: str, url: str, data: bytes, kind: str, deadline: Deadline) -> int:
        """Send a document, as in `Uploads`. Raises the same errors."""
        status, *_ = [*self._connection.call((method, url, data, kind, deadline.left), deadline), b""]
        if not (len(status) == 3 and status.isdigit()):
            raise TransportError(url, "the process for the network returned an invalid status")
        return int(status)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Uploads(Protocol):
    """Requests with a body to URLs of one origin, over a persistent connection."""

    def send(self, method: str, url: str, data: bytes, kind: str, deadline: Deadline) -> int:
        """Send a document, and return the status. ``kind`` is the media type of ``data``.

        The name resolution may block longer than the deadline, so call this in another thread. Raises `TransportError`,
        ``DeadlineError``, and the errors of the deadline's ``check``.
        """
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


def open_uploads(location: Location, settings: TransportSettings) -> Uploads:
    """Return `Uploads` for the origin of a location, without connecting.

    Raises `SettingsError` for an unreadable file of ``settings``.
    """
    if (network := current()) is not None:
        return ConfinedUploads(network, location, settings)
    return open_uploads_here(location, settings)


def open_uploads_here(location: Location, settings: TransportSettings) -> Uploads:
    """Return `Uploads` like `open_uploads`, in this process."""
    if location.base.isascii() and not uses_proxy(settings):
        # `WebUploads` reports problems with files.
        with contextlib.suppress(OSError, ValueError):
            return PlainUploads(location, settings)
    from bundles.transport.web_transfers import WebUploads  # requests takes 80 % of an idle run

    return WebUploads(location, settings)
