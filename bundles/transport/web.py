"""A site on a web server, accessed with ``requests``, and the sessions of ``requests`` for all HTTPS of this project.

* Bytes arrive as the server stores them: compression is neither requested nor decoded.
* Credentials, configured headers and the client certificate are sent to the configured origin only. A redirect is
  followed within an origin or to https, but never from https to http or to another scheme.
* Proxies come from the environment, but credentials do not: ``.netrc`` is not read. Cookies are not kept.
* Every exception of the HTTP library becomes a `TransportError`, also in the middle of a body.
* Sessions accept certificates by the rules of `bundles.transport.plain`.
"""

import contextlib
import copy
import logging
import os
import re
import ssl
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote, urljoin, urlsplit

import requests
import tenacity
import urllib3.exceptions as urllib3
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.util.ssl_ import create_urllib3_context

from bundles import progress
from bundles.deadline import Deadline, DeadlineError, aside
from bundles.errors import OversizeError, SettingsError, TransportError, UnchangedError
from bundles.transport.plain import Reading, accept_alike, answers_under
from bundles.transport.settings import (
    CHUNK,
    Location,
    TransportSettings,
    credentials,
    deadline_of,
    origin_of,
    require_readable,
    too_late,
)
from bundles.transport.web_failures import PassingError, explain, refusal, url_of
from foundation.extras import DISTRIBUTION
from foundation.masking import MASK

if TYPE_CHECKING:
    from tenacity import RetryCallState


class Adapter(HTTPAdapter):
    """Connections that accept the same certificates with all versions of Python."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, ssl_context=_context(), **options)

    def proxy_manager_for(self, proxy: Any, **options: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=_context(), **options)


def session() -> requests.Session:
    """Return a session with this adapter for HTTPS."""
    made = requests.Session()
    made.mount("https://", Adapter())
    return made


def _context() -> ssl.SSLContext:
    context: ssl.SSLContext = create_urllib3_context()
    return accept_alike(context)


log = logging.getLogger(__name__)

MOST_REDIRECTS = 5

_REDIRECTS = (301, 302, 303, 307, 308)
_STATUSES_OF_A_RANGE = (
    HTTPStatus.OK,
    HTTPStatus.PARTIAL_CONTENT,
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
)
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")

Check = Callable[[requests.Response, bytes], None]


class LimitedAdapter(Adapter):
    """Connections of ``requests`` with the limits in ``reading``, which is set for each download."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: Reading | None = None

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*arguments, **options)
        if "response_class" not in vars(pool.ConnectionCls):
            hook = {"response_class": staticmethod(answers_under(self._hook()))}
            pool.ConnectionCls = type("LimitedConnection", (pool.ConnectionCls,), hook)
        return pool

    def _hook(self) -> Callable[[], Reading | None]:
        """Return a function that returns the limits of the next read.

        urllib3 closes the connections of a pool when the pool is garbage collected. The connections therefore hold only
        a weak reference to this adapter, which owns the pool.
        """
        this = weakref.ref(self)
        return lambda: adapter.reading if (adapter := this()) is not None else None


