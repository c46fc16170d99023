"""Check of a web server: status, body, and remaining validity of its certificate.

* TLS is verified with the host's authorities, or those in ``ca_bundle``. Verification cannot be disabled.
* One deadline limits everything: name resolution, handshakes, and slow headers and bodies.
* At most 1 MiB of a body is read. A body that is shorter than its Content-Length is a failure.
* Proxies are not used. Redirects are followed only if the check allows them.
"""

import contextlib
import http.client
import io
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from bundles.deadline import Deadline
from bundles.transport.plain import accept_alike
from puller.checks.kinds import Answer, Http, JsonValue, NotCarriedOut, parse_address
from puller.checks.network_checks import NoConnectionError, closing, connect
from puller.errors import reason
from puller.version import __version__

MOST_READ = 1 << 20
"""Maximum bytes of a body."""

_ENDLESS = 3600.0  # seconds; more than any deadline
_DAY = 86400.0  # seconds
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Answered(msgspec.Struct, frozen=True):
    """The response of a server."""

    url: str
    """The URL after redirects."""
    status: int
    headers: Any
    body: bytes
    is_whole: bool
    """Whether the whole body was read."""
    cut: str
    """Why the body is incomplete, else empty."""
    certificate_ends: float | None


class _Timed(io.RawIOBase):
    """A stream over a socket that limits each read to the remaining time."""

    def __init__(self, stream: socket.socket, deadline: Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._stream.settimeout(self._deadline.at_most(_ENDLESS))
        return self._stream.recv_into(buffer)


class _Line:
    """A socket with the methods that ``http.client`` uses."""

    def __init__(self, stream: socket.socket, deadline: Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def sendall(self, data: bytes) -> None:
        self._stream.settimeout(self._deadline.at_most(_ENDLESS))
        self._stream.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        del mode
        return io.BufferedReader(_Timed(self._stream, self._deadline))

    def close(self) -> None:
        """Do nothing, because the caller closes the socket."""


class NoAnswerError(Exception):
    """A missing or invalid HTTP response. The message is the reason."""


def ask(check: Http, deadline: Deadline) -> Answer:
    """Send the request and check the response. Raises ``NotCarriedOut`` and ``DeadlineError``."""
    try:
        answered = fetch(check, deadline)
    except NoAnswerError as error:
        return Answer([str(error)])
    wrong = [f"{_shown(answered.url)}: {sentence}" for sentence in _wrong(check, answered)]
    return Answer(wrong, f"{_shown(answered.url)}: status {answered.status}")


def fetch(check: Http, deadline: Deadline) -> Answered:
    """Return the response after following redirects. Raises like ``ask``, and ``NoAnswerError``."""
    url, headers = check.url, dict(_parse(header) for header in check.headers)
    for left in range(check.redirects, -1, -1):
        try:
            answered = _fetch(check, url, headers, deadline)
        except (OSError, http.client.HTTPException, NoConnectionError) as error:
            deadline.verify()
            raise NoAnswerError(f"{_shown(url)}: {_why(error)}") from error
        following = answered.headers.get("Location")
        if not left or answered.status not in _REDIRECTS or following is None:
            break
        url, headers = _followed(url, following, headers)
    return answered


def _followed(url: str, location: str, headers: dict[str, str]) -> tuple[str, dict[str, str]]:
    new = urljoin(url, location)
    before, after = urlsplit(url), urlsplit(new)
    if after.scheme not in ("http", "https") or not after.hostname or after.username is not None:
        raise NotCarriedOut(
            f"{_shown(url)}: redirects to an unsupported URL, expected http:// or https:// with a host, without user"
        )
    if before.scheme == "https" and after.scheme != "https":
        raise NotCarriedOut(f"{_shown(url)}: redirects from https to http")
    # Headers may be secret, so they are sent only to the server that the check names.
    return new, headers if before[:2] == after[:2] else {}


def _fetch(desired: Http, url: str, headers: dict[str, str], deadline: Deadline) -> Answered:
    url_parts = urlsplit(url)
    secure, host = url_parts.scheme == "https", url_parts.hostname or ""
    try:
        port = url_parts.port or (443 if secure else 80)
    except ValueError as error:
        raise NotCarriedOut(f"{_shown(url)}: {error}") from error
    is_first = url_parts[:2] == urlsplit(desired.url)[:2]
    place = parse_address(desired.connect) if desired.connect and is_first else (host, port)
    context = _context(desired.ca_bundle) if secure else None
    stream = connect(*place, deadline)
    with closing(stream):
        ends = None
        if context is not None:
            # ssl applies this timeout to the whole handshake.
            stream.settimeout(deadline.at_most(_ENDLESS))
            stream = context.wrap_socket(stream, server_hostname=host)
            ends = _end_of(stream)
        with closing(stream):
            return _exchange(desired, url_parts, headers, stream, deadline, ends)


def _exchange(
    desired: Http,
    pieces: SplitResult,
    headers: dict[str, str],
    stream: socket.socket,
    deadline: Deadline,
    ends: float | None,
) -> Answered:
    connection = http.client.HTTPConnection(pieces.netloc)
    connection.sock = _Line(stream, deadline)  # has all methods that HTTPConnection uses
    connection.auto_open = 0
    named = {"user-agent": f"puller/{__version__}", "accept-encoding": "identity", "connection": "close"}
    target = (pieces.path or "/") + (f"?{pieces.query}" if pieces.query else "")
    provided = {name.lower() for name in headers}
    try:
        connection.request(
            desired.method,
            target,
            headers={**{k: v for k, v in named.items() if k not in provided}, **headers},
        )
    except ValueError as error:
        raise NotCarriedOut(f"invalid request: {error}") from error
    with connection.getresponse() as response:
        body, is_whole, cut = _read(response)
    return Answered(pieces.geturl(), response.status, response.headers, body, is_whole, cut, ends)


def _read(response: http.client.HTTPResponse) -> tuple[bytes, bool, str]:
    desired = response.length
    pieces, size = [], 0
    try:
        while size <= MOST_READ and (piece := response.read1(65536)):
            pieces.append(piece)
            size += len(piece)
    except http.client.IncompleteRead as error:
        pieces.append(error.partial)
        return b"".join(pieces), False, "the body is incomplete: the last chunk is missing"
    body = b"".join(pieces)
    if size > MOST_READ:
        return body[:MOST_READ], False, ""
    if desired is not None and size < desired:
        return body, False, f"the body ends after {size} bytes, but its Content-Length is {desired}"
    return body, True, ""


def _wrong(desired: Http, answered: Answered) -> Iterator[str]:
    statuses = desired.status if isinstance(desired.status, tuple) else (desired.status,)
    if desired.status is None:
        is_wanted, shown = 200 <= answered.status <= 299, "200 to 299"
    else:
        is_wanted, shown = answered.status in statuses, " or ".join(map(str, statuses))
    if not is_wanted:
        leads = " (a redirect)" if answered.status in _REDIRECTS else ""
        yield f"the status is {answered.status}{leads}, expected {shown}"
    if answered.cut:
        yield answered.cut
    if answered.certificate_ends is not None and desired.certificate_days is not None:
        days = (answered.certificate_ends - time.time()) / _DAY
        if days < desired.certificate_days:
            yield f"the certificate is valid for {days:.1f} days, expected {desired.certificate_days}"
    if desired.contains is None and not desired.json:
        return
    if (coding := answered.headers.get("Content-Encoding", "").strip().lower()) not in ("", "identity"):
        yield f"the body has the unexpected Content-Encoding {coding!r}"
        return
    if desired.contains is not None and desired.contains.encode() not in answered.body:
        where = "" if answered.is_whole else f" in its first {len(answered.body)} bytes"
        yield f"the body does not contain {desired.contains!r}{where}"
    if desired.json:
        yield from _wrong_json(desired.json, answered)


def _wrong_json(desired: tuple[JsonValue, ...], answered: Answered) -> Iterator[str]:
    if not answered.is_whole and not answered.cut:
        yield f"the body has more than {MOST_READ} bytes, which is too large to check as JSON"
        return
    try:
        document = msgspec.json.decode(answered.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        yield f"the body is not valid JSON: {error}"
        return
    for item in desired:
        try:
            result = _at(document, item.path)
        except LookupError:
            yield f"the JSON has no value at {item.path}"
            continue
        if not _is_same(result, item.value):
            shown = msgspec.json.encode(result).decode()
            shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
            yield f"{item.path} is {shown} in the JSON, expected {msgspec.json.encode(item.value).decode()}"


def _at(document: Any, path: str) -> Any:
    for step in path.split("."):
        if isinstance(document, list):
            if not (step.isascii() and step.isdecimal()):
                raise LookupError(step)
            document = document[int(step)]
        elif isinstance(document, dict):
            document = document[step]
        else:
            raise LookupError(step)
    return document


def _is_same(result: Any, desired: Any) -> bool:
    # True equals 1 in Python, but not in JSON.
    return isinstance(result, bool) is isinstance(desired, bool) and bool(result == desired)


def _context(ca_bundle: str | None) -> ssl.SSLContext:
    try:
        return accept_alike(ssl.create_default_context(cafile=ca_bundle))
    except (OSError, ssl.SSLError) as error:
        raise NotCarriedOut(f"ca_bundle {ca_bundle}: cannot be used: {reason(error)}") from error


def _end_of(stream: Any) -> float | None:
    ends = (stream.getpeercert() or {}).get("notAfter")
    return None if ends is None else float(ssl.cert_time_to_seconds(ends))


def _parse(header: str) -> tuple[str, str]:
    name, _, value = header.partition(":")
    return name.strip(), value.strip()


def _shown(url: str) -> str:
    """Return the URL without its query, which may contain a token."""
    with contextlib.suppress(ValueError):
        url_parts = urlsplit(url)
        return f"{url_parts.scheme}://{url_parts.netloc}{url_parts.path}"
    return "the redirect target"


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {error.verify_message}"
    if isinstance(error, NoConnectionError):
        return str(error)
    if isinstance(error, OSError):
        return f"no answer: {reason(error)}"
    return f"the answer is not valid HTTP: {type(error).__name__} {error}".rstrip()
