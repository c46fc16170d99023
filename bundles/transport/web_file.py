"""One URL, fetched by ``requests``."""

from typing import BinaryIO

import requests

from bundles.deadline import Deadline
from bundles.errors import SettingsError, UnchangedError
from bundles.transport.location import Location
from bundles.transport.settings import Received, TransportSettings, Validators
from bundles.transport.web import WebMirror


class WebFile:
    """The file at a URL. Credentials in it are for its origin."""

    def __init__(self, url: str, settings: TransportSettings) -> None:
        """Raises `SettingsError` for what is no http or https URL."""
        # A location has no query, because paths are added to it. Here it belongs to the one file that is asked for.
        base, mark, query = url.partition("#")[0].partition("?")
        location = Location.parse(base)
        if location.is_directory:
            raise SettingsError(url, "wanted an http or https URL")
        slash = "/" if base.endswith("/") else ""
        self._mirror = WebMirror(location, settings)
        self._url = f"{location.base}{slash}{mark}{query}"

    def download(
        self, limit: int, into: BinaryIO, known: Validators, deadline: Deadline | None
    ) -> Received | None:
        """Write the file to the empty ``into``, or return ``None`` if the server still has the version ``known``.

        ``deadline`` is for this download; without one the settings have a limit. Raises as `WebMirror.fetch`.
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
