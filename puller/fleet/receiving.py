"""A small web server that receives the reports of hosts, for first steps and tests.

Use a full web server in production.

* It accepts PUT and POST of one document, with one request per connection. It serves no content.
* The number and duration of connections and the size of a request, headers included, are limited.
* Every client can write the reports of any host, so the server listens on loopback by default.
* Only valid documents are stored, as ``DIRECTORY/<host>/<run>.json.gz``. A document must be within the size limits
  and match the host and the run of its URL.
* Files are written atomically. Receiving the same document again changes nothing.
* If a host exceeds its limits, its oldest documents are removed.
"""

import contextlib
import logging
import os
import re
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from bundles.filesystem.atomic import remove_leftovers, replace_file
from bundles.filesystem.safe_paths import open_output_directory
from bundles.filesystem.trees import open_regular
from puller.delivery.report_document import LARGEST, unpack
from puller.errors import file_problem
from puller.reporting.report import SentReport
from puller.state import decode
from puller.values.foreign_text import EXPECTED_NAME, is_host_name, visible_line

# The directory of received documents.

_RUN = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{6}Z")
_SUFFIX = ".json.gz"
MOST_DOCUMENTS, MOST_BYTES = 1000, 100_000_000
"""Limits for one host. Older documents are removed. With two runs per hour, 1000 documents cover three weeks."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RefusedDocument(Exception):
    """The content is not a valid document for this directory. Sending it again will not help."""


class Name(msgspec.Struct, frozen=True):
    """The host and the run of a document."""

    host: str
    run: str

    @classmethod
    def parse(cls, path: str) -> "Name":
        """Return the name in ``/<host>/<run>.json.gz``. Raises ``RefusedDocument``."""
        host, _, file = path.removeprefix("/").partition("/")
        name = cls(host, file.removesuffix(_SUFFIX))
        if not path.startswith("/") or not file.endswith(_SUFFIX):
            raise RefusedDocument("expected /HOST/RUN.json.gz")
        name.verify()
        return name

    def verify(self) -> None:
        """Raise ``RefusedDocument`` for an invalid name of a host, or an invalid run."""
        if not is_host_name(self.host):
            raise RefusedDocument(f"the name of the host is {self.host[:100]!r}, {EXPECTED_NAME}")
        if not _RUN.fullmatch(self.run):
            raise RefusedDocument(
                f"the run is {self.run[:100]!r}, expected a run such as 20261123T081500.000000Z"
            )


class Intake(msgspec.Struct, frozen=True):
    """The directory of received documents."""

    directory: Path

    def take(self, data: bytes, name: Name | None) -> bool:
        """Store a document. Return whether it is new.

        ``name`` is the name in the URL. ``None`` uses the name in the document. Raises ``RefusedDocument`` and
        ``OSError``.
        """
        inside = _name_in(data)
        if name is not None and name != inside:
            detail = f"of host {inside.host[:100]!r} and run {inside.run[:100]!r}"
            raise RefusedDocument(
                f"the document is {detail}, but was sent for {name.host!r} and {name.run!r}"
            )
        inside.verify()
        return self._write(inside, data)

    def _write(self, name: Name, data: bytes) -> bool:
        with open_output_directory(self.directory) as directory:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name.host, 0o755, dir_fd=directory)
            own = os.open(name.host, _DIRECTORY, dir_fd=directory)
            try:
                file = f"{name.run}{_SUFFIX}"
                if _content(own, file) == data:
                    return False
                remove_leftovers(own)
                replace_file(own, file, [data], mode=0o644)
                _drop_oldest(own, file)
                return True
            finally:
                os.close(own)


def _drop_oldest(directory: int, newest: str) -> None:
    """Remove the oldest documents of a host beyond the limits, but never the newest arrival."""
    documents = [name for name in os.listdir(directory) if name.endswith(_SUFFIX) and name[0] != "."]
    documents.sort(key=lambda name: (name == newest, name), reverse=True)
    total = 0
    for count, name in enumerate(documents, 1):
        with contextlib.suppress(FileNotFoundError):  # imported, or removed by another connection
            total += os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
            if count > 1 and (count > MOST_DOCUMENTS or total > MOST_BYTES):
                os.unlink(name, dir_fd=directory)


def _name_in(data: bytes) -> Name:
    try:
        sent = decode(unpack(data), SentReport)
    except ValueError as error:
        raise RefusedDocument(f"is not a report: {error}") from None
    if sent.report.host != sent.host:
        raise RefusedDocument(
            f"belongs to host {sent.host[:100]!r}, and its report to {sent.report.host[:100]!r}"
        )
    return Name(sent.host, sent.report.run)


def _content(directory: int, file: str) -> bytes | None:
    with contextlib.suppress(FileNotFoundError), open_regular(Path(file), directory=directory) as stream:
        return stream.read(LARGEST + 1)
    return None


log = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
LONGEST = 30.0
"""Maximum seconds of one connection."""
LARGEST_BODY = 1024 * 1024
"""Maximum bytes of a body."""
_LARGEST_HEAD = 32 * 1024
_LINGERING = 2.0
"""Seconds of silence."""
_PIECE = 64 * 1024
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class ReportServer(ThreadingHTTPServer):
    """A server that listens from its creation on, and serves in ``serve_forever``."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, directory: Path, address: str, port: int, *, longest: float = LONGEST) -> None:
        """``port`` 0 takes a free one. ``longest`` is in seconds. Raises ``OSError``."""
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._longest = longest
        super().__init__((address, port), partial(_Handler, Intake(directory)))

    def server_bind(self) -> None:
        """Bind like ``socketserver``, because ``http.server`` resolves the name of the address."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def server_activate(self) -> None:
        """Listen. ``accept`` must not block: a client can disconnect between the poll and ``accept``."""
        super().server_activate()
        self.socket.setblocking(False)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            with suppress(OSError):
                request.setblocking(False)
                request.send(_BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its thread, for at most ``longest`` seconds."""
        end = threading.Timer(self._longest, _cut, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log clients that disconnect early without a traceback, because they are common."""
        if isinstance(error := sys.exc_info()[1], OSError):
            log.info("%s closed the connection: %s", client_address[0], error)
        else:
            super().handle_error(request, client_address)


def _cut(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Bounded:
    """The bytes of a request, up to a limit."""

    def __init__(self, raw: BinaryIO, most: int) -> None:
        self._raw = raw
        self._left = most

    def readline(self, size: int = -1) -> bytes:
        """Return a line, or its part within the limit."""
        return self._counted(self._raw.readline(min(size, self._left) if size >= 0 else self._left))

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, or fewer at the limit."""
        return self._counted(self._raw.read(min(size, self._left)))

    def close(self) -> None:
        """Close the underlying stream."""
        self._raw.close()

    def _counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        return data


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "puller", ""
    disable_nagle_algorithm = True

    def __init__(self, intake: Intake, *arguments: Any) -> None:
        self._intake = intake
        super().__init__(*arguments)

    def setup(self) -> None:
        super().setup()
        self.rfile: Any = _Bounded(self.rfile, _LARGEST_HEAD + LARGEST_BODY)

    def finish(self) -> None:
        """Finish, but first read the client's remaining data. Closing earlier would discard the response."""
        with suppress(OSError, ValueError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(_LINGERING)
            while self.rfile.read(_PIECE):
                pass
        super().finish()

    def do_PUT(self) -> None:
        self._receive()

    def do_POST(self) -> None:
        self._receive()

    def do_GET(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "this server only receives reports")

    do_HEAD = do_DELETE = do_GET  # noqa: N815  the names are the base class's

    def _receive(self) -> None:
        try:
            name = None if self.command == "POST" and self.path == "/" else Name.parse(self.path)
        except RefusedDocument as error:
            self._answer(HTTPStatus.FORBIDDEN, str(error))
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or "Transfer-Encoding" in self.headers:
            self._answer(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
            return
        if len(length) > 18 or int(length) > LARGEST_BODY:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {LARGEST_BODY} bytes are accepted")
            return
        data = self.rfile.read(int(length))
        if len(data) < int(length):
            self.close_connection = True  # the client disconnected, or the time is over
            return
        self._keep(data, name)

    def _keep(self, data: bytes, name: Name | None) -> None:
        try:
            is_new = self._intake.take(data, name)
        except RefusedDocument as error:
            self._answer(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        except OSError as error:
            log.error("%s", file_problem(error))
            self._answer(HTTPStatus.INSUFFICIENT_STORAGE, "the server cannot store the report")
        else:
            self._answer(HTTPStatus.CREATED if is_new else HTTPStatus.NO_CONTENT)

    def _answer(self, status: HTTPStatus, sentence: str = "") -> None:
        self.close_connection = True
        body = f"{sentence}\n".encode() if sentence else b""
        self.send_response(status)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "PUT, POST")
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        if sentence:
            log.info("%s: %s", self.address_string(), sentence)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is the base class's
        log.info("%s %s", self.address_string(), visible_line(format % args))


@contextmanager
def receiving(directory: Path, **options: Any) -> Iterator[str]:
    """Run a server on loopback while the block runs, and yield its URL. ``options`` are those of ``ReportServer``."""
    with ReportServer(directory, "127.0.0.1", 0, **options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
