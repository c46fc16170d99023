"""A time limit for a whole download, kept below the HTTP library.

* Every read from the socket asks the deadline first, so that a body that trickles and a header that never
  ends are both over at the limit. The library's own limit is only for the silence between two bytes.
* Reads of a proxy's answer count as well. Name resolution is the system's, and has limits of its own.
"""

import http.client
import io
import socket
import time
from collections.abc import Callable
from typing import Any


class Deadline:
    """A point in time, ``seconds`` from now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def at_most(self, seconds: float) -> float:
        """``seconds``, or less when the deadline is nearer; raises ``TimeoutError`` when it is over."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time limit is over")
        return min(seconds, left)


def answers_under(
    limit_next_read: Callable[[socket.socket], None],
) -> Callable[..., http.client.HTTPResponse]:
    """What ``http.client`` calls to read an answer, headers and body, from a socket: its hook ``response_class``.

    ``limit_next_read`` is called before each read, and sets the socket's time limit for it.
    """

    def open_answer(sock: socket.socket, *arguments: Any, **options: Any) -> http.client.HTTPResponse:
        response = http.client.HTTPResponse(sock, *arguments, **options)
        response.fp = io.BufferedReader(_DeadlineReader(response.fp.detach(), sock, limit_next_read))
        return response

    return open_answer


class _DeadlineReader(io.RawIOBase):
    def __init__(
        self, raw: io.RawIOBase, sock: socket.socket, limit_next_read: Callable[[socket.socket], None]
    ) -> None:
        self._raw = raw
        self._sock = sock
        self._limit_next_read = limit_next_read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._limit_next_read(self._sock)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
