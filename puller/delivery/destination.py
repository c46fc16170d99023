"""Destinations of reports: their common interface, a directory, a web server, and an object store (the extra ``s3``).

``puller/config/report_destinations.py`` lists the kinds. After a kill, a document may arrive twice, with the same
content and name.

A directory of a web server on this machine, or mounted:

* The directory itself must exist. If a medium is not mounted, Puller must not fill the disk below its mount point.
* A file appears only when it is complete. All users can read it, because an import need not run as root.
* The directory may belong to another user. Links on the way are judged as for managed files, and the directory of the
  host is never opened through a link.

Meaning of a response, for every server:

=================  =====================================================================================
2xx                stored
413, 415, 422      this document is refused, permanently
400                this document or this host is refused: nginx reports invalid client certificates so
anything else      try again later
=================  =====================================================================================

For an object store, the configuration may name a proxy and authorities. boto3 finds credentials, region and endpoint.
"""

import contextlib
import os
from http import HTTPStatus
from importlib import import_module
from typing import Protocol
from urllib.parse import quote

from bundles.deadline import Deadline
from bundles.errors import SettingsError, TransportError
from bundles.filesystem.atomic import naming, remove_leftovers, replace_file
from bundles.transport.settings import Location, TransportSettings
from bundles.transport.uploads import open_uploads
from foundation.object_store import Location as StoreLocation
from foundation.object_store import ObjectStore, ObjectStoreError, require_library
from puller.config.configuration import Configuration
from puller.config.report_destinations import HOST, NAMED, RUN, DestinationOptions
from puller.config.transport import settings_for_destination, verify_files
from puller.errors import ResourceError
from puller.system.local_paths import REAL_DIRECTORY, open_safely, require_writable


class Destination(Protocol):
    """A place that stores documents."""

    def send(self, host: str, run: str, data: bytes, deadline: Deadline) -> None:
        """Send one document. Return when the destination has stored it.

        Raises ``RefusedError``, ``DoubtedError``, any other ``BundleError``, ``OSError``, and exceptions of the
        deadline.
        """
        ...

    def verify(self) -> None:
        """Raise for a problem that would make every transfer fail, without contacting the destination.

        Raises ``OSError``, ``ValueError``, ``PullerError`` and ``BundleError``.
        """
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class RefusedError(TransportError):
    """The destination will never accept this document. It may accept others."""


class DoubtedError(TransportError):
    """The destination rejects the request, because of this document or because of its sender."""


def open_destination(configuration: Configuration, options: DestinationOptions) -> Destination:
    """Return the configured destination, without connecting to it.

    Raises ``PullerError`` and ``BundleError``.
    """
    if (kind := options.kind) is None:
        raise SettingsError(options.location, "is not a destination of reports")
    module, _, name = kind.destination.partition(":")
    destination: Destination = getattr(import_module(module), name)(configuration, options)
    return destination


_CONTENT_TYPE = "application/gzip"
_MODE, _MODE_OF_DIRECTORY = 0o644, 0o755


class DirectoryDestination:
    """The directory of ``options``. Methods are those of ``Destination``."""

    def __init__(self, configuration: Configuration, options: DestinationOptions) -> None:
        del configuration
        self._path = os.path.abspath(options.location)

    def send(self, host: str, run: str, data: bytes, deadline: Deadline) -> None:
        """See ``Destination`` for the errors that it raises."""
        path = f"{self._path}/{host}/{run}.json.gz"
        try:
            with naming(path), open_safely(self._path) as directory:
                self._write(directory, host, f"{run}.json.gz", data, deadline)
        except ResourceError as error:
            raise TransportError(self._path, str(error)) from None

    def _write(self, directory: int, host: str, name: str, data: bytes, deadline: Deadline) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(host, _MODE_OF_DIRECTORY, dir_fd=directory)
            os.chmod(host, _MODE_OF_DIRECTORY, dir_fd=directory)  # independent of the umask
        own = os.open(host, REAL_DIRECTORY, dir_fd=directory)
        try:
            remove_leftovers(own)
            deadline.verify()  # a thread that ran past its deadline must not write
            replace_file(own, name, [data], mode=_MODE)
        finally:
            os.close(own)

    def verify(self) -> None:
        """See ``Destination`` for the errors that it raises."""
        require_writable(self._path)

    def close(self) -> None:
        """Do nothing, because no connection stays open."""


_REFUSED_STATUSES = (
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
        status = self._uploads.send(self._method, url, data, _CONTENT_TYPE, deadline)
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
    if status in _REFUSED_STATUSES:
        return RefusedError(url, detail)
    return (DoubtedError if status == HTTPStatus.BAD_REQUEST else TransportError)(url, detail)


_REFUSED_CODES = frozenset({"EntityTooLarge", "InvalidDigest"})


class ObjectStoreDestination:
    """The bucket and the prefix of ``options``. Methods are those of ``Destination``."""

    def __init__(self, configuration: Configuration, options: DestinationOptions) -> None:
        self._location = StoreLocation.parse(options.location)
        self._settings = settings_for_destination(configuration, options)
        self._store: ObjectStore | None = None

    def send(self, host: str, run: str, data: bytes, deadline: Deadline) -> None:
        """See ``Destination`` for the errors that it raises."""
        try:
            if self._store is None:
                # Within the deadline, because opening reads files and may request the machine's role.
                self._store = _open(self._location, self._settings, deadline)
            deadline.verify()
            self._store.write(f"{host}/{run}.json.gz", data, content_type=_CONTENT_TYPE)
        except ObjectStoreError as error:
            failure = RefusedError if error.code in _REFUSED_CODES else TransportError
            raise failure(error.where, error.message) from None

    def verify(self) -> None:
        """See ``Destination`` for the errors that it raises."""
        verify_files(self._settings)
        require_library()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def _open(location: StoreLocation, settings: TransportSettings, deadline: Deadline) -> ObjectStore:
    proxy = settings.proxy.reveal() if settings.proxy else ""
    return ObjectStore(
        location,
        retries={"total_max_attempts": 1, "mode": "standard"},  # the next run tries again
        connect_timeout=deadline.at_most(settings.connect_timeout),
        read_timeout=deadline.at_most(settings.read_timeout),
        proxies={"http": proxy, "https": proxy} if proxy else None,
        verify=settings.ca_bundle,
    )
