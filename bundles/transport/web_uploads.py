"""Documents brought to a web server by ``requests``: for what is out of the ordinary in `bundles.transport.uploads`."""

import contextlib
from http.client import HTTPException

import requests
import urllib3.exceptions as urllib3

from bundles.deadline import Deadline
from bundles.errors import TransportError
from bundles.transport.credentials import request_headers
from bundles.transport.location import Location
from bundles.transport.reading import Reading
from bundles.transport.settings import CHUNK, TransportSettings
from bundles.transport.web import LimitedAdapter, authorities, certificate, proxies, without_secrets
from bundles.transport.web_failures import explain


class WebUploads:
    """`bundles.transport.uploads.Uploads` by ``requests``."""

    def __init__(self, location: Location, settings: TransportSettings) -> None:
        """Connects to nothing yet; raises `SettingsError` for a file of ``settings`` that cannot be read."""
        self._location = location
        self._settings = settings
        self._authorities = authorities(settings)
        self._certificate = certificate(settings)
        self._adapter = LimitedAdapter()
        self._headers = request_headers(location, settings)

    def send(self, method: str, url: str, data: bytes, kind: str, deadline: Deadline) -> int:
        """See `Uploads`; raises as it says."""
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
        # All that requests, urllib3, http.client, sockets and the codecs for host names raise.
        except (requests.RequestException, urllib3.HTTPError, HTTPException, OSError, ValueError) as error:
            deadline.verify()
            _, what = explain(error, self._settings)
            raise TransportError(url, without_secrets(what, self._location, self._settings)) from None

    def close(self) -> None:
        """See `Uploads`."""
        self._adapter.close()

    def _finish(self, answer: requests.Response) -> None:
        """Take a short body off the connection, which can then carry the next request; otherwise it is closed."""
        # The status has been said; what comes behind it changes nothing.
        with contextlib.suppress(urllib3.HTTPError, HTTPException, OSError, ValueError):
            answer.raw.read(CHUNK, decode_content=False)
