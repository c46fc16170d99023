"""Clients of a web server in an unprivileged worker, and downloads of URLs outside of sites.

* The worker runs `bundles.transport.web`.
* Downloads raise the errors of `bundles.transport.mirror.Mirror.download`, and `SettingsError` for an invalid URL.
"""

from typing import BinaryIO
from urllib.parse import quote

from bundles.confined.current import current
from bundles.confined.network import Connection, Network
from bundles.deadline import Deadline, DeadlineError
from bundles.errors import TransportError
from bundles.transport.location import Location
from bundles.transport.settings import (
    LONGEST_VALIDATOR,
    Received,
    TransportSettings,
    Validators,
    deadline_of,
    handed_over,
    require_files,
    too_late,
)

_SESSIONS = "bundles.transport.sessions"


class ConfinedMirror:
    """A mirror with the methods of ``bundles.transport.mirror.Mirror``."""

    is_remote = True

    def __init__(
        self,
        network: Network,
        location: Location,
        settings: TransportSettings,
        deadline: Deadline | None,
    ) -> None:
        """Raises `SettingsError` for an unreadable file of ``settings``. Does not connect."""
        require_files(settings)
        self._network = network
        self._location = location
        self._settings = settings
        self._common_deadline = deadline
        self._connection: Connection | None = None

    def __str__(self) -> str:
        return str(self._location)

    def download(
        self, path: str, limit: int, into: BinaryIO, *, resume: bool = False, is_exact: bool = False
    ) -> bool:
        """Download a file, as in ``Mirror``. Raises the same errors, and the errors of the deadline's ``check``."""
        url = f"{self._location.base}/{quote(path, safe='/+~%')}"
        deadline = deadline_of(url, self._settings, self._common_deadline)
        if self._connection is None or self._connection.is_over:
            arguments = handed_over(self._location, self._settings)
            self._connection = self._network.open(f"{_SESSIONS}:open_mirror", arguments, str(self))
        try:
            call = (path, limit, resume, is_exact, deadline.left)
            return [*self._connection.call(call, deadline, into, limit, resume=resume)] == [b"1"]
        except DeadlineError:
            raise too_late(url, deadline) from None


class ConfinedUploads:
    """Documents for one origin, with the methods of ``bundles.transport.uploads.Uploads``."""

    def __init__(self, network: Network, location: Location, settings: TransportSettings) -> None:
        """Raises `SettingsError` for an unreadable file of ``settings``. Does not connect."""
        require_files(settings)
        self._connection = network.open(
            f"{_SESSIONS}:open_uploads", handed_over(location, settings), str(location)
        )

    def send(self, method: str, url: str, data: bytes, kind: str, deadline: Deadline) -> int:
        """Send a document, as in ``Uploads``. Raises the same errors."""
        status, *_ = [*self._connection.call((method, url, data, kind, deadline.left), deadline), b""]
        if not (len(status) == 3 and status.isdigit()):
            raise TransportError(url, "the process for the network returned an invalid status")
        return int(status)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def fetch_file(
    network: Network,
    url: str,
    limit: int,
    into: BinaryIO,
    known: Validators,
    settings: TransportSettings,
    common: Deadline | None,
) -> Received | None:
    """Download a URL like ``bundles.transport.confined_web.download_if_changed``. Raises the same errors."""
    require_files(settings)
    deadline = deadline_of(url, settings, common)
    base = url.partition("#")[0].partition("?")[0]
    arguments = (url, *handed_over(Location(base), settings))
    connection = network.open(f"{_SESSIONS}:open_file", arguments, url)
    try:
        call = (limit, (known.etag, known.last_modified), deadline.left)
        fields = connection.call(call, deadline, into, limit)
    except DeadlineError:
        raise too_late(url, deadline) from None
    finally:
        connection.close()
    if len(fields) != 3:
        return None
    etag, date, is_whole = (field.decode("ascii", "replace")[: LONGEST_VALIDATOR + 1] for field in fields)
    return Received(Validators.of({"ETag": etag, "Last-Modified": date}), is_whole == "1")


def download_url(
    url: str,
    limit: int,
    into: BinaryIO,
    settings: TransportSettings | None = None,
    deadline: Deadline | None = None,
) -> bool:
    """Download an http or https URL to the empty ``into``. Raises like `Mirror.download`.

    Returns whether the server has stated where the file ends. Credentials in the URL are sent to its origin only.
    ``settings`` must not contain the credentials of a site.
    """
    received = download_if_changed(url, limit, into, Validators(), settings, deadline)
    return received is not None and received.is_whole


def download_if_changed(
    url: str,
    limit: int,
    into: BinaryIO,
    known: Validators,
    settings: TransportSettings | None = None,
    deadline: Deadline | None = None,
) -> Received | None:
    """Download like `download_url`, or return ``None`` if the server still has the version ``known``."""
    settings = settings or TransportSettings()
    if (network := current()) is not None:
        return fetch_file(network, url, limit, into, known, settings, deadline)
    from bundles.transport.web_transfers import WebFile  # requests takes 80 % of an idle run

    return WebFile(url, settings).download(limit, into, known, deadline)
