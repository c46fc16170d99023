"""The limits of a transfer (``reading``), for answers that ``http.client`` reads."""

import http
import http.client
import io
import socket
from collections.abc import Callable
from typing import Any

from bundles.transport.reading import Reading


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
