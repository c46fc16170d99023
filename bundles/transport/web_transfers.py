"""Downloads of one URL and uploads of documents with ``requests``.

``requests`` covers the unusual cases, such as proxies. The usual cases use ``http.client``
(`bundles.transport.plain`).
"""

import contextlib
from http.client import HTTPException
from typing import BinaryIO

import requests
import urllib3.exceptions as urllib3

from bundles.deadline import Deadline
from bundles.errors import SettingsError, TransportError, UnchangedError
from bundles.transport.plain import Reading
from bundles.transport.settings import (
    CHUNK,
    Location,
    Received,
    TransportSettings,
    Validators,
    request_headers,
)
from bundles.transport.web import (
    LimitedAdapter,
    WebMirror,
    authorities,
    certificate,
    proxies,
    without_secrets,
)
from bundles.transport.web_failures import explain


class WebFile:
    """The file at a URL. Credentials in the URL are sent to its origin only."""

    def __init__(self, url: str, settings: TransportSettings) -> None:
        """Raises `SettingsError` unless ``url`` is an http or https URL."""
        # A location has no query, because paths are added to it. Here the query belongs to the only file.
        base, mark, query = url.partition("#")[0].partition("?")
        location = Location.parse(base)
        if location.is_directory:
            raise SettingsError(url, "expected an http or https URL")
        slash = "/" if base.endswith("/") else ""
        self._mirror = WebMirror(location, settings)
        self._url = f"{location.base}{slash}{mark}{query}"

    def download(
        self, limit: int, into: BinaryIO, known: Validators, deadline: Deadline | None
    ) -> Received | None:
        """Write the file to the empty ``into``, or return ``None`` if the server still has the version ``known``.

        ``deadline`` applies to this download. By default, the settings limit it. Raises like `WebMirror.fetch`.
        """
        found = Validators()

        def note(response: requests.Response, _start: bytes) -> None:
            nonlocal found
            found = Validators.of(response.headers)

        self._mirror.deadline = deadline
        try:
            is_whole = self._mirror.fetch(self._url, limit, into, note, known.headers())
        except UnchangedError:
            return None
        return Received(found, is_whole)


class WebUploads:
    """`bundles.transport.uploads.Uploads` with ``requests``."""

    def __init__(self, location: Location, settings: TransportSettings) -> None:
        """Raises `SettingsError` for an unreadable file of ``settings``. Does not connect."""
        self._location = location
        self._settings = settings
        self._authorities = authorities(settings)
        self._certificate = certificate(settings)
        self._adapter = LimitedAdapter()
        self._headers = request_headers(location, settings)

    def send(self, method: str, url: str, data: bytes, kind: str, deadline: Deadline) -> int:
        """Send a document, as in `Uploads`. Raises the same errors."""
        reading = Reading(deadline, self._settings.read_timeout)
        self._adapter.reading = reading
        request = requests.Request(method, url, {**self._headers, "Content-Type": kind}, data=data)
        try:
            limits = (deadline.at_most(self._settings.connect_timeout), self._settings.read_timeout)
            answer = self._adapter.send(
                request.prepare(),
                cert=self._certificate,
                verify=self._authorities,
                proxies=proxies(url, self._settings),
                timeout=limits,
                stream=True,
            )
            with contextlib.closing(answer):
                self._finish(answer)
                return answer.status_code
        # All errors of requests, urllib3, http.client, sockets and the codecs for host names.
        except (requests.RequestException, urllib3.HTTPError, HTTPException, OSError, ValueError) as error:
            deadline.verify()
            _, detail = explain(error, self._settings)
            raise TransportError(url, without_secrets(detail, self._location, self._settings)) from None

    def close(self) -> None:
        """Close all connections."""
        self._adapter.close()

    def _finish(self, answer: requests.Response) -> None:
        """Read a short body, so that the connection can carry the next request. Otherwise close the connection."""
        # The status is known, so errors in the body do not matter.
        with contextlib.suppress(urllib3.HTTPError, HTTPException, OSError, ValueError):
            answer.raw.read(CHUNK, decode_content=False)
