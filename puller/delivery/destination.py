"""Destinations of reports: what each kind does with one document.

A document that was taken may come again, after a kill; it is the same one, under the same name.
"""

from typing import Protocol

from bundles.deadline import Deadline
from bundles.errors import TransportError


class Destination(Protocol):
    """A place that documents are sent to."""

    def send(self, host: str, run: str, data: bytes, deadline: Deadline) -> None:
        """Bring one document there; returns when the destination has it.

        Raises ``RefusedError``, ``DoubtedError``, any other ``BundleError``, ``OSError``, and what the deadline raises.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class RefusedError(TransportError):
    """The destination will not take this document, whenever it is sent; others it may take."""


class DoubtedError(TransportError):
    """The destination finds fault with the request: with this document, or with whoever sends it."""
