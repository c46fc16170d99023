"""A file server that breaks off, forgets, requires passwords and sends wrong data on request."""

import base64
import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """Serves ``files`` by path. ``requests`` records the requests, with headers in lower case."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    credentials: str = ""
    """``user:password``. Requests with other credentials are rejected."""
    break_off: list[int] = field(default_factory=list)
    """Numbers of bytes after which the connection is lost, each used once."""
    later: dict[str, bytes] = field(default_factory=dict)
    """Merged into ``files`` after the first answer."""
    drip: float = 0.0
    """Seconds between two bytes, if not 0."""
    ranges: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    """Headers added to each answer. They override existing ones."""
    redirects: dict[str, str] = field(default_factory=dict)

    @property
    def asked(self) -> list[str]:
        return [path for path, _ in self.requests]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        provided = {name.lower(): value for name, value in handler.headers.items()}
        self.requests.append((handler.path, provided))
        path = handler.path.partition("?")[0]
        basic = base64.b64encode(self.credentials.encode()).decode()
        if self.credentials and provided.get("authorization") != f"Basic {basic}":
            handler.send_error(401)
        elif path in self.redirects:
            handler.send_response(302)
            handler.send_header("Location", self.redirects[path])
            handler.send_header("Content-Length", "0")
            handler.end_headers()
        elif path not in self.files:
            handler.send_error(404)
        else:
            self._send(handler, self.files[path], provided)

    def _send(self, handler: BaseHTTPRequestHandler, data: bytes, given: dict[str, str]) -> None:
        etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        start = 0
        if self.ranges and "range" in given and given.get("if-range", etag) == etag:
            start = int(given["range"].removeprefix("bytes=").removesuffix("-"))
        if start and start >= len(data):
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        answer = {"Content-Length": str(len(data) - start), **({"ETag": etag} if self.ranges else {})}
        if start:
            answer["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        for name, value in {**answer, **self.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        end = start + self.break_off.pop(0) if self.break_off else len(data)
        size = 1 if self.drip else len(data)
        for at in range(start, end, size):
            handler.wfile.write(data[at : min(at + size, end)])
            time.sleep(self.drip)
        if end < len(data):
            handler.close_connection = True
        self.files |= self.later


@contextmanager
def serving(address: str = "127.0.0.1") -> Iterator[FileServer]:
    """Run a server on loopback until the test ends."""
    server = FileServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  the name of the method's parameter
            """Print nothing, since tests read ``requests``."""

    with ThreadingHTTPServer((address, 0), Handler) as http:
        server.url = f"http://{address}:{http.server_port}"
        http.handle_error = lambda *_: None  # type: ignore[method-assign]  # tests disconnect on purpose
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
