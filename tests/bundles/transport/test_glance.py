"""The two requests of a glance: framing of answers, closed connections, and limits."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from bundles.deadline import Deadline, DeadlineError
from bundles.transport.plain import Glance, Place
from tests.support.rows import each_row

HEAD = b"HTTP/1.1 200 OK\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\n"


class Server:
    """Sends one answer to each request. ``None`` closes the connection."""

    def __init__(self, *answers: bytes | None, pause: float = 0) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self._pause = pause
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.netloc = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while self.answers:
                connection, _ = self._listening.accept()
                self.connections += 1
                with connection:
                    self._attend(connection)

    def _attend(self, connection: socket.socket) -> None:
        while self.answers:
            data = b""
            while not data.endswith(b"\r\n\r\n"):
                if not (piece := connection.recv(4096)):
                    return
                data += piece
            self.requests.append(data)
            if (answer := self.answers.pop(0)) is None:
                return
            for start in range(0, len(answer), 7) if self._pause else ():
                connection.sendall(answer[start : start + 7])
                threading.Event().wait(self._pause)
            if not self._pause:
                connection.sendall(answer)
            if self.answers and self.answers[0] is None:
                self.answers.pop(0)
                return
        connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.answers = []
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()  # otherwise it could accept from the next socket with the same descriptor
        self._listening.close()


@contextmanager
def served(*answers: bytes | None, pause: float = 0) -> Iterator[Server]:
    server = Server(*answers, pause=pause)
    try:
        yield server
    finally:
        server.close()


CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
NO_ROOT = NOT_FOUND + b"Content-Length: 2\r\n\r\nno"


def take(
    netloc: str,
    root: str = "1.root.json",
    *,
    seconds: float = 30.0,
    headers: Mapping[str, str] | None = None,
    length: int = 5,
) -> tuple[int, bytes]:
    place = Place("http", netloc, "/site", headers or {}, 30.0, 30.0, None)
    return Glance(place).take(root, "timestamp.json", length, Deadline(seconds))


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 5\r\n\r\nhello",
        b"content-length:5\r\nX: y\r\n\r\nhello",
        CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
        b"\r\nhello",
    ],
)
def test_timestamp_in_each_framing_is_read_whole(body: bytes) -> None:
    with served(NO_ROOT, HEAD + body) as server:
        assert take(server.netloc) == (404, b"hello")
        assert server.connections == 1


@pytest.mark.parametrize(
    "refusal",
    [
        NOT_FOUND + b"\r\nno",
        b"HTTP/1.0 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
        NOT_FOUND + b"Connection: close\r\nContent-Length: 2\r\n\r\nno",
    ],
)
def test_closed_connection_is_opened_again(refusal: bytes) -> None:
    with served(refusal, None, HEAD + b"Content-Length: 5\r\n\r\nhello") as server:
        assert take(server.netloc) == (404, b"hello")
        assert server.connections == 2


@pytest.mark.parametrize("framing", [b"Connection: close\r\nContent-Length: 20\r\n", b""])
def test_sockets_are_closed_with_an_unread_rest(monkeypatch: pytest.MonkeyPatch, framing: bytes) -> None:
    sockets: list[socket.socket] = []
    answers: list[object] = []
    connect, request = socket.create_connection, Glance._request

    def connect_and_keep(*arguments: Any, **options: Any) -> socket.socket:
        sockets.append(connect(*arguments, **options))
        return sockets[-1]

    def request_and_keep(glance: Glance, *arguments: Any) -> Any:
        answers.append(request(glance, *arguments))
        return answers[-1]

    monkeypatch.setattr(socket, "create_connection", connect_and_keep)
    monkeypatch.setattr(Glance, "_request", request_and_keep)
    with served(NO_ROOT, HEAD + framing + b"\r\n" + b"x" * 20) as server:
        assert take(server.netloc) == (404, b"xxxxxx")
    assert len(answers) == 2
    assert [one.fileno() for one in sockets] == [-1] * len(sockets)


@pytest.mark.parametrize("status", [200, 301, 403, 500])
def test_other_status_of_root_ends_the_glance(status: int) -> None:
    with served(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nno" % status) as server:
        assert take(server.netloc) == (status, b"")
        assert len(server.requests) == 1


@pytest.mark.parametrize("framing", ["length", "chunks", "end"])
def test_no_more_of_timestamp_is_read_than_its_length(framing: str) -> None:
    body = b"x" * 500_000
    answer = {
        "length": HEAD + b"Content-Length: 500000\r\n\r\n" + body,
        "chunks": HEAD + CHUNKED + b"7a120\r\n" + body + b"\r\n0\r\n\r\n",
        "end": HEAD + b"\r\n" + body,
    }[framing]
    with served(NO_ROOT, answer) as server:
        assert take(server.netloc) == (404, b"x" * 6)


@pytest.mark.parametrize("size", [64 * 1024, 500_000])
def test_large_refusal_is_an_error(size: int) -> None:
    with (
        served(NOT_FOUND + b"Content-Length: %d\r\n\r\n" % size + b"x" * size) as server,
        pytest.raises(ValueError, match="too large"),
    ):
        take(server.netloc)


@each_row(
    "answer",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        HEAD + CHUNKED + b"x\r\nhello",
        HEAD + CHUNKED + b"5\r\nhel",
        HEAD + b"A: " + b"b" * 70_000 + b"\r\n\r\n",
        HEAD + b"A: b\r\n" * 1000 + b"\r\n",
    ],
)
def test_invalid_answer_is_an_error(answer: bytes) -> None:
    with (
        served(NO_ROOT, answer) as server,
        pytest.raises((ValueError, OSError), match=r"\w"),
    ):
        take(server.netloc)


def test_requests_have_host_headers_and_path() -> None:
    with served(NO_ROOT, HEAD + b"Content-Length: 0\r\n\r\n") as server:
        take(server.netloc, headers={"User-Agent": "puller", "Authorization": "Basic x"})
    first, second = (request.split(b"\r\n") for request in server.requests)
    assert first[0] == b"GET /site/1.root.json HTTP/1.1"
    assert second[0] == b"GET /site/timestamp.json HTTP/1.1"
    fields = {
        f"Host: {server.netloc}".encode(),
        b"Accept-Encoding: identity",
        b"User-Agent: puller",
        b"Authorization: Basic x",
    }
    assert {*first[1:-2]} == {*second[1:-2]} == fields


@pytest.mark.parametrize("headers", [{"A": "b\r\nC: d"}, {"A\r\nB": "c"}, {"": "c"}, {"A:": "c"}, {"A": "€"}])
def test_header_cannot_add_lines(headers: dict[str, str]) -> None:
    with served(HEAD) as server, pytest.raises(ValueError, match=r"\w"):
        take(server.netloc, headers=headers)
    assert server.requests == []


@pytest.mark.parametrize("path", ["a b", "a\r\nX: y", "\x7f", "ü"])
def test_path_cannot_add_lines(path: str) -> None:
    with served(HEAD) as server, pytest.raises(ValueError, match=r"\w"):
        take(server.netloc, path)
    assert server.requests == []


@pytest.mark.parametrize(
    "answer", [HEAD + b"Content-Length: 5000\r\n\r\n" + b"x" * 5000, HEAD + CHUNKED + b"1\r\nx\r\n" * 999]
)
def test_trickling_answer_ends_at_the_deadline(answer: bytes) -> None:
    with (
        served(answer, pause=0.05) as server,
        pytest.raises((DeadlineError, TimeoutError)),
    ):
        take(server.netloc, seconds=0.5)
