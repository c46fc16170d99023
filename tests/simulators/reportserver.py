"""A web server that keeps documents in memory, and misbehaves on request."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any


@dataclass
class ReportServer:
    """Listens at ``url``. ``answer`` returns the status of each request."""

    url: str = ""
    answer: Callable[[str], int] = lambda path: 201
    mood: str = ""
    """``silent``: no answer. ``dripping``: an answer that never ends. ``chatty``: an endless body."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers of each answer, such as ``Location``."""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path and headers of each request."""
    documents: dict[str, bytes] = field(default_factory=dict)
    """Accepted documents by path, in the order of arrival."""
    closing: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, server: ReportServer, *arguments: Any) -> None:
        self._reports = server
        super().__init__(*arguments)

    def do_PUT(self) -> None:
        reports = self._reports
        reports.requests.append((self.command, self.path, dict(self.headers.items())))
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if reports.mood == "silent":
            reports.closing.wait(60)
            self.close_connection = True
        elif reports.mood == "dripping":
            self._drip()
        elif reports.mood == "chatty":
            self._chat()
        else:
            status = reports.answer(self.path)
            if status < 300:
                reports.documents[self.path] = data
            self.send_response(status)
            for name, value in {"Content-Length": "0", **reports.headers}.items():
                self.send_header(name, value)
            self.end_headers()

    def do_POST(self) -> None:
        self.do_PUT()

    def _drip(self) -> None:
        self.close_connection = True
        for byte in b"HTTP/1.1 201 Created\r\nX-Endless: " + b"x" * 10_000:
            self.wfile.write(bytes([byte]))
            if self._reports.closing.wait(0.05):
                return

    def _chat(self) -> None:
        self.close_connection = True
        self.send_response(500)
        self.end_headers()
        while not self._reports.closing.is_set():
            self.wfile.write(bytes(64 * 1024))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is the base class's
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    def __init__(self, reports: ReportServer, tls: SSLContext | None, port: int) -> None:
        super().__init__(("127.0.0.1", port), partial(_Handler, reports))
        self._tls = tls

    def finish_request(self, request: Any, client_address: Any) -> None:
        with self._tls.wrap_socket(request, server_side=True) if self._tls else request as stream:
            super().finish_request(stream, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors, since tests disconnect on purpose."""


@contextmanager
def receiving(tls: SSLContext | None = None, port: int = 0) -> Iterator[ReportServer]:
    """Run a server on loopback until the test ends."""
    reports = ReportServer()
    with _Server(reports, tls, port) as server:
        reports.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield reports
        finally:
            reports.closing.set()
            server.shutdown()
            thread.join()
