"""An HTTP server on loopback that sends prepared answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Request:
    """A request as the client sent it. Header names are in lower case."""

    target: str
    headers: dict[str, str]


Answer = Callable[[socket.socket], None]


@dataclass
class Server:
    """Sends the answers of each path in order. Other paths get status 404."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    root: Path | None = None
    """Serve the files below this directory at paths without an answer."""
    ranges: bool = False
    """Also serve parts of these files, as web servers do."""
    stopping: threading.Event = field(default_factory=threading.Event)
    tls: Any = None
    address: str = "127.0.0.1"
    port: int = 0

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}:{self.port}"

    def on(self, path: str, *answers: Answer) -> None:
        self.answers[path] = list(answers)

    @property
    def paths(self) -> list[str]:
        return [request.target for request in self.requests]

    def serve(self, listener: socket.socket) -> None:
        while not self.stopping.is_set():
            with suppress(OSError):
                connection, _ = listener.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        # In many tests the client disconnects early.
        with suppress(OSError), connection, self._wrapped(connection) as stream:
            while request := _read_request(stream):
                self.requests.append(request)
                self._answer(request)(stream)

    def _wrapped(self, connection: socket.socket) -> socket.socket:
        wrapped: socket.socket = (
            self.tls.wrap_socket(connection, server_side=True) if self.tls else connection
        )
        return wrapped

    def _answer(self, request: Request) -> Answer:
        answers = self.answers.get(request.target)
        if answers:
            return answers.pop(0) if len(answers) > 1 else answers[0]
        path = self.root / request.target.lstrip("/") if self.root else None
        if path is None or not path.is_file():
            return answer(b"no such file\n", 404)
        return _rest_of(path.read_bytes(), request) if self.ranges else answer(path.read_bytes())


def _rest_of(data: bytes, request: Request) -> Answer:
    """Return the answer of a server with range support. Clients request only ranges without an end."""
    requested = request.headers.get("range", "")
    start = int(requested.removeprefix("bytes=").removesuffix("-")) if requested else 0
    if not requested:
        return answer(data)
    if start >= len(data):
        return answer(b"", 416, Content_Range=f"bytes */{len(data)}")
    return answer(data[start:], 206, Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}")


def _read_request(stream: socket.socket) -> Request | None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        if not (received := stream.recv(1)):
            return None
        head += received
    line, *fields = head.decode("latin-1").rstrip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in fields)}
    return Request(line.split(" ")[1], headers)


def answer(body: bytes = b"", status: int = 200, **headers: str) -> Answer:
    """Return a complete answer. ``Content_Length="3"`` sets or corrects a header."""
    fields = {
        "Content-Length": str(len(body)),
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    head = f"HTTP/1.1 {status} Whatever\r\n" + "".join(f"{key}: {value}\r\n" for key, value in fields.items())
    return lambda stream: stream.sendall(head.encode() + b"\r\n" + body)
