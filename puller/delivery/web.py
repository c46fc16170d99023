"""A web server as a destination of reports, by PUT or POST.

Meaning of a response, for every server:

=================  =====================================================================================
2xx                stored
413, 415, 422      this document is refused, permanently
400                this document or this host is refused: nginx reports invalid client certificates so
anything else      try again later
=================  =====================================================================================
"""

from http import HTTPStatus
from urllib.parse import quote

from bundles.deadline import Deadline
from bundles.errors import TransportError
from bundles.transport.settings import Location
from bundles.transport.uploads import open_uploads
from puller.config.configuration import Configuration
from puller.config.destinations import HOST, NAMED, RUN, DestinationOptions
from puller.config.transport import settings_for_destination, verify_files
from puller.delivery.destination import DoubtedError, RefusedError

KIND = "application/gzip"

_REFUSED = (
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_HINTS = {
    400: "the server rejects the request (nginx: also an invalid client certificate)",
    401: "wrong or missing credentials",
    403: "the host must not write there, or the server has another name for this host",
    404: "the server accepts no reports there",
    405: "the server does not accept this method there",
    409: "the server creates no directories (nginx: create_full_put_path on)",
    413: "the document is too large for the server (nginx: client_max_body_size)",
    507: "the disk of the server is full",
}


class WebDestination:
    """The URL of ``options``. Methods are those of ``Destination``."""

    def __init__(self, configuration: Configuration, options: DestinationOptions) -> None:
        location = Location.parse(options.location)
        self._template = location.base
        if options.location.endswith("/"):  # many servers treat the URL without the slash as another one
            self._template += "/" if options.method == "POST" else f"/{_name_below(location.base)}"
        self._method = options.method or "PUT"
        self._settings = settings_for_destination(configuration, options)
        self._uploads = open_uploads(location, self._settings)

    def send(self, host: str, run: str, data: bytes, deadline: Deadline) -> None:
        """See ``Destination`` for the errors that it raises."""
        url = self._template.replace(HOST, quote(host, safe="")).replace(RUN, quote(run, safe=""))
        status = self._uploads.send(self._method, url, data, KIND, deadline)
        if 200 <= status < 300:
            return
        raise _refusal(url, self._method, status)

    def verify(self) -> None:
        """See ``Destination`` for the errors that it raises."""
        verify_files(self._settings)

    def close(self) -> None:
        self._uploads.close()


def _name_below(base: str) -> str:
    return f"{RUN}.json.gz" if HOST in base else NAMED


def _refusal(url: str, method: str, status: int) -> TransportError:
    """Return the error for a status. Its text does not quote the server, which could send anything."""
    hint = (
        "the server redirects, so configure the new location"
        if 300 <= status < 400
        else _HINTS.get(status, "")
    )
    detail = f"{method} failed with status {status}{': ' if hint else ''}{hint}"
    if status in _REFUSED:
        return RefusedError(url, detail)
    return (DoubtedError if status == HTTPStatus.BAD_REQUEST else TransportError)(url, detail)
