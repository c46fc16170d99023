"""Destinations of reports: their common interface, and a directory of a web server on this machine, or mounted.

``puller/config/destinations.py`` lists the kinds and describes how to add one. After a kill, a document may arrive
twice, with the same content and name.

A directory:

* The directory itself must exist. If a medium is not mounted, Puller must not fill the disk below its mount point.
* A file appears only when it is complete. All users can read it, because an import need not run as root.
* The directory may belong to another user. Links on the way are judged as for managed files, and the directory of the
  host is never opened through a link.
"""

import contextlib
import os
from importlib import import_module
from typing import Protocol

from bundles.deadline import Deadline
from bundles.errors import SettingsError, TransportError
from bundles.filesystem.atomic import naming, remove_leftovers, replace_file
from puller.config.configuration import Configuration
from puller.config.destinations import DestinationOptions
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
