"""Two small requests to a mirror over one connection: is there a newer root, and what is the timestamp?

Apart from who judges the answers, and light, because it is what most runs say to the network, and all of it.
"""

from __future__ import annotations

import http.client

from bundles.deadline import Deadline
from bundles.transport.plain import connect_plainly
from bundles.transport.reading import Reading, answers_under

TYPE_CHECKING = False  # as in ``bundles.deadline``
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LONGEST_REFUSAL = 64 * 1024  # bytes of what a server says beside a 404
_FOUND, _NOT_FOUND = 200, 404


class Place:
    """A mirror, and how it is reached; with what ``plain.connect_plainly`` takes from settings."""

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
        """Raises ``ValueError`` and ``OSError`` for authorities, as ``connect_plainly``."""
        self._place = place
        self._connection = connect_plainly(place.scheme, place.netloc, place)
        if place.scheme == "https":
            import encodings.idna  # noqa: F401  asked for by each name of a host that is text

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
        self._connection.response_class = answers_under(lambda: reading)  # type: ignore[assignment]  # a hook
        try:
            status = self._status_of(root)
            return status, self._content_of(timestamp, length) if status == _NOT_FOUND else b""
        except http.client.HTTPException as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        finally:
            self._connection.close()

    def _status_of(self, path: str) -> int:
        response = self._get(path)
        # To its end: the connection is used again.
        if len(response.read(_LONGEST_REFUSAL)) >= _LONGEST_REFUSAL:
            raise ValueError("a long answer")
        return response.status

    def _content_of(self, path: str, length: int) -> bytes:
        response = self._get(path)
        if response.status != _FOUND:
            raise ValueError(f"status {response.status}")
        return response.read(length + 1)

    def _get(self, path: str) -> http.client.HTTPResponse:
        self._connection.request("GET", f"{self._place.path}/{path}", headers=dict(self._place.headers))
        return self._connection.getresponse()


def open_glance(arguments: Any) -> Glance:
    """The operation for a worker; ``arguments`` are those of `Place`."""
    return Glance(Place(*arguments))
