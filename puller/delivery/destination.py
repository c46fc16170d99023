"""Destinations of reports, and how each kind stores one document.

``puller/config/destinations.py`` lists the kinds and describes how to add one. After a kill, a document may arrive
twice, with the same content and name.
"""

from importlib import import_module
from typing import Protocol

from bundles.deadline import Deadline
from bundles.errors import SettingsError, TransportError
from puller.config.configuration import Configuration
from puller.config.destinations import DestinationOptions


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
