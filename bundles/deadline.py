"""A time limit for a whole download, kept below the HTTP library.

* Every read from the socket asks the deadline first, so that a body that trickles and a header that never
  ends are both over at the limit. The library's own limit is only for the silence between two bytes.
* Reads of a proxy's answer count as well. Name resolution is the system's, and has limits of its own.
"""

import http.client
import io
import socket
import time
from typing import Any

from requests.adapters import HTTPAdapter


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


class DeadlineAdapter(HTTPAdapter):
    """Connections of ``requests`` that read under ``deadline``, which is set for each download."""

    def __init__(self, read_timeout: float) -> None:
        super().__init__()
        self._read_timeout = read_timeout
        self.deadline = Deadline(0)

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*arguments, **options)
        if "response_class" not in vars(pool.ConnectionCls):
            # http.client's own hook for what reads an answer, headers and body, from the socket.
            hook = {"response_class": staticmethod(self._open_response)}
            pool.ConnectionCls = type("DeadlineConnection", (pool.ConnectionCls,), hook)
        return pool

    def _open_response(
        self, sock: socket.socket, *arguments: Any, **options: Any
    ) -> http.client.HTTPResponse:
        response = http.client.HTTPResponse(sock, *arguments, **options)
        response.fp = io.BufferedReader(_DeadlineReader(response.fp.detach(), sock, self))
        return response

    def limit_next_read(self, sock: socket.socket) -> None:
        sock.settimeout(self.deadline.at_most(self._read_timeout))


class _DeadlineReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket, adapter: DeadlineAdapter) -> None:
        self._raw = raw
        self._sock = sock
        self._adapter = adapter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._adapter.limit_next_read(self._sock)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