class WebMirror:
    """Files below one URL, over one connection. ``sleep`` waits between retries.

    ``deadline`` applies to all downloads together. By default, each download has the total limit of ``settings``.
    """

    is_remote = True

    def __init__(
        self,
        location: Location,
        settings: TransportSettings,
        sleep: Callable[[float], None] | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        self._location = location
        self._settings = settings
        self._sleep = sleep
        self.deadline = deadline
        """Deadline of all current and future downloads together."""
        self._reading = Reading(Deadline(0), settings.read_timeout)  # of the current download
        self._authorities = authorities(settings)
        self._certificate = certificate(settings)
        self._credentials = credentials(location, settings)
        self._adapter = LimitedAdapter()
        self._headers = {"User-Agent": settings.user_agent or _user_agent(), "Accept-Encoding": "identity"}

    def __str__(self) -> str:
        return str(self._location)

    def download(
        self, path: str, limit: int, into: BinaryIO, *, resume: bool = False, is_exact: bool = False
    ) -> bool:
        # The path may contain percent signs already: TUF quotes role names in file names.
        url = f"{self._location.base}/{quote(path, safe='/+~%')}"
        return self.fetch(url, limit, into, _check_is_no_web_page, resume=resume, is_exact=is_exact)

    def fetch(
        self,
        url: str,
        limit: int,
        into: BinaryIO,
        check_start: Check = lambda *_: None,
        conditions: Mapping[str, str] | None = None,
        *,
        resume: bool = False,
        is_exact: bool = False,
    ) -> bool:
        """Like `download`, for any URL. ``check_start`` gets the response and the first bytes of the file.

        ``conditions`` are headers such as ``If-None-Match``. Raises `UnchangedError` if the file has not changed.
        Returns whether the server has marked the end of the file, by a length or by chunks.
        """
        transfer = copy.copy(self)  # an abandoned attempt keeps its own state
        transfer._reading = Reading(
            deadline_of(url, self._settings, self.deadline), self._settings.read_timeout
        )
        self._adapter.reading = transfer._reading
        arguments = (url, limit, into, check_start, conditions or {}, resume, is_exact)
        try:
            return transfer._run(partial(transfer._attempt, *arguments))
        except DeadlineError:
            self._adapter = LimitedAdapter()
            raise too_late(url, transfer._reading.deadline) from None

    def _run(self, attempt: Callable[[], bool]) -> bool:
        """Run and retry ``attempt``. Raises `TransportError` and ``DeadlineError``."""
        try:
            return aside(attempt, self._reading.deadline)
        except PassingError as failure:
            return self._try_again(lambda: aside(attempt, self._reading.deadline), failure)

    def _try_again(self, attempt: Callable[[], bool], failure: PassingError) -> bool:
        pending = [failure]

        def next_attempt() -> bool:
            if pending:
                raise pending.pop()  # the first attempt has already failed
            return attempt()

        jitter = tenacity.wait_random_exponential(multiplier=0.5, max=10)
        enough = tenacity.stop_after_attempt(1 + self._settings.retries)
        too_late = tenacity.stop_before_delay(self._reading.deadline.left)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(PassingError),
            stop=enough | too_late,
            wait=lambda state: max(jitter(state), _requested_pause(state)),
            sleep=self._sleep or self._reading.deadline.pause,
            before_sleep=_log_retry,
            reraise=True,
        )
        try:
            return retrying(next_attempt)
        except PassingError as error:
            attempts = retrying.statistics["attempt_number"]
            raise TransportError(error.where, f"{error.what} (attempts: {attempts})") from None

    def _attempt(
        self,
        url: str,
        limit: int,
        into: BinaryIO,
        check_start: Check,
        conditions: Mapping[str, str],
        resume: bool,
        is_exact: bool,
    ) -> bool:
        held = into.seek(0, os.SEEK_END) if resume else 0
        response, received = self._open_rest(url, held, conditions)
        name = urlsplit(url).path.rpartition("/")[2]
        with contextlib.closing(response):
            _check_length(response, limit - received)
            self._check_encoding(response)
            chunk = self._read(response, min(CHUNK, limit + 1 - received))
            if chunk and received == 0:
                check_start(response, chunk)  # before existing data is overwritten
            into.seek(received)
            into.truncate()
            progress.begin_file(name, received, self._whole(response, received))
            while chunk:
                received += len(chunk)
                if received > limit:
                    raise OversizeError(url_of(response), f"has more than the permitted {limit} bytes")
                self._reading.deadline.verify()  # an abandoned attempt stops writing here
                into.write(chunk)
                progress.note(name, received)
                chunk = self._read(response, min(CHUNK, limit + 1 - received))
        in_range = _length_in_range(response)
        # Without a length and without chunks, a lost connection looks like the end of the file (RFC 9112, 6.3).
        has_end = in_range is not None or self._whole(response, 0) is not None or _is_chunked(response)
        whole = limit if is_exact and (resume or not has_end or not received) else in_range
        if whole is not None and received < whole:  # the next attempt resumes
            raise PassingError(url_of(response), f"ended early: {received} of {whole} bytes arrived")
        return has_end or is_exact

    def _open_rest(self, url: str, held: int, conditions: Mapping[str, str]) -> tuple[requests.Response, int]:
        """Return the response for the data after ``held`` bytes, or for the whole file, and its start position."""
        if held and (remainder := self._rest(held)):
            response = self._open(url, {**conditions, **remainder})
            if response.status_code == HTTPStatus.OK:  # a server may ignore ranges
                return response, 0
            if response.status_code == HTTPStatus.PARTIAL_CONTENT and _is_rest(response, held):
                return response, held
            self._finish(response)  # 416 or another range: the file has changed
        return self._open(url, conditions), 0

    def _rest(self, held: int) -> Mapping[str, str]:
        """Return headers that request the data after ``held`` bytes. Empty to request the whole file."""
        return {"Range": f"bytes={held}-"}

    def _whole(self, response: requests.Response, start: int) -> int | None:
        """Return the length of the whole file, if the server states it."""
        length = response.headers.get("Content-Length", "")
        is_number = length.isascii() and length.isdecimal() and len(length) < 19
        return start + int(length) if is_number else None

    def _check_encoding(self, response: requests.Response) -> None:
        encoding = response.headers.get("Content-Encoding", "identity")
        # Web servers often label a .tar.gz file as gzip encoded, although they send its bytes unchanged.
        if encoding.lower() != "identity" and not urlsplit(url_of(response)).path.endswith(".gz"):
            raise TransportError(
                url_of(response), f"Content-Encoding is {encoding[:40]!r}", expected="'identity'"
            )

    def _open(self, url: str, conditions: Mapping[str, str]) -> requests.Response:
        """Return the response after all redirects, with its body unread.

        Its status is 200, or a status for ranges if a range was requested.
        """
        expected = _STATUSES_OF_A_RANGE if "Range" in conditions else (HTTPStatus.OK,)
        for _ in range(1 + MOST_REDIRECTS):
            response = self._get(url, conditions)
            if response.status_code in expected:
                return response
            self._finish(response)
            if response.status_code == HTTPStatus.NOT_MODIFIED and conditions:
                raise UnchangedError(url_of(response), "has not changed")
            if response.status_code not in _REDIRECTS:
                raise refusal(response)
            url = self._redirect_target(url, response)
        raise TransportError(url, f"exceeds the limit of {MOST_REDIRECTS} redirects")

    def _get(self, url: str, conditions: Mapping[str, str]) -> requests.Response:
        own = origin_of(url) == self._location.origin
        headers = {**self._headers, **conditions, **(self._credentials if own else {})}
        with self._translated(url):
            self._reading.ask()
            # Not through a session, which would read the body of a redirect completely, without a limit.
            return self._adapter.send(
                requests.Request("GET", url, headers).prepare(),
                cert=self._certificate if own else None,
                verify=self._authorities,
                proxies=proxies(url, self._settings),
                timeout=(
                    self._reading.deadline.at_most(self._settings.connect_timeout),
                    self._settings.read_timeout,
                ),
                stream=True,
            )

    def _read(self, response: requests.Response, size: int) -> bytes:
        with self._translated(url_of(response)):
            data: bytes = response.raw.read(size, decode_content=False)
            return data

    def _finish(self, response: requests.Response) -> None:
        """Read a short body, so that the connection can carry the next request. Otherwise close the connection."""
        with contextlib.closing(response), contextlib.suppress(TransportError):
            self._read(response, CHUNK)

    def _redirect_target(self, url: str, response: requests.Response) -> str:
        try:
            result = urljoin(url, response.headers.get("Location", ""))
            url_parts, same = urlsplit(result), origin_of(result) == origin_of(url)
        except (ValueError, SettingsError):
            raise TransportError(url, "redirects to an invalid URL") from None
        if url_parts.scheme not in ("http", "https") or not url_parts.hostname:
            raise TransportError(url, f"redirects to {result}", expected="http or https")
        if "@" in url_parts.netloc:
            raise TransportError(url, f"redirects to {result}", expected="a URL without credentials")
        if url_parts.scheme != "https" and not same:
            raise TransportError(url, f"redirects to {result}", expected="the same origin or https")
        return result

    @contextlib.contextmanager
    def _translated(self, url: str) -> Iterator[None]:
        try:
            yield
        # All errors of requests, urllib3, http.client, sockets and the codecs for host names.
        except (requests.RequestException, urllib3.HTTPError, HTTPException, OSError, ValueError) as error:
            if self._reading.deadline.is_over:
                raise too_late(url, self._reading.deadline) from None
            passing, detail = explain(error, self._settings)
            kind = PassingError if passing else TransportError
            raise kind(url, self._without_secrets(detail)) from None

    def _without_secrets(self, text: str) -> str:
        return without_secrets(text, self._location, self._settings)


