"""Requests over one connection: every framing of an answer, nothing that is out of order, and no byte of the next."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles.deadline import Deadline, DeadlineError
from bundles.transport.reading import Reading
from bundles.transport.requesting import Answer, Requests

HEAD = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Gives the answers that it was told, one to each request; ``None`` closes the connection."""

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
        self._listening.close()


@contextmanager
def served(*answers: bytes | None, pause: float = 0) -> Iterator[Server]:
    server = Server(*answers, pause=pause)
    try:
        yield server
    finally:
        server.close()


def connected(server: Server, headers: Mapping[str, str] | None = None) -> Requests:
    return Requests("http", server.netloc, headers or {}, 30.0, None)


def get(requests: Requests, path: str = "/a", limit: int = 1000, seconds: float = 30.0) -> Answer:
    return requests.get(path, limit, Reading(Deadline(seconds), 30.0))


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (HEAD + b"Content-Length: 5\r\n\r\nhello", b"hello"),
        (HEAD + b"content-length:5\r\nX: y\r\n\r\nhello", b"hello"),
        (HEAD + b"Content-Length: 0\r\n\r\n", b""),
        (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (CHUNKED + b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n", b"hello"),
        (CHUNKED + b"0\r\n\r\n", b""),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", b"no"),
        (b"HTTP/1.1 204 \r\n\r\n", b""),
    ],
)
def test_after_a_whole_answer_the_connection_has_the_next_request(answer: bytes, content: bytes) -> None:
    with served(answer, HEAD + b"Content-Length: 4\r\n\r\nnext") as server:
        requests = connected(server)
        first = get(requests)
        assert (first.content, first.is_whole) == (content, True)
        assert get(requests).content == b"next"
        assert server.connections == 1
        requests.close()


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        HEAD + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
def test_after_an_answer_that_closes_it_the_connection_is_made_again(answer: bytes) -> None:
    with served(answer, None, HEAD + b"Content-Length: 4\r\n\r\nnext") as server:
        requests = connected(server)
        first = get(requests)
        assert (first.content, first.is_whole) == (b"hello", True)
        assert get(requests).content == b"next"
        assert server.connections == 2
        requests.close()


@pytest.mark.parametrize("framing", ["length", "chunks", "end"])
def test_no_more_is_read_than_is_wanted(framing: str) -> None:
    body = b"x" * 500_000
    answer = {
        "length": HEAD + b"Content-Length: 500000\r\n\r\n" + body,
        "chunks": CHUNKED + b"7a120\r\n" + body + b"\r\n0\r\n\r\n",
        "end": HEAD + b"\r\n" + body,
    }[framing]
    with served(answer, None, HEAD + b"Content-Length: 4\r\n\r\nnext") as server:
        requests = connected(server)
        first = get(requests, limit=10)
        assert (first.content, first.is_whole) == (b"x" * 10, False)
        assert get(requests).content == b"next", "what was not read is no answer to the next request"
        requests.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 20\r\n\r\n",
        b"HTTP/1.1 +20 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + HEAD + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\n\nhello",
        HEAD + b"no field\r\n\r\n",
        HEAD + b"A: b\r\n folded\r\n\r\n",
        HEAD + b"Content-Length : 5\r\n\r\nhello",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        HEAD + b"Content-Length: -5\r\n\r\nhello",
        HEAD + b"Content-Length: 5, 5\r\n\r\nhello",
        HEAD + b"Content-Length: 0x5\r\n\r\nhello",
        HEAD + b"Content-Length: 99999999999999999999\r\n\r\nhello",
        HEAD + b"Content-Length: 9\r\n\r\nhello",
        HEAD + b"Transfer-Encoding: gzip\r\n\r\nhello",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"x\r\nhello",
        CHUNKED + b"-1\r\nhello",
        CHUNKED + b"5\r\nhelloo\r\n0\r\n\r\n",
        CHUNKED + b"5\r\nhello\r\n",
        CHUNKED + b"5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
        CHUNKED + b"5" + b";" * 2000 + b"\r\nhello\r\n0\r\n\r\n",
        HEAD + b"A: " + b"b" * 70_000 + b"\r\n\r\n",
    ],
)
def test_what_is_out_of_order_is_no_answer(answer: bytes) -> None:
    with served(answer) as server:
        requests = connected(server)
        with pytest.raises(ValueError, match=r"\w"):
            get(requests)
        requests.close()


