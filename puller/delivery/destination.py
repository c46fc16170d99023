"""Destinations of reports: what each kind does with one document.

``puller/config/destinations.py`` has the kinds, one row each, and says how to add one.

A document that was taken may come again, after a kill; it is the same one, under the same name.
"""

from importlib import import_module
from typing import Protocol

from bundles.deadline import Deadline
from bundles.errors import SettingsError, TransportError
from puller.config.configuration import Configuration
from puller.config.destinations import DestinationOptions


class Destination(Protocol):
    """A place that documents are sent to."""

    def send(self, host: str, run: str, data: bytes, deadline: Deadline) -> None:
        """Bring one document there; returns when the destination has it.

        Raises ``RefusedError``, ``DoubtedError``, any other ``BundleError``, ``OSError``, and what the deadline raises.
        """
        ...

    def verify(self) -> None:
        """Raise for what would make every sending fail, without asking the destination.

        Raises ``OSError``, ``ValueError``, ``PullerError`` and ``BundleError``.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class RefusedError(TransportError):
    """The destination will not take this document, whenever it is sent; others it may take."""


class DoubtedError(TransportError):
    """The destination finds fault with the request: with this document, or with whoever sends it."""


def open_destination(configuration: Configuration, options: DestinationOptions) -> Destination:
    """Return the destination that the configuration means, without a connection.

    Raises ``PullerError`` and ``BundleError``.
    """
    if (kind := options.kind) is None:
        raise SettingsError(options.location, "is no destination of reports")
    module, _, name = kind.destination.partition(":")
    destination: Destination = getattr(import_module(module), name)(configuration, options)
    return destination