def _is_rest(response: requests.Response, held: int) -> bool:
    """Return whether a range response starts after ``held`` bytes and is consistent."""
    provided = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if provided is None or int(provided[1]) != held:
        return False
    length = response.headers.get("Content-Length", "")
    size = int(provided[2]) - held + 1
    return (
        size > 0 and length in ("", str(size)) and (provided[3] == "*" or int(provided[2]) < int(provided[3]))
    )


def _is_chunked(response: requests.Response) -> bool:
    return bool(response.headers.get("Transfer-Encoding", "").lower() == "chunked")


def _length_in_range(response: requests.Response) -> int | None:
    """Return the length of the whole file, if a range response states it."""
    if response.status_code != HTTPStatus.PARTIAL_CONTENT:
        return None
    provided = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    return int(provided[3]) if provided and provided[3] != "*" else None


def _check_length(response: requests.Response, limit: int) -> None:
    length = response.headers.get("Content-Length", "")
    if length.isascii() and length.isdecimal() and (len(length) > 18 or int(length) > limit):
        raise OversizeError(url_of(response), f"has {length[:20]} bytes, at most {limit} are allowed")


def _check_is_no_web_page(response: requests.Response, start: bytes) -> None:
    # Neither JSON nor gzip starts like this. Captive portals and login pages answer every request with 200.
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        name = urlsplit(url_of(response)).path.rpartition("/")[2]
        detail = f"is a web page, expected {name}: a captive portal or a proxy responds instead of the site"
        raise TransportError(url_of(response), detail)