def test_a_request_says_what_it_has_to() -> None:
    with served(HEAD + b"Content-Length: 0\r\n\r\n") as server:
        requests = connected(server, {"User-Agent": "puller", "Authorization": "Basic x"})
        get(requests, "metadata/1.root.json")
        requests.close()
    assert server.requests[0].split(b"\r\n") == [
        b"GET /metadata/1.root.json HTTP/1.1",
        f"Host: {server.netloc}".encode(),
        b"Accept-Encoding: identity",
        b"User-Agent: puller",
        b"Authorization: Basic x",
        b"",
        b"",
    ]


@pytest.mark.parametrize(
    ("netloc", "host"),
    [
        ("example.com:80", "example.com"),
        ("[::1]:8080", "[::1]:8080"),
        ("[::1]", "[::1]"),
        ("a.b:81", "a.b:81"),
    ],
)
def test_the_host_is_named_as_http_wants_it(netloc: str, host: str) -> None:
    requests = Requests("http", netloc, {}, 1.0, None)
    assert f"Host: {host}\r\n".encode() in requests._fields


@pytest.mark.parametrize(
    "headers",
    [{"A": "b\r\nC: d"}, {"A\r\nB": "c"}, {"A B": "c"}, {"": "c"}, {"A:": "c"}, {"A": "c\0"}, {"A": "€"}],
)
def test_a_header_cannot_say_more_than_one_line(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Requests("http", "127.0.0.1:1", headers, 1.0, None)


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX: y", "/\x7f", "/ü"])
def test_a_path_cannot_say_more_than_a_path(path: str) -> None:
    with served(HEAD) as server, pytest.raises(ValueError, match=r"\w"):
        get(connected(server), path)
    assert server.connections == 0


@pytest.mark.parametrize(
    "answer", [HEAD + b"Content-Length: 5000\r\n\r\n" + b"x" * 5000, CHUNKED + b"1\r\nx\r\n" * 999]
)
def test_an_answer_that_trickles_is_over_with_its_time(answer: bytes) -> None:
    with served(answer, pause=0.05) as server:
        requests = connected(server)
        with pytest.raises((DeadlineError, TimeoutError)):
            get(requests, limit=100_000, seconds=0.5)
        requests.close()


# --- as http.client reads it ----------------------------------------------------------------------------------

CONTENTS = st.binary(max_size=40)
FIELDS = st.lists(
    st.sampled_from([b"Server: x\r\n", b'ETag: "a:b"\r\n', b"X:\r\n", b"Date: now\r\n"]), max_size=3
)


def _by_length(content: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%s" % (len(content), content)


def _by_chunks(content: bytes) -> bytes:
    chunks = [content[start : start + 9] for start in range(0, len(content), 9)]
    return b"Transfer-Encoding: chunked\r\n\r\n%s0\r\n\r\n" % b"".join(
        b"%X\r\n%s\r\n" % (len(c), c) for c in chunks
    )


def _by_end(content: bytes) -> bytes:
    return b"\r\n" + content


class _Fed:
    """A socket from which bytes come in pieces."""

    def __init__(self, data: bytes, pieces: list[int]) -> None:
        self._data, self._pieces = data, pieces

    def settimeout(self, seconds: float) -> None:
        pass

    def recv_into(self, buffer: Any) -> int:
        size = min(self._pieces.pop(0) if self._pieces else len(buffer), len(buffer), len(self._data))
        buffer[:size], self._data = self._data[:size], self._data[size:]
        return size

    def makefile(self, mode: str) -> Any:
        import io

        return io.BytesIO(self._data)


@given(
    st.sampled_from(
        [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 404 \r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 403 No\r\n"]
    ),
    FIELDS,
    CONTENTS,
    st.sampled_from([_by_length, _by_chunks, _by_end]),
    st.lists(st.integers(1, 20), max_size=30),
    st.integers(0, 50),
)
def test_an_answer_is_what_http_client_makes_of_it(
    line: bytes,
    fields: list[bytes],
    content: bytes,
    framed: Callable[[bytes], bytes],
    pieces: list[int],
    limit: int,
) -> None:
    data = line + b"".join(fields) + framed(content)
    other = http.client.HTTPResponse(_Fed(data, []))  # type: ignore[arg-type]
    other.begin()
    answer = Answer(_Fed(data, pieces), bytearray(), Reading(Deadline(30), 30.0))  # type: ignore[arg-type]
    answer.read(limit)
    assert (answer.status, answer.content) == (other.status, other.read(limit))
