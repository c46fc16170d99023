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
"""Bytes a second, on average over the longest silence that is allowed."""


class StalledError(TimeoutError):
    """Bytes come, but next to none."""


class Reading:
    """The limits on the reads of one transfer; ``silence`` is seconds without a byte."""

    def __init__(self, deadline: Deadline, silence: float) -> None:
        self.deadline = deadline
        self._silence = silence
        self.ask()

    def ask(self) -> None:
        """A request is sent: its answer may take as long to begin as a silence may last."""
        self._has_begun = False
        self._bytes = 0
        self._waited = 0.0

    def read(self, sock: socket.socket, receive: Callable[[Any], int | None], buffer: Any) -> int | None:
        """``receive`` something of ``sock`` into ``buffer``; raises ``TimeoutError``, and what the check raises."""
        sock.settimeout(self.deadline.at_most(self._silence))
        began = time.monotonic()
        count = receive(buffer)
        # Up to the first byte it is the server that takes its time, and not the line.
        if self._has_begun:
            self._account(count or 0, time.monotonic() - began)
        self._has_begun = True
        return count

    def _account(self, count: int, waited: float) -> None:
        self._bytes += count
        self._waited += waited
        if self._waited < self._silence:
            return
        # At the end of a body (no bytes) there is nothing to stall any more.
        if count and self._bytes < SLOWEST * self._silence:
            raise StalledError(f"less than {SLOWEST} bytes a second for {self._silence:g} s")
        self._bytes, self._waited = 0, 0.0


def answers_under(reading: Callable[[], Reading | None]) -> Callable[..., http.client.HTTPResponse]:
    """The hook ``response_class`` of ``http.client``, called to read an answer, headers and body, from a socket.

    ``reading`` gives what limits each read; None when nobody waits for it any more.
    """

    def open_answer(sock: socket.socket, *arguments: Any, **options: Any) -> http.client.HTTPResponse:
        response = _Answer(sock, *arguments, **options)
        # Below its buffer, which headers and body are read through, so that neither escapes the limits.
        response.fp = io.BufferedReader(_LimitedReader(response.fp.detach(), sock, reading))
        return response

    return open_answer


class _Answer(http.client.HTTPResponse):
    """An answer behind all interim answers, such as 103 Early Hints. ``http.client`` skips only 100."""

    def _read_status(self) -> tuple[str, int, str]:
        while True:  # as long as the limits of reading allow
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