def _requested_pause(state: "RetryCallState") -> float:
    error = state.outcome and state.outcome.exception()
    return error.pause if isinstance(error, PassingError) else 0.0


def _log_retry(state: "RetryCallState") -> None:
    if state.outcome and state.next_action:
        log.info("%s, next attempt in %.1f s", state.outcome.exception(), state.next_action.sleep)


def without_secrets(text: str, location: Location, settings: TransportSettings) -> str:
    """Return the text of a library error without the credentials of a location. `TransportError` masks URLs in it."""
    own = (settings.proxy, settings.password, settings.token)
    hidden = (each.reveal() for each in own if each is not None)
    for value in (*credentials(location, settings).values(), location.password, *hidden):
        text = text.replace(value, MASK) if value else text
    return text


def proxies(url: str, settings: TransportSettings) -> dict[str, str]:
    """Return the proxies for a URL, from the settings or the environment."""
    if settings.proxy is None:
        return dict(get_environ_proxies(url))
    proxy = settings.proxy.reveal()
    return {"http": proxy, "https": proxy} if proxy else {}


def _user_agent() -> str:
    try:
        return f"puller/{version(DISTRIBUTION)}"
    except PackageNotFoundError:  # run from a source tree
        return "puller"


def authorities(settings: TransportSettings) -> str | bool:
    """Return the certificate authorities: configured, else the system's, else those of requests.

    Raises `SettingsError` for an unreadable file.
    """
    if settings.ca_bundle is not None:
        require_readable("ca_bundle", settings.ca_bundle)
        return settings.ca_bundle
    system = ssl.get_default_verify_paths()  # honours SSL_CERT_FILE and SSL_CERT_DIR
    return system.cafile or system.capath or True


def certificate(settings: TransportSettings) -> str | tuple[str, str] | None:
    """Return the client certificate and its key. Raises `SettingsError` for an unreadable file."""
    if settings.client_cert is None:
        return None
    require_readable("client_cert", settings.client_cert)
    if settings.client_key is None:
        return settings.client_cert
    require_readable("client_key", settings.client_key)
    return settings.client_cert, settings.client_key
