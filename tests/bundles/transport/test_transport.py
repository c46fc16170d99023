"""Transfers from a hostile or broken web server."""

from __future__ import annotations

import base64
import io
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import requests
import responses
import urllib3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from bundles.errors import NotFoundError, OversizeError, SettingsError, TransportError
from bundles.transport.mirror import Mirror, download_url, open_mirrors
from bundles.transport.settings import Location, TransportSettings
from bundles.transport.web import WebMirror
from hiera.values import Secret
from tests.support.rows import each_row

if TYPE_CHECKING:
    from tests.simulators.authority import Authority
    from tests.support.http_server import Answer, Server

CANARY = "tr0ub4dor-and-3"
QUICK = TransportSettings(connect_timeout=5, read_timeout=0.3, total_timeout=1, retries=0)
GARBAGE = b'{"some": "thing"}'


def fetch(mirror: Mirror, path: str = "file.json", limit: int = 1000) -> bytes:
    buffer = io.BytesIO()
    mirror.download(path, limit, buffer)
    return buffer.getvalue()


def open_mirror(server: Server | str, **settings: Any) -> Mirror:
    url = server if isinstance(server, str) else server.origin
    (mirror,) = open_mirrors([url], TransportSettings(**{"retries": 0, **settings}))
    return mirror


# --- successful transfers -----------------------------------------------------------------------------------


def test_a_file_arrives_as_it_is(server: Server, answer: Callable[..., Answer]) -> None:
    server.on("/site/metadata/1.root.json", answer(GARBAGE))
    assert fetch(open_mirror(f"{server.origin}/site/"), "metadata/1.root.json") == GARBAGE
    (request,) = server.requests
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["user-agent"].startswith("puller")
    assert "authorization" not in request.headers


def test_many_files_share_a_connection(server: Server, answer: Callable[..., Answer]) -> None:
    connections = []

    def answered(stream: socket.socket) -> None:
        connections.append(stream)
        answer(GARBAGE)(stream)

    server.on("/file.json", answered)
    mirror = open_mirror(server)
    for _ in range(3):
        assert fetch(mirror) == GARBAGE
        with pytest.raises(NotFoundError):
            fetch(mirror, "missing")
    assert len({id(stream) for stream in connections}) == 1


def test_a_chunked_answer_is_put_together(server: Server) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server.on("/file.json", lambda stream: stream.sendall(head + b"4\r\nsome\r\n6\r\nthings\r\n0\r\n\r\n"))
    assert fetch(open_mirror(server)) == b"somethings"


def test_names_are_quoted(server: Server, answer: Callable[..., Answer]) -> None:
    server.on("/web/web-1.0+b~1%20%3F%23.tar.gz", answer(GARBAGE))
    assert fetch(open_mirror(server), "web/web-1.0+b~1 ?#.tar.gz") == GARBAGE


def test_any_url_can_be_fetched_too(server: Server, answer: Callable[..., Answer]) -> None:
    server.on("/page/?a=b%20c", answer(b"<html>a page</html>"))
    buffer = io.BytesIO()
    download_url(f"{server.origin}/page/?a=b%20c#part", 100, buffer)
    assert buffer.getvalue() == b"<html>a page</html>"
    for wrong in ("/etc/passwd", "file:///etc/passwd", "gopher://host/"):
        with pytest.raises(SettingsError, match="expected"):
            download_url(wrong, 100, buffer)


# --- status -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [403, 404])
def test_a_missing_file_is_told_from_other_problems(
    server: Server, answer: Callable[..., Answer], status: int
) -> None:
    server.on("/file.json", answer(b"<html>", status))
    with pytest.raises(NotFoundError, match=rf"http://127.0.0.1:\d+/file\.json: status {status}"):
        fetch(open_mirror(server, retries=3))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "status 400 Bad Request: expected 200"),
        (401, "status 401 Unauthorized: wrong or missing credentials"),
        (407, "wrong or missing credentials"),
        (410, "status 410 Gone: expected 200"),
        (204, "status 204 No Content: expected 200"),
        (206, "status 206 Partial Content: expected 200"),
        (299, "status 299: expected 200"),
        (304, "status 304 Not Modified: expected 200"),
    ],
)
def test_permanent_errors_are_not_retried(
    server: Server, answer: Callable[..., Answer], status: int, message: str
) -> None:
    server.on("/file.json", answer(b"", status))
    with pytest.raises(TransportError, match=message):
        fetch(open_mirror(server, retries=3))
    assert len(server.requests) == 1


