"""Uploads of documents to a web server, with one request each, no retries and no redirects.

* Credentials, client certificate, proxies and certificate authorities work as for sites (`bundles.transport.web`).
* A redirect is not followed, because the server must not choose where the body is sent.
* Only the status of a response is kept, and only a short part of its body is read.
* `PlainUploads` uses the standard library alone, which covers the usual case.
"""

import contextlib
import http.client
from typing import Protocol
from urllib.parse import quote, urlsplit

from bundles.confined.current import current
from bundles.deadline import Deadline
from bundles.errors import TransportError
from bundles.transport.confined_web import ConfinedUploads
from bundles.transport.location import Location
from bundles.transport.plain import connect_plainly
from bundles.transport.settings import CHUNK, TransportSettings, goes_through_proxy, request_headers
from bundles.transport.transfer_limits import Reading, answers_under


class PlainUploads:
    """`Uploads` by the standard library alone, without proxies."""

    def __init__(self, location: Location, settings: TransportSettings) -> None:
        """Raises ``ValueError`` and ``OSError`` where this is no way."""
        parts = urlsplit(location.base)
        self._location = location
        self._settings = settings
        self._headers = request_headers(location, settings)
        self._connection = connect_plainly(parts.scheme, parts.netloc, settings)

    def send(self, method: str, url: str, data: bytes, kind: str, deadline: Deadline) -> int:
        """See `Uploads`; raises as it says."""
        reading = Reading(deadline, self._settings.read_timeout)
        connection = self._connection
        connection.response_class = answers_under(lambda: reading)  # type: ignore[assignment]  # a hook
        try:
            if connection.sock is None:
                self._connect(url, deadline)
            path = quote(urlsplit(url).path or "/", safe="/%:@!$&'()*+,;=~")
            # A server may answer, and close, before it has read all that it will not take.
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
        """See `Uploads`."""
        self._connection.close()

    def _connect(self, url: str, deadline: Deadline) -> None:
        self._connection.timeout = deadline.at_most(self._settings.connect_timeout)
        try:
            self._connection.connect()
        except TimeoutError:
            deadline.verify()
            raise TransportError(url, f"no connection within {self._settings.connect_timeout:g} s") from None

    def _finish(self, answer: http.client.HTTPResponse) -> None:
        """Take a short body off the connection, which can then carry the next request; otherwise close it."""
        # The status has been said; what comes behind it changes nothing.
        with contextlib.suppress(http.client.HTTPException, OSError, ValueError):
            answer.read(CHUNK)
        if not answer.isclosed():
            self._connection.close()

    def _failure(self, error: Exception, url: str) -> TransportError:
        from bundles.transport.web import without_secrets  # requests takes 80 % of an idle run
        from bundles.transport.web_failures import explain

        _, what = explain(error, self._settings)
        return TransportError(url, without_secrets(what, self._location, self._settings))


class Uploads(Protocol):
    """Requests with a body to URLs of one origin, over a connection that is kept."""

    def send(self, method: str, url: str, data: bytes, kind: str, deadline: Deadline) -> int:
        """The status that a server answers with; ``kind`` is the media type of ``data``.

        It may block in the resolver for longer than the deadline, so it is to be called aside. Raises `TransportError`,
        ``DeadlineError``, and what the deadline's ``check`` raises.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


def open_uploads(location: Location, settings: TransportSettings) -> Uploads:
    """The way to the origin of a location; connects to nothing yet.

    Raises `SettingsError` for a file of ``settings`` that cannot be read.
    """
    if (network := current()) is not None:
        return ConfinedUploads(network, location, settings)
    return open_uploads_here(location, settings)


def open_uploads_here(location: Location, settings: TransportSettings) -> Uploads:
    """As `open_uploads`, in this process."""
    if location.base.isascii() and not goes_through_proxy(settings):
        # What is wrong with files is found, and said, by the other way.
        with contextlib.suppress(OSError, ValueError):
            return PlainUploads(location, settings)
    from bundles.transport.web_transfers import WebUploads  # requests takes 80 % of an idle run

    return WebUploads(location, settings)
