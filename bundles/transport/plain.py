"""Connections with ``http.client``: accepted certificates, limits of a transfer, and the two small requests of a run.

* Importing ``requests`` takes longer than the rest of a run without changes. It handles proxies, and certificate
  authorities that the system does not keep in one place.
* The two requests are for the next root and the timestamp. The caller compares the answers with verified metadata.

Certificates. The rules are identical for all versions of Python:

* Python 3.13 and later requires everything that RFC 5280 prescribes (``VERIFY_X509_STRICT``). Many certificates of
  private authorities lack key usage, and their hosts would lose their site with an upgrade of the system. Names, dates,
  signatures and the chain are still checked.
* Python 3.13 and later also accepts an authority that is not at the end of its chain (``VERIFY_X509_PARTIAL_CHAIN``).

Limits. They are enforced below the HTTP library, also for `bundles.transport.web`:

* Every read from the socket checks the deadline first. A slow body or an endless header therefore ends at the
  deadline. The library's own timeout limits only the silence between two bytes.
* A transfer that is slower than a modem has stalled. A faster transfer may take as long as it needs.
* Responses of a proxy are limited as well.
* `answers_under` applies the limits to responses of ``http.client``.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  names of hosts are encoded when a worker can no longer read Python's files
import http
import http.client
import io
import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple, Protocol

from bundles.deadline import Deadline


def accept_alike(context: ssl.SSLContext) -> ssl.SSLContext:
    """Set these rules in a context, and return it."""
    flags = context.verify_flags & ~ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags = ssl.VerifyFlags(flags)
    return context


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


class Keys(Protocol):
    """The TLS settings."""

    @property
    def ca_bundle(self) -> str | None: ...
    @property
    def client_cert(self) -> str | None: ...
    @property
    def client_key(self) -> str | None: ...


def make_context(settings: Keys) -> ssl.SSLContext:
    """Return a context with the authorities of ``bundles.transport.web``, and the client certificate if configured.

    Raises ``ValueError`` for authorities that only that module supports, and ``OSError`` for invalid files.
    """
    # `requests` has its own authorities if the system has none.
    paths = ssl.get_default_verify_paths()
    file, directory = settings.ca_bundle or paths.cafile, None if settings.ca_bundle else paths.capath
    if not (file or directory) or (settings.ca_bundle and os.path.isdir(settings.ca_bundle)):
        raise ValueError("the certificate authorities are not in one file")
    context = accept_alike(ssl.create_default_context(cafile=file, capath=directory))
    if settings.client_cert is not None:
        context.load_cert_chain(settings.client_cert, settings.client_key)
    return context


class Reach(Keys, Protocol):
    """The settings of a connection."""

    @property
    def connect_timeout(self) -> float: ...


def connect_plainly(scheme: str, netloc: str, settings: Reach) -> http.client.HTTPConnection:
    """Return a connection, which its first request opens, with the client certificate of the settings, if any.

    Raises ``ValueError`` for authorities that only ``bundles.transport.web`` can use, and ``OSError`` for invalid
    files.
    """
    if scheme == "http":
        return http.client.HTTPConnection(netloc, timeout=settings.connect_timeout)
    return http.client.HTTPSConnection(
        netloc, timeout=settings.connect_timeout, context=make_context(settings)
    )


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
                    raise ValueError("the body of the response is too large")
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