def patient(server: Server, retries: int = 3) -> tuple[WebMirror, list[float]]:
    """Return a mirror whose pauses take no time and are recorded."""
    pauses: list[float] = []
    settings = TransportSettings(read_timeout=0.3, retries=retries)
    return WebMirror(Location.parse(server.origin), settings, pauses.append), pauses


def reset(stream: socket.socket) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


def half(stream: socket.socket) -> None:
    stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    stream.shutdown(socket.SHUT_RDWR)


def nonsense(stream: socket.socket) -> None:
    stream.sendall(b"nonsense\r\n\r\n")
    stream.shutdown(socket.SHUT_RDWR)


def hang(stream: socket.socket) -> None:
    while stream.recv(1):  # until the client gives up
        pass


FAILURES = {
    "lost connection": reset,
    "half an answer": half,
    "no answer": hang,
    "nonsense": nonsense,
}


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_status_that_may_pass_is_tried_again(
    server: Server, answer: Callable[..., Answer], status: int
) -> None:
    server.on("/file.json", answer(b"busy", status), answer(b"busy", status), answer(GARBAGE))
    mirror, pauses = patient(server)
    assert fetch(mirror) == GARBAGE
    assert len(pauses) == 2


@pytest.mark.parametrize("problem", FAILURES.values(), ids=FAILURES.keys())
def test_a_problem_that_may_pass_is_tried_again_from_the_start(
    server: Server, answer: Callable[..., Answer], problem: Answer
) -> None:
    server.on("/file.json", problem, answer(GARBAGE))
    mirror, _ = patient(server)
    assert fetch(mirror) == GARBAGE


def test_after_enough_attempts_it_is_given_up(server: Server, answer: Callable[..., Answer]) -> None:
    server.on("/file.json", answer(b"", 503))
    mirror, pauses = patient(server, retries=2)
    with pytest.raises(TransportError, match=r"status 503 Service Unavailable \(attempts: 3\)$"):
        fetch(mirror)
    assert len(server.requests) == 3
    assert len(pauses) == 2


def test_without_retries_there_is_a_single_attempt(server: Server, answer: Callable[..., Answer]) -> None:
    server.on("/file.json", answer(b"", 503))
    mirror, pauses = patient(server, retries=0)
    with pytest.raises(TransportError, match="attempts: 1"):
        fetch(mirror)
    assert (len(server.requests), pauses) == (1, [])


@pytest.mark.parametrize(
    ("asked", "granted"), [("7", 7.0), ("99999", 60.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0), ("-5", 0.0)]
)
def test_a_pause_that_the_server_asks_for_is_kept_within_reason(
    server: Server, answer: Callable[..., Answer], asked: str, granted: float
) -> None:
    server.on("/file.json", answer(b"", 429, Retry_After=asked), answer(GARBAGE))
    mirror, pauses = patient(server)
    fetch(mirror)
    (pause,) = pauses
    assert granted <= pause <= max(granted, 0.5)


def test_pauses_are_not_the_same_for_all_hosts(server: Server, answer: Callable[..., Answer]) -> None:
    server.on("/file.json", answer(b"", 503))
    mirror, pauses = patient(server, retries=8)
    with pytest.raises(TransportError):
        fetch(mirror)
    assert len(set(pauses)) == 8


# --- endless data, slow retrieval ---------------------------------------------------------------------------


