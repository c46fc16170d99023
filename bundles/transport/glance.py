"""Two small requests to a mirror over one connection: the next root, and the timestamp.

Most runs send only these two requests. Importing ``requests`` takes longer than the rest of such a run, so they use
``http.client``. The caller compares the answers with verified metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple

from bundles.deadline import Deadline
from bundles.transport.plain import connect_plainly
from bundles.transport.transfer_limits import Reading, answers_under

_LARGEST_REFUSAL = 64 * 1024  # bytes of the body of a 404


class Place(NamedTuple):
    """A mirror, and the settings of a connection to it. Times are seconds."""

    scheme: str
    netloc: str
    path: str
    headers: Mapping[str, str]
    connect_timeout: float
    read_timeout: float
    ca_bundle: str | None
    client_cert: None = None
    client_key: None = None


class Glance:
    """A connection to a place. The first request opens it."""

    readable: tuple[str, ...] = ()
    """Readable paths, as in a session of ``bundles.confined.worker``. ``__init__`` reads certificate authorities."""

    def __init__(self, place: Place) -> None:
        """Raises ``ValueError`` and ``OSError`` like ``connect_plainly``."""
        self._place = place
        self._connection = connect_plainly(place.scheme, place.netloc, place)

    def __call__(self, arguments: Any, _into: object) -> tuple[bytes, bytes]:
        """Process a call of a session: `take`, with seconds as the deadline, and the status in digits."""
        root, timestamp, length, seconds = arguments
        status, content = self.take(root, timestamp, length, Deadline(seconds))
        return b"%d" % status, content

    def take(self, root: str, timestamp: str, length: int, deadline: Deadline) -> tuple[int, bytes]:
        """Return the status of ``root``, and the first ``length + 1`` bytes of ``timestamp``.

        Both are paths below the place. The timestamp is requested only if the status of the root is 404. Raises
        ``OSError`` and ``ValueError`` for each failure, and the errors of the deadline.
        """
        reading = Reading(deadline, self._place.read_timeout)
        self._connection.response_class = answers_under(lambda: reading)  # type: ignore[assignment]  # a hook
        try:
            with self._request(root, reading) as answer:
                refusal = answer.read(_LARGEST_REFUSAL)
                if answer.status != HTTPStatus.NOT_FOUND:
                    return answer.status, b""
                if len(refusal) == _LARGEST_REFUSAL:
                    raise ValueError("the body of the answer is too large")
            with self._request(timestamp, reading) as answer:
                if answer.status != HTTPStatus.OK:
                    raise ValueError(f"status {answer.status}")
                return HTTPStatus.NOT_FOUND, answer.read(length + 1)
        except HTTPException as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        finally:
            self._connection.close()

    def _request(self, path: str, reading: Reading) -> HTTPResponse:
        reading.ask()
        self._connection.request("GET", f"{self._place.path}/{path}", headers=dict(self._place.headers))
        return self._connection.getresponse()


def open_glance(arguments: Any) -> Glance:
    """Return the operation for a worker. ``arguments`` are the fields of `Place`."""
    return Glance(Place(*arguments))
