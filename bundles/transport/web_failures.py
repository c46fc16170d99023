"""Messages for failures of web servers and of HTTP libraries.

* One table contains every exception of ``requests``, ``urllib3``, ``http.client`` and ``ssl``.
* Temporary failures are retried. Permanent failures are not.
* Messages for a status are fixed, because the text of a server is untrusted.
"""

import ssl
from datetime import UTC, datetime
from http import HTTPStatus

import requests
import urllib3.exceptions as urllib3

from bundles.errors import NotFoundError, TransportError
from bundles.transport.plain import StalledError
from bundles.transport.settings import TransportSettings
from foundation.times import zulu_text

LONGEST_PAUSE = 60.0
"""Seconds. A longer pause requested by a server is shortened to this one."""


class PassingError(TransportError):
    """A temporary failure. ``pause`` is the number of seconds that the server requests to wait."""

    def __init__(self, where: str, what: str, pause: float = 0.0) -> None:
        super().__init__(where, what)
        self.pause = min(pause, LONGEST_PAUSE)


def explain(error: Exception, settings: TransportSettings) -> tuple[bool, str]:
    """Return whether a failure is temporary, and a sentence for it. ``settings`` contains the exceeded limits."""
    cause = _root_cause(error)
    detail = getattr(cause, "verify_message", "") or getattr(cause, "strerror", "") or str(cause)
    passing, sentence = next(
        (passing, sentence)
        for kinds, passing, sentence in _SENTENCES
        if isinstance(error, kinds) or isinstance(cause, kinds)
    )
    limits = {"connect": settings.connect_timeout, "read": settings.read_timeout}
    return passing, sentence.format(detail=detail, clock=_clock_hint(detail), **limits)


_SENTENCES: tuple[tuple[tuple[type[BaseException], ...], bool, str], ...] = (
    # Exceptions, whether the failure is temporary, and the message. The first matching row is used.
    ((ssl.SSLCertVerificationError,), False, "the server's certificate is not trusted: {detail}{clock}"),
    ((ssl.SSLEOFError, ssl.SSLZeroReturnError), True, "the connection failed: {detail}"),
    ((requests.exceptions.SSLError, urllib3.SSLError, ssl.SSLError), False, "TLS failed: {detail}"),
    ((requests.exceptions.InvalidProxyURL,), False, "the URL of the proxy is not valid"),
    ((requests.exceptions.ProxyError, urllib3.ProxyError), True, "the proxy cannot be used: {detail}"),
    ((StalledError,), True, "stalled: {detail}"),
    ((requests.ConnectTimeout, urllib3.ConnectTimeoutError), True, "no connection within {connect:g} s"),
    ((requests.Timeout, urllib3.TimeoutError, TimeoutError), True, "no response for {read:g} s"),
    (
        (requests.exceptions.ChunkedEncodingError, urllib3.IncompleteRead),
        True,
        "the transfer was interrupted: {detail}",
    ),
    ((requests.ConnectionError, urllib3.ProtocolError), True, "the connection failed: {detail}"),
    ((requests.RequestException, urllib3.HTTPError, ValueError), False, "cannot be downloaded: {detail}"),
    ((Exception,), True, "the connection failed: {detail}"),
)


def _root_cause(error: BaseException) -> BaseException:
    """Return the original exception that the libraries wrapped. Stops after ten levels, in case of a cycle."""
    for _ in range(10):
        candidates = (getattr(error, "reason", None), error.__cause__, *error.args)
        inner = next((item for item in candidates if isinstance(item, BaseException)), None)
        if inner is None:
            break
        error = inner
    return error


def _clock_hint(detail: str) -> str:
    if "not yet valid" not in detail and "expired" not in detail:
        return ""
    return f", and the clock of this host shows {zulu_text(datetime.now(UTC))}"


def refusal(response: requests.Response) -> TransportError:
    """Return the error for an unexpected status."""
    status = response.status_code
    detail = f"status {status}{_phrase(status)}"
    if status in (403, 404):  # 403: the response of object stores for a missing name
        return NotFoundError(url_of(response), detail)
    if status in (408, 429) or status >= 500:
        return PassingError(url_of(response), detail, _retry_after(response))
    hint = "wrong or missing credentials" if status in (401, 407) else "expected 200"
    return TransportError(url_of(response), f"{detail}: {hint}")


def _phrase(status: int) -> str:
    """Return the standard phrase of a status, because the text of the server is untrusted."""
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


def _retry_after(response: requests.Response) -> float:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdecimal() and len(value) < 6 else 0.0


def url_of(response: requests.Response) -> str:
    """Return the final URL of a response, for messages."""
    return response.url or ""
