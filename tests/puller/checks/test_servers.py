"""Checks of servers: healthy, failing, wrong, slow, and endless."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from foundation.times import Duration
from puller.checks.kinds import Dns, HealthCheck, Http, JsonValue, Tcp, Unix
from puller.engine.conditions import check_health
from puller.reporting.report import Health, HealthResult
from puller.system.local import LocalSystem
from tests.simulators.authority import Authority
from tests.simulators.moodyserver import serving
from tests.support.rows import each_row

Talk = Callable[[Any], None]
LIMIT = 1.0
PATIENCE = 40
"""Seconds beyond ``LIMIT`` that a busy machine may need. The test servers are silent for longer."""


def asked(timeout: float = 10.0, **kind: Any) -> HealthResult:
    """Return the result of a check with a single try."""
    return check_health(HealthCheck(timeout=Duration(timeout), **kind), LocalSystem())


def assert_wrong(result: HealthResult, sentence: str) -> None:
    assert result.status is Health.CRITICAL, result
    assert sentence in result.output


def assert_in_order(result: HealthResult) -> None:
    assert result.status is Health.OK, result


@contextmanager
def talking(talk: Talk, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Start a server that runs ``talk`` for each connection, and yield its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def attend(stream: socket.socket) -> None:
        with (
            suppress(OSError),
            stream,
            tls.wrap_socket(stream, server_side=True) if tls else stream as spoken,
        ):
            talk(spoken)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=attend, args=(listener.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()  # otherwise it could accept from the next socket with the same descriptor
    listener.close()


def answering(text: bytes) -> Talk:
    def talk(stream: Any) -> None:
        while not stream.recv(65536).endswith(b"\r\n\r\n"):
            pass
        stream.sendall(text)

    return talk


def answer(body: bytes, status: str = "200 OK", headers: str = "", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n{headers}\r\n".encode() + body


def http(port: int, timeout: float = 10.0, path: str = "/", **additional: Any) -> HealthResult:
    return asked(timeout, http=Http(url=f"http://127.0.0.1:{port}{path}", **additional))


def test_status_text_and_json_of_an_answer() -> None:
    body = b'{"state": "up", "nodes": [{"n": 1, "ok": true}]}'
    with talking(answering(answer(body))) as port:
        assert_in_order(http(port))
        assert_in_order(http(port, status=200, contains='"up"'))
        assert_wrong(http(port, status=(201, 204)), "the status is 200, expected 201 or 204")
        assert_wrong(http(port, contains="down"), "the body does not contain 'down'")
        nodes = (JsonValue(path="state", value="up"), JsonValue(path="nodes.0.n", value=1))
        assert_in_order(http(port, json=nodes))
        wrong = http(port, json=(JsonValue(path="nodes.0.ok", value=1),))
        assert_wrong(wrong, "nodes.0.ok is true in the JSON, expected 1")
        assert_wrong(http(port, json=(JsonValue(path="nodes.1.n", value=1),)), "has no value at nodes.1.n")
    with talking(answering(answer(b"oops", "503 Away"))) as port:
        assert_wrong(http(port), "the status is 503, expected 200 to 299")
        assert_wrong(http(port, status=503, json=nodes), "the body is not valid JSON")


def test_a_redirect_is_followed_only_when_the_check_says_so() -> None:
    with talking(answering(answer(b"here"))) as there:
        leads = answer(b"", "302 Found", f"Location: http://127.0.0.1:{there}/x\r\n")
        with talking(answering(leads)) as port:
            assert_wrong(http(port), "the status is 302 (a redirect), expected 200 to 299")
            assert_in_order(http(port, redirects=1, contains="here"))
    with talking(answering(answer(b"", "302 Found", "Location: /again\r\n"))) as port:
        assert_wrong(http(port, redirects=3), "the status is 302")
    with talking(answering(answer(b"", "302 Found", "Location: file:///etc/passwd\r\n"))) as port:
        assert http(port, redirects=1).status is Health.UNKNOWN


def test_headers_go_to_the_server_of_the_check_only() -> None:
    seen: list[bytes] = []

    def noting(text: bytes) -> Talk:
        def talk(stream: Any) -> None:
            seen.append(stream.recv(65536))
            stream.sendall(text)

        return talk

    with talking(noting(answer(b"here"))) as there:
        leads = answer(b"", "302 Found", f"Location: http://127.0.0.1:{there}/x\r\n")
        with talking(noting(leads)) as port:
            assert_in_order(http(port, redirects=1, headers=("X-Token: abc", "Host: www.example.org")))
    assert [b"X-Token: abc" in request for request in seen] == [True, False]
    assert seen[0].lower().count(b"host:") == 1


LIES = {
    "a body that is shorter than its length": (
        answer(b"ready", length=50),
        "the body ends after 5 bytes, but its Content-Length is 50",
    ),
    "chunks without an end": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nready\r\n",
        "the body is incomplete: the last chunk is missing",
    ),
    "no HTTP at all": (b"220 mail.example.org\r\n", "the answer is not valid HTTP"),
    "nothing": (b"", "no answer: "),
    "a status that is none": (b"HTTP/1.1 OK\r\n\r\n", "the answer is not valid HTTP"),
    "headers without an end": (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500, "the answer is not valid HTTP"),
    "a line without an end": (b"HTTP/1.1 200 " + b"x" * 200_000, "the answer is not valid HTTP"),
    "a packed body": (
        answer(b"ready", headers="Content-Encoding: gzip\r\n"),
        "unexpected Content-Encoding 'gzip'",
    ),
}


@each_row("lie", LIES)
def test_a_server_that_lies_is_not_in_order(lie: str) -> None:
    text, sentence = LIES[lie]
    with talking(answering(text)) as port:
        assert_wrong(http(port, contains="ready"), sentence)


def endless(stream: Any) -> None:
    stream.recv(65536)
    stream.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        stream.sendall(b"x" * 65536)


def test_of_an_endless_body_only_the_beginning_is_read() -> None:
    with talking(endless) as port:
        assert_wrong(http(port, contains="ready"), "does not contain 'ready' in its first 1048576 bytes")
        assert_wrong(http(port, json=(JsonValue(path="a", value=1),)), "which is too large to check as JSON")


def dripping(text: bytes) -> Talk:
    def talk(stream: Any) -> None:
        stream.recv(65536)
        stream.sendall(text)
        while True:
            stream.sendall(b"x")
            time.sleep(0.05)

    return talk


SLOW: dict[str, Talk] = {
    "drops of a status line": dripping(b""),
    "drops of a header": dripping(b"HTTP/1.1 200 OK\r\nX-Long: "),
    "drops of a body": dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
    "silence": lambda stream: time.sleep(60),
}


@pytest.mark.parametrize("slow", SLOW)
def test_a_server_that_takes_too_long_is_not_waited_for(slow: str) -> None:
    with talking(SLOW[slow]) as port:
        began = time.monotonic()
        result = http(port, timeout=LIMIT)
        assert time.monotonic() - began < PATIENCE
        assert not result.status.in_order


def test_a_handshake_that_does_not_end_is_not_waited_for() -> None:
    with talking(lambda stream: time.sleep(60)) as port:
        began = time.monotonic()
        result = asked(LIMIT, http=Http(url=f"https://127.0.0.1:{port}/"))
        assert time.monotonic() - began < PATIENCE
        assert not result.status.in_order


def test_certificates_are_verified_and_their_days_are_counted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    bundle = str(authority.bundle)

    def https(port: int, **additional: Any) -> HealthResult:
        return asked(http=Http(url=f"https://127.0.0.1:{port}/", **additional))

    with talking(answering(answer(b"ready")), authority.server(timedelta(days=20))) as port:
        assert_in_order(https(port, ca_bundle=bundle, contains="ready", certificate_days=19))
        wrong = https(port, ca_bundle=bundle, certificate_days=30)
        assert_wrong(wrong, "the certificate is valid for 20.0 days, expected 30")
        assert_wrong(https(port), "the certificate is not valid: ")
        elsewhere = Http(url="https://www.example.org/", ca_bundle=bundle, connect=f"127.0.0.1:{port}")
        assert_wrong(asked(http=elsewhere), "the certificate is not valid: Hostname mismatch")
        result = https(port, ca_bundle=str(tmp_path / "none.pem"))
        assert result.status is Health.UNKNOWN
        assert "ca_bundle" in result.output
    with talking(answering(answer(b"ready")), authority.server(timedelta(days=-1))) as port:
        assert_wrong(https(port, ca_bundle=bundle), "certificate has expired")


def test_slow_server_passes_and_silent_server_fails(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("ready" * 20_000)
    with serving(tmp_path) as server:
        address = f"{server.url}/page"
        server.mood = lambda: "slow"
        assert_in_order(asked(http=Http(url=address, contains="ready")))
        server.mood = lambda: "silent"
        assert asked(LIMIT, http=Http(url=address)).status is Health.UNKNOWN


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_ports_and_greetings() -> None:
    def greet(stream: Any) -> None:
        stream.sendall(b"220 mail.")
        time.sleep(0.05)
        stream.sendall(b"example.org ESMTP\r\n")
        time.sleep(60)

    with talking(greet) as port:
        address = f"127.0.0.1:{port}"
        assert_in_order(asked(tcp=Tcp(address=address)))
        assert_in_order(asked(tcp=Tcp(address=f"localhost:{port}", greets="example.org ESMTP")))
        result = asked(LIMIT, tcp=Tcp(address=address, greets="SSH-2.0"))
        assert not result.status.in_order
    with talking(lambda stream: stream.sendall(b"go away\n")) as port:
        address = f"127.0.0.1:{port}"
        wrong = asked(tcp=Tcp(address=address, greets="SSH-2.0"))
        assert_wrong(wrong, f"{address} greets with 'go away', expected 'SSH-2.0' in it")
    closed = f"127.0.0.1:{closed_port()}"
    assert_wrong(asked(tcp=Tcp(address=closed)), f"{closed} accepts no connection: connection refused")
    assert_wrong(asked(http=Http(url=f"http://{closed}/")), "accepts no connection: connection refused")


def test_sockets_of_the_file_system(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    assert_wrong(asked(unix=Unix(path=path)), f"{path} accepts no connection: no such file or directory")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        assert_wrong(asked(unix=Unix(path=path)), "connection refused")
        listener.listen()
        assert_in_order(asked(unix=Unix(path=path)))
        assert not asked(LIMIT, unix=Unix(path=path, greets="hello")).status.in_order
    assert_wrong(asked(unix=Unix(path=path)), "connection refused")


def test_names() -> None:
    assert_in_order(asked(dns=Dns(name="localhost", type="A", addresses=("127.0.0.1",))))
    wrong = asked(dns=Dns(name="localhost", type="A", addresses=("127.0.0.1", "192.0.2.1")))
    assert_wrong(wrong, "localhost has 127.0.0.1, expected 127.0.0.1, 192.0.2.1")
    assert not asked(dns=Dns(name="no-such-name.invalid")).status.in_order


def test_it_is_tried_until_it_is_in_order() -> None:
    seen = 0

    def talk(stream: Any) -> None:
        nonlocal seen
        seen += 1
        answering(answer(b"ready" if seen > 2 else b"starting"))(stream)

    with talking(talk) as port:
        desired = Http(url=f"http://127.0.0.1:{port}/", contains="ready")
        check = HealthCheck(http=desired, tries=5, try_sleep=Duration(0.01))
        result = check_health(check, LocalSystem())
    assert (result.status, result.tries) == (Health.OK, 3)
