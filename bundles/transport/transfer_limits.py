"""Limits of one transfer, enforced below the HTTP library.

* Every read from the socket checks the deadline first. A slow body or an endless header therefore ends at the
  deadline. The library's own timeout limits only the silence between two bytes.
* A transfer that is slower than a modem has stalled. A faster transfer may take as long as it needs.
* Responses of a proxy are limited as well.
* `answers_under` applies the limits to responses of ``http.client``.
"""

from __future__ import annotations

import http
import http.client
import io
import socket
import time
from collections.abc import Callable
from typing import Any

from bundles.deadline import Deadline

SLOWEST = 1000
"""Bytes per second, on average over the read timeout."""


class StalledError(TimeoutError):
    """The transfer is too slow."""


class Reading:
    """The limits for reads of one transfer. ``silence`` is the longest time without a byte, in seconds."""

    def __init__(self, deadline: Deadline, silence: float) -> None:
        self.deadline = deadline
        self._silence = silence
        self.ask()

    def ask(self) -> None:
        """Reset the limits for a request. Its response may take the whole ``silence`` to start."""
        self._has_begun = False
        self._bytes = 0
        self._waited = 0.0

    def read(self, sock: socket.socket, receive: Callable[[Any], int | None], buffer: Any) -> int | None:
        """Read from ``sock`` into ``buffer`` with ``receive``. Raises ``TimeoutError``, and the errors of the check."""
        sock.settimeout(self.deadline.at_most(self._silence))
        began = time.monotonic()
        count = receive(buffer)
        # The time to the first byte belongs to the server, not to the line.
        if self._has_begun:
            self._account(count or 0, time.monotonic() - began)
        self._has_begun = True
        return count

    def _account(self, count: int, waited: float) -> None:
        self._bytes += count
        self._waited += waited
        if self._waited < self._silence:
            return
        # The end of a body (no bytes) is not a stall.
        if count and self._bytes < SLOWEST * self._silence:
            raise StalledError(f"less than {SLOWEST} bytes a second for {self._silence:g} s")
        self._bytes, self._waited = 0, 0.0


def answers_under(reading: Callable[[], Reading | None]) -> Callable[..., http.client.HTTPResponse]:
    """Return a hook ``response_class`` for ``http.client``, which reads responses from a socket within limits.

    ``reading`` returns the limits for each read, or None if the adapter is gone.
    """

    def open_answer(sock: socket.socket, *arguments: Any, **options: Any) -> http.client.HTTPResponse:
        response = _Answer(sock, *arguments, **options)
        # Below the buffer for headers and body, so that the limits apply to both.
        response.fp = io.BufferedReader(_LimitedReader(response.fp.detach(), sock, reading))
        return response

    return open_answer


class _Answer(http.client.HTTPResponse):
    """A response after all interim responses, such as 103 Early Hints. ``http.client`` skips only 100."""

    def _read_status(self) -> tuple[str, int, str]:
        while True:  # bounded by the limits of reading
            version, status, reason = super()._read_status()  # type: ignore[misc]  # which the types do not know
            if not 100 <= status < 200 or status == http.HTTPStatus.SWITCHING_PROTOCOLS:
                return version, status, reason
            http.client.parse_headers(self.fp)


class _LimitedReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket, reading: Callable[[], Reading | None]) -> None:
        self._raw = raw
        self._sock = sock
        self._reading = reading

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        reading = self._reading()
        if reading is None:
            return self._raw.readinto(buffer)
        return reading.read(self._sock, self._raw.readinto, buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