@pytest.mark.attack("endless.body")
def test_an_answer_without_end_is_cut_off_at_the_limit(server: Server) -> None:
    sent = []

    def endless(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            sent.append(stream.send(b"x" * 100_000))

    server.on("/file.json", endless)
    with pytest.raises(OversizeError, match="has more than the permitted 1000 bytes"):
        fetch(open_mirror(server))
    assert sum(sent) < 100_000_000


@pytest.mark.attack("endless.body")
def test_the_body_of_a_redirect_may_be_without_end(server: Server, answer: Callable[..., Answer]) -> None:
    sent = []

    def endless(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n")
        while True:
            sent.append(stream.send(b"x" * 100_000))

    server.on("/file.json", endless)
    server.on("/elsewhere", answer(GARBAGE))
    assert fetch(open_mirror(server)) == GARBAGE
    assert sum(sent) < 100_000_000


@pytest.mark.attack("endless.body")
def test_an_announced_length_beyond_the_limit_is_not_even_read(
    server: Server, answer: Callable[..., Answer]
) -> None:
    for length in ("1001", "9" * 30):
        server.on("/file.json", answer(b"", Content_Length=length))
        with pytest.raises(OversizeError, match="bytes, at most 1000 are allowed"):
            fetch(open_mirror(server))


def test_exactly_the_limit_is_allowed(server: Server, answer: Callable[..., Answer]) -> None:
    server.on("/file.json", answer(b"x" * 1000))
    assert len(fetch(open_mirror(server))) == 1000


@pytest.mark.attack("endless.length-long")
def test_a_length_that_lies_long_is_an_error(server: Server) -> None:
    server.on("/file.json", half)
    with pytest.raises(TransportError, match=r"the connection failed|the transfer was interrupted"):
        fetch(open_mirror(server))


@pytest.mark.attack("endless.length-short")
def test_short_content_length_does_not_disturb_the_next_answer(
    server: Server, answer: Callable[..., Answer]
) -> None:
    """Verification rejects the short file. The remaining bytes must not become part of the next answer."""
    server.on("/short", answer(b"abcdef", Content_Length="3"))
    server.on("/file.json", answer(GARBAGE))
    mirror, _ = patient(server)
    assert fetch(mirror, "short") == b"abc"
    assert fetch(mirror) == GARBAGE


def trickle(head: bytes, piece: bytes) -> Answer:
    """Send pieces slowly without finishing. Ends after a while, so that the test cannot hang."""

    def answer(stream: socket.socket) -> None:
        stream.sendall(head)
        never = threading.Event()
        for _ in range(300):
            never.wait(0.05)
            stream.sendall(piece)

    return answer


SLOW_BODIES = {
    "body": trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n", b"x"),
    "chunks": trickle(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "chunk size": trickle(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    "error's body": trickle(b"HTTP/1.1 404 Not Found\r\nContent-Length: 300\r\n\r\n", b"x"),
}
SLOW_HEADERS = {
    "headers": trickle(b"HTTP/1.1 200 OK\r\n", b"X-Header: x\r\n"),
    "header": trickle(b"HTTP/1.1 200 OK\r\nX-Header: ", b"x"),
    "status line": trickle(b"HTTP/1.1 ", b"2"),
    "continue": trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "error": trickle(b"HTTP/1.1 503 Busy\r\n", b"X-Header: x\r\n"),
}


@pytest.mark.parametrize(
    "slow",
    [
        *(
            pytest.param(slow, id=name, marks=pytest.mark.attack("slow.body"))
            for name, slow in SLOW_BODIES.items()
        ),
        *(
            pytest.param(slow, id=name, marks=pytest.mark.attack("slow.header"))
            for name, slow in SLOW_HEADERS.items()
        ),
    ],
)
@pytest.mark.representatives(3)
def test_a_trickle_ends_at_the_total_limit(server: Server, slow: Answer) -> None:
    server.on("/file.json", slow)
    mirror = open_mirror(server, read_timeout=30, total_timeout=1, retries=3)
    with pytest.raises(TransportError, match=r"took longer than the limit of 1 s|status 404"):
        fetch(mirror)
    assert len(server.requests) <= 1, "a machine that is busy may not get to the request; there is no second"


@pytest.mark.attack("slow.body")
@pytest.mark.parametrize("slow", [SLOW_BODIES["body"], SLOW_HEADERS["header"]], ids=["body", "header"])
def test_stalled_transfer_ends_before_the_total_limit(server: Server, slow: Answer) -> None:
    server.on("/file.json", slow)
    with pytest.raises(TransportError, match=r"stalled: less than 1000 bytes a second for 0\.3 s"):
        fetch(open_mirror(server, read_timeout=0.3, total_timeout=60))


def test_steady_transfer_may_exceed_the_silence_limit(server: Server) -> None:
    def send(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8000\r\n\r\n")
        for _ in range(8):
            threading.Event().wait(0.3)  # a fifth of the limit, because a busy machine makes pauses longer
            stream.sendall(bytes(1000))

    server.on("/file.json", send)
    assert len(fetch(open_mirror(server, read_timeout=1.5), limit=8000)) == 8000


@pytest.mark.attack("slow.body")
def test_silence_ends_at_the_read_limit(server: Server) -> None:
    server.on("/file.json", hang)
    with pytest.raises(TransportError, match=r"no response for 0\.2 s"):
        fetch(open_mirror(server, read_timeout=0.2))


def test_retries_end_at_the_total_limit(server: Server) -> None:
    server.on("/file.json", hang)
    with pytest.raises(TransportError, match=r"took longer|no response for"):
        fetch(open_mirror(server, read_timeout=0.1, total_timeout=0.4, retries=100))
    assert len(server.requests) < 10


# --- random answers -------------------------------------------------------------------------------------------

PIECES = [
    *(
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 200\r\n",
        b"HTTP/1.1 302 Found\r\n",
        b"HTTP/1.1 999\r\n",
        b"HTTP/9.9 abc",
    ),
    *(
        b"HTTP/1.1 100 Continue\r\n",
        b"HTTP/1.1 204 No Content\r\n",
        b"HTTP/1.1 206 Partial\r\n",
        b"ICY 200 OK\r\n",
    ),
    *(
        b"Content-Length: 5\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: x\r\n",
        b"Content-Length: 3, 5\r\n",
    ),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Content-Encoding: br\r\n",
    ),
    *(
        b"Location: http://[\r\n",
        b"Location: \xff\r\n",
        b"Location: //\r\n",
        b"Location: \r\n",
        b"Connection: close\r\n",
    ),
    *(b" folded\r\n", b"no colon\r\n", b": no name\r\n", b"\x00\r\n", b"\r\n", b"\n", b"\r"),
    *(b"5\r\nhello\r\n", b"0\r\n\r\n", b"-5\r\n", b"fffffffffffffffffff\r\n", b"zz\r\n", b"hello"),
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(some.lists(some.sampled_from(PIECES) | some.binary(max_size=20), max_size=8))
def test_any_server_answer_gives_bytes_or_a_puller_error(server: Server, pieces: list[bytes]) -> None:
    def send(stream: socket.socket) -> None:
        stream.sendall(b"".join(pieces))
        stream.shutdown(socket.SHUT_WR)

    server.on("/file.json", send)
    try:
        assert len(fetch(open_mirror(server, read_timeout=0.2, total_timeout=0.5), limit=8)) <= 8
    except TransportError:
        pass


# --- a page instead of a file -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page",
    [
        b"<!DOCTYPE html><title>Welcome</title>",
        b"\n  <html>",
        b"\xef\xbb\xbf<html>",
        b"<?xml version='1.0'?>",
    ],
)
def test_html_page_with_status_200_is_recognised(
    server: Server, answer: Callable[..., Answer], page: bytes
) -> None:
    server.on("/file.json", answer(page + b" " * 5000, Content_Type="text/html"))
    with pytest.raises(
        TransportError, match=r"is a web page, expected file\.json: a captive portal or a proxy"
    ):
        fetch(open_mirror(server), limit=10_000)


def test_compression_that_was_not_asked_for_is_refused(server: Server, answer: Callable[..., Answer]) -> None:
    server.on("/file.json", answer(b"\x1f\x8b", Content_Encoding="gzip"))
    with pytest.raises(TransportError, match="Content-Encoding is 'gzip', expected 'identity'"):
        fetch(open_mirror(server))


def test_gzip_file_with_gzip_encoding_stays_compressed(server: Server, answer: Callable[..., Answer]) -> None:
    server.on("/file.tar.gz", answer(b"\x1f\x8bcompressed", Content_Encoding="gzip"))
    assert fetch(open_mirror(server), "file.tar.gz") == b"\x1f\x8bcompressed"


# --- redirects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_within_the_origin_keeps_credentials(
    server: Server, answer: Callable[..., Answer], status: int
) -> None:
    server.on("/file.json", answer(b"", status, Location="/elsewhere/file.json"))
    server.on("/elsewhere/file.json", answer(GARBAGE))
    assert fetch(open_mirror(server, token=Secret(CANARY))) == GARBAGE
    assert [request.headers.get("authorization") for request in server.requests] == [f"Bearer {CANARY}"] * 2


@pytest.mark.parametrize(
    ("location", "message"),
    [
        (
            "http://127.0.0.2:1/other-host",
            "redirects to http://127.0.0.2:1/other-host, expected the same origin or https",
        ),
        ("http://127.0.0.1:1/other-port", "expected the same origin or https"),
        ("//www.example.org/x", "redirects to http://www.example.org/x, expected the same origin or https"),
        pytest.param(
            "file:///etc/passwd",
            "redirects to file:///etc/passwd, expected http or https",
            marks=pytest.mark.attack("credentials.file"),
        ),
        ("ftp://127.0.0.1/x", "expected http or https"),
        ("gopher://127.0.0.1/x", "expected http or https"),
        ("javascript:alert(1)", "expected http or https"),
        ("https://", "expected http or https"),
        pytest.param(
            "https://me:secret@127.0.0.1/",
            r"redirects to https://\*\*\*@127.0.0.1/, expected a URL without credentials",
            marks=pytest.mark.attack("credentials.userinfo"),
        ),
        ("", "exceeds the limit of 5 redirects"),
        ("/file.json", "exceeds the limit of 5 redirects"),
    ],
)
def test_every_other_redirect_is_refused(
    server: Server, answer: Callable[..., Answer], location: str, message: str
) -> None:
    server.on("/file.json", answer(b"", 302, Location=location))
    with pytest.raises(TransportError, match=message):
        fetch(open_mirror(server, retries=3))
    assert len(server.requests) <= 6


@pytest.mark.parametrize(
    "location", ["http://[::1", "https://127.0.0.1:port/", "https://127.0.0.1:70000/", "\xff\xfe"]
)
def test_redirect_to_an_invalid_url_is_refused(
    server: Server, answer: Callable[..., Answer], location: str
) -> None:
    server.on("/file.json", answer(b"", 302, Location=location))
    with pytest.raises(TransportError, match=r"redirects to an invalid URL|status 404"):
        fetch(open_mirror(server))


def test_a_redirect_without_a_target_leads_nowhere(server: Server, answer: Callable[..., Answer]) -> None:
    server.on("/file.json", answer(b"", 302))
    with pytest.raises(TransportError, match="redirect"):
        fetch(open_mirror(server))


# --- TLS and redirects to https -----------------------------------------------------------------------------


def test_a_certificate_of_the_configured_authority_is_trusted(
    authority: Authority, new_server: Callable[..., Server], answer: Callable[..., Answer]
) -> None:
    server = new_server(tls=authority.server())
    server.on("/file.json", answer(GARBAGE))
    assert fetch(open_mirror(server, ca_bundle=str(authority.bundle))) == GARBAGE


def test_unknown_certificate_authority_is_refused_at_once(
    authority: Authority, new_server: Callable[..., Server]
) -> None:
    server = new_server(tls=authority.server())
    with pytest.raises(
        TransportError, match="the server's certificate is not trusted: unable to get local issuer"
    ):
        fetch(open_mirror(server, retries=3))
    assert server.requests == []


def test_an_expired_certificate_may_be_the_clocks_fault(
    authority: Authority, new_server: Callable[..., Server]
) -> None:
    server = new_server(tls=authority.server(valid=timedelta(days=-1)))
    with pytest.raises(
        TransportError, match=r"certificate has expired, and the clock of this host shows 20\d\d-"
    ):
        fetch(open_mirror(server, ca_bundle=str(authority.bundle)))


@pytest.mark.attack("slow.header")
def test_a_trickle_over_tls_ends_at_the_total_limit(
    authority: Authority, new_server: Callable[..., Server]
) -> None:
    server = new_server(tls=authority.server())
    server.on("/file.json", trickle(b"HTTP/1.1 200 OK\r\n", b"X-Header: x\r\n"))
    with pytest.raises(TransportError, match="took longer than the limit of"):
        fetch(open_mirror(server, ca_bundle=str(authority.bundle), read_timeout=30, total_timeout=1))


def test_client_certificate_goes_to_the_configured_origin(
    authority: Authority, new_server: Callable[..., Server], answer: Callable[..., Answer]
) -> None:
    server = new_server(tls=authority.server(demand_client=True))
    server.on("/file.json", answer(GARBAGE))
    identity, bundle = str(authority.identity("host01")), str(authority.bundle)
    assert fetch(open_mirror(server, ca_bundle=bundle, client_cert=identity)) == GARBAGE
    with pytest.raises(TransportError, match=r"TLS failed|the connection failed"):
        fetch(open_mirror(server, ca_bundle=bundle))


@pytest.mark.attack("credentials.downgrade")
def test_from_https_to_http_is_refused(
    authority: Authority, new_server: Callable[..., Server], server: Server, answer: Callable[..., Answer]
) -> None:
    secure = new_server(tls=authority.server())
    secure.on("/file.json", answer(b"", 301, Location=f"{server.origin}/file.json"))
    with pytest.raises(TransportError, match="expected the same origin or https"):
        fetch(open_mirror(secure, ca_bundle=str(authority.bundle)))
    assert server.requests == []


@pytest.mark.attack("credentials.other-host")
@pytest.mark.parametrize("secure", [True, False], ids=["from https", "from http"])
def test_a_redirect_to_another_origin_carries_no_credentials(
    authority: Authority, new_server: Callable[..., Server], answer: Callable[..., Answer], secure: bool
) -> None:
    first = new_server(tls=authority.server() if secure else None)
    other = new_server(tls=authority.server())
    first.on(
        "/file.json", answer(b"", 302, Location=f"{other.origin}/file.json", Set_Cookie=f"session={CANARY}")
    )
    other.on("/file.json", answer(GARBAGE))
    settings = TransportSettings(
        token=Secret(CANARY),
        headers={"X-Api-Key": Secret(CANARY)},
        ca_bundle=str(authority.bundle),
        client_cert=str(authority.identity("host01")),
    )
    (mirror,) = open_mirrors([first.origin], settings)
    assert fetch(mirror) == fetch(mirror) == GARBAGE
    assert all(CANARY in request.headers["authorization"] for request in first.requests)
    assert not any(CANARY in value for request in other.requests for value in request.headers.values())
    assert not any("cookie" in request.headers for request in first.requests)


# --- credentials --------------------------------------------------------------------------------------------

BASIC = "Basic " + base64.b64encode(f"me:{CANARY}".encode()).decode()


@pytest.mark.attack("credentials.userinfo")
@pytest.mark.parametrize(
    ("userinfo", "settings", "sent"),
    [
        ("", {"username": "me", "password": Secret(CANARY)}, BASIC),
        ("", {"token": Secret(CANARY)}, f"Bearer {CANARY}"),
        (f"me:{CANARY}@", {}, BASIC),
        (f"me:{CANARY}@", {"token": Secret("another")}, BASIC),
        ("", {"username": "me"}, "Basic bWU6"),
        ("", {}, None),
    ],
)
def test_credentials_come_from_settings_or_from_the_url(
    server: Server, answer: Callable[..., Answer], userinfo: str, settings: dict[str, Any], sent: str | None
) -> None:
    server.on("/file.json", answer(GARBAGE))
    mirror = open_mirror(server.origin.replace("://", f"://{userinfo}"), **settings)
    assert fetch(mirror) == GARBAGE
    assert server.requests[0].headers.get("authorization") == sent
    assert CANARY not in str(mirror)


def test_configured_headers_are_sent(server: Server, answer: Callable[..., Answer]) -> None:
    server.on("/file.json", answer(GARBAGE))
    fetch(open_mirror(server, headers={"X-Api-Key": Secret("key")}, user_agent="custom/1"))
    assert server.requests[0].headers["x-api-key"] == "key"
    assert server.requests[0].headers["user-agent"] == "custom/1"


@pytest.mark.attack("credentials.other-host")
def test_credentials_of_the_first_site_stay_with_it(
    new_server: Callable[..., Server], answer: Callable[..., Answer]
) -> None:
    servers = [new_server() for _ in range(3)]
    for server in servers:
        server.on("/file.json", answer(GARBAGE))
        server.on("/copy/file.json", answer(GARBAGE))
    first, second, third = servers
    locations = [
        first.origin,
        second.origin,
        third.origin.replace("://", "://you:pass@"),
        f"{first.origin}/copy",
    ]
    settings = TransportSettings(token=Secret(CANARY), headers={"X-Api-Key": Secret(CANARY)})
    for mirror in open_mirrors(locations, settings):
        fetch(mirror)
    assert [request.headers["authorization"] for request in first.requests] == [f"Bearer {CANARY}"] * 2
    assert not second.requests[0].headers.keys() & {"authorization", "x-api-key"}
    assert third.requests[0].headers["authorization"] == "Basic eW91OnBhc3M="
    assert "x-api-key" not in third.requests[0].headers


@pytest.mark.attack("credentials.netrc")
def test_netrc_is_not_read(server: Server, answer: Callable[..., Answer], tmp_path: Path) -> None:
    netrc = tmp_path / ".netrc"  # HOME is tmp_path
    netrc.write_text(f"machine 127.0.0.1 login me password {CANARY}\n")
    netrc.chmod(0o600)
    server.on("/file.json", answer(GARBAGE))
    fetch(open_mirror(server))
    assert "authorization" not in server.requests[0].headers


def every_error_of(server: Server, answer: Callable[..., Answer]) -> Iterator[Answer]:
    yield from FAILURES.values()
    for status in (401, 404, 503, 302):
        yield answer(b"", status)
    yield answer(b"<html>")
    yield answer(b"", 302, Location=f"https://me:{CANARY}@127.0.0.1:1/")
    yield answer(b"", Content_Length="5000")


@pytest.mark.attack("credentials.output")
def test_no_error_shows_a_password(
    server: Server, answer: Callable[..., Answer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    settings = TransportSettings(
        read_timeout=0.2,
        retries=1,
        proxy=Secret(f"http://me:{CANARY}@127.0.0.1:1"),
        headers={"X-Key": Secret(CANARY)},
    )
    url = server.origin.replace("://", f"://me:{CANARY}@")
    pause: Callable[[float], None] = lambda _: None  # noqa: E731 - no pause
    output = [repr(settings), repr(Location.parse(url))]
    for each in (settings, msgspec.structs.replace(settings, proxy=Secret(""))):
        mirror = WebMirror(Location.parse(url), each, pause)
        for problem in every_error_of(server, answer):
            server.on("/file.json", problem)
            with pytest.raises(TransportError) as caught:
                fetch(mirror)
            output += [str(caught.value), repr(caught.value), *map(str, _chain(caught.value))]
    assert len(output) > 20
    assert CANARY not in "\n".join([*output, caplog.text])


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the other errors that a traceback would show."""
    while (
        following := error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    ) is not None:
        yield following
        error = following


# --- proxies ------------------------------------------------------------------------------------------------


@pytest.fixture
def proxied(server: Server, answer: Callable[..., Answer]) -> Server:
    """Return a proxy for one site."""
    server.on("http://www.example.org/file.json", answer(GARBAGE))
    return server


def test_a_configured_proxy_is_used_with_its_password(proxied: Server) -> None:
    proxy = Secret(proxied.origin.replace("://", f"://me:{CANARY}@"))
    assert fetch(open_mirror("http://www.example.org", proxy=proxy)) == GARBAGE
    assert proxied.requests[0].headers["proxy-authorization"] == BASIC


@pytest.mark.attack("credentials.proxy")
def test_a_proxy_of_the_environment_is_used(proxied: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxied.origin)
    assert fetch(open_mirror("http://www.example.org")) == GARBAGE


@pytest.mark.attack("credentials.proxy")
def test_no_proxy_and_empty_setting_disable_the_proxy(
    proxied: Server,
    new_server: Callable[..., Server],
    answer: Callable[..., Answer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    direct = new_server()
    direct.on("/file.json", answer(GARBAGE))
    monkeypatch.setenv("http_proxy", proxied.origin)
    assert fetch(open_mirror(direct, proxy=Secret(""))) == GARBAGE
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert fetch(open_mirror(direct)) == GARBAGE
    assert proxied.requests == []


@pytest.mark.attack("credentials.proxy")
def test_a_proxy_is_not_told_the_credentials_of_a_site_over_tls(
    server: Server, answer: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", server.origin)
    server.on("www.example.org:443", answer(b"", 403))
    with pytest.raises(TransportError, match="proxy"):
        fetch(open_mirror(f"https://me:{CANARY}@www.example.org", headers={"X-Api-Key": Secret(CANARY)}))
    (request,) = server.requests
    assert not request.headers.keys() & {"authorization", "x-api-key", "proxy-authorization"}
    assert CANARY not in str(request)


def test_a_proxy_that_is_down_is_named_as_the_problem() -> None:
    with pytest.raises(TransportError, match="the proxy cannot be used: Connection refused"):
        fetch(open_mirror("http://www.example.org", proxy=Secret("http://127.0.0.1:1")))


@pytest.mark.attack("slow.header")
def test_endless_proxy_header_ends_at_the_total_limit(server: Server) -> None:
    server.on("www.example.org:443", trickle(b"HTTP/1.1 200 OK\r\n", b"X-Header: x\r\n"))
    mirror = open_mirror(
        "https://www.example.org", proxy=Secret(server.origin), read_timeout=5, total_timeout=0.4
    )
    with pytest.raises(TransportError, match="took longer than the limit of"):
        fetch(mirror)


# --- settings -----------------------------------------------------------------------------------------------


@each_row(
    ("settings", "message"),
    [
        ({"connect_timeout": 0}, "connect_timeout is 0, expected more than 0 seconds"),
        ({"total_timeout": -1}, "total_timeout is -1"),
        ({"retries": -1}, "retries is -1, expected 0 to 100"),
        ({"token": Secret("a"), "username": "b"}, "token and username exclude each other"),
        ({"client_key": "/x"}, "client_key requires client_cert"),
        (
            {"token": Secret("a\r\nX-Evil: b")},
            "token is empty or contains characters outside printable ASCII",
        ),
        ({"token": Secret("")}, "token is empty"),
        ({"headers": {"X-Y": Secret("a\nb")}}, "headers: 'X-Y' or its value is not printable ASCII"),
        ({"headers": {"X Y": Secret("a")}}, "headers: 'X Y'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransportSettings(**settings)


@pytest.mark.parametrize("name", ["ca_bundle", "client_cert"])
def test_a_file_that_is_not_there_is_a_matter_of_settings(name: str) -> None:
    with pytest.raises(SettingsError, match=f"/nonexistent: the file of {name} cannot be read"):
        open_mirror("https://www.example.org", **{name: "/nonexistent"})


def test_no_site_at_all_is_a_matter_of_settings() -> None:
    with pytest.raises(SettingsError, match="no location is configured"):
        open_mirrors([])


# --- the table of exceptions --------------------------------------------------------------------------------


def subclasses(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    yield kind
    for each in kind.__subclasses__():
        yield from subclasses(each)


ARGUMENTS: dict[type[BaseException], tuple[Any, ...]] = {
    requests.exceptions.JSONDecodeError: ("said", "document", 0),
    urllib3.exceptions.IncompleteRead: (3, 5),
    urllib3.exceptions.InvalidChunkLength: (urllib3.HTTPResponse(), b"x"),
}


def instance(kind: type[BaseException]) -> BaseException:
    """Return an instance of the exception. Some exceptions require arguments of certain types."""
    for arguments in (
        ARGUMENTS.get(kind, ("said",)),
        (None, "said"),
        (None, None, "said"),
        ("host", None, None),
    ):
        try:
            return kind(*arguments)
        except TypeError:
            continue
    raise AssertionError(f"{kind} wants other arguments")


@each_row(
    "kind",
    [*subclasses(requests.RequestException), *subclasses(urllib3.exceptions.HTTPError), ConnectionResetError],
    ids=lambda kind: f"{kind.__module__}.{kind.__name__}",
)
def test_every_exception_of_the_library_becomes_ours(kind: type[Exception]) -> None:
    mirror = WebMirror(Location.parse("http://www.example.org"), TransportSettings(retries=1), lambda _: None)
    with responses.RequestsMock() as mocked:
        mocked.get("http://www.example.org/file.json", body=instance(kind))
        with pytest.raises(TransportError, match=r"^http://www\.example\.org/file\.json: "):
            fetch(mirror)


# --- directories --------------------------------------------------------------------------------------------


def test_a_directory_is_a_site_too(tmp_path: Path) -> None:
    (tmp_path / "file.json").write_bytes(GARBAGE)
    (mirror,) = open_mirrors([str(tmp_path)])
    assert fetch(mirror) == GARBAGE
    with pytest.raises(NotFoundError, match="the file is missing"):
        fetch(mirror, "missing.json")
    with pytest.raises(OversizeError, match=f"has {len(GARBAGE)} bytes, at most 3 are allowed"):
        fetch(mirror, limit=3)


def test_a_stick_that_is_not_mounted_is_not_an_empty_site(tmp_path: Path) -> None:
    (mirror,) = open_mirrors([str(tmp_path / "usb")])
    with pytest.raises(
        TransportError, match="the directory is missing; check that the medium is mounted"
    ) as caught:
        fetch(mirror)
    assert not isinstance(caught.value, NotFoundError)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (mirror,) = open_mirrors([str(tmp_path)])
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("fifo", "directory", "device"):
        with pytest.raises(TransportError, match="expected a regular file"):
            fetch(mirror, name)
