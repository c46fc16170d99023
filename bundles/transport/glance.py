"""Two small requests to a mirror over one connection: is there a newer root, and what is the timestamp?

Apart from who judges the answers, and light, because it is what most runs say to the network, and all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bundles.deadline import Deadline
from bundles.transport.reading import Reading
from bundles.transport.requesting import Requests

_LONGEST_REFUSAL = 64 * 1024  # bytes of what a server says beside a 404
_FOUND, _NOT_FOUND = 200, 404


class Place:
    """A mirror, and how it is reached; with what ``tls.make_context`` takes from settings."""

    client_cert = client_key = None

    def __init__(
        self,
        scheme: str,
        netloc: str,
        path: str,
        headers: Mapping[str, str],
        connect_timeout: float,
        read_timeout: float,
        ca_bundle: str | None,
    ) -> None:
        """Times are seconds."""
        self.scheme = scheme
        self.netloc = netloc
        self.path = path
        self.headers = headers
        self.connect_timeout = connect_timeout
        self.read_timeout = read_timeout
        self.ca_bundle = ca_bundle


class Glance:
    """A connection to a place, which is made by the first request."""

    readable: tuple[str, ...] = ()
    """As a session of ``bundles.confined.worker``: authorities are read when this is made."""

    def __init__(self, place: Place) -> None:
        """Raises ``ValueError`` and ``OSError`` as ``Requests``, and as ``tls.make_context``."""
        self._place = place
        context = None
        if place.scheme == "https":
            import encodings.idna  # noqa: F401  asked for by each name of a host that is text

            from bundles.transport.tls import make_context

            context = make_context(place)
        self._requests = Requests(place.scheme, place.netloc, place.headers, place.connect_timeout, context)

    def __call__(self, arguments: Any, _into: object) -> tuple[bytes, bytes]:
        """As a call of a session: `take`, with seconds instead of a deadline, and the status in digits."""
        root, newest, length, seconds = arguments
        status, timestamp = self.take(root, newest, length, Deadline(seconds))
        return b"%d" % status, timestamp

    def take(self, root: str, timestamp: str, length: int, deadline: Deadline) -> tuple[int, bytes]:
        """The status of ``root``, and the first ``length + 1`` bytes of ``timestamp``; paths below the place.

        The second is asked for only when there is no such root. Raises ``OSError`` and ``ValueError`` for what goes
        wrong, and what the deadline raises.
        """
        reading = Reading(deadline, self._place.read_timeout)
        try:
            answer = self._requests.get(f"{self._place.path}/{root}", _LONGEST_REFUSAL, reading)
            if answer.status != _NOT_FOUND:
                return answer.status, b""
            if not answer.is_whole:
                raise ValueError("a long answer")
            answer = self._requests.get(f"{self._place.path}/{timestamp}", length + 1, reading)
            if answer.status != _FOUND:
                raise ValueError(f"status {answer.status}")
            return _NOT_FOUND, answer.content
        finally:
            self._requests.close()


def open_glance(arguments: Any) -> Glance:
    """The operation for a worker; ``arguments`` are those of `Place`."""
    return Glance(Place(*arguments))
