"""A web server for a directory. Depending on its mood, it is slow, stops answering, or never finishes handshakes."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bundles.publisher.web_server import SiteHandler, SiteServer

PIECE = 16 * 1024


@dataclass
class MoodyServer:
    """Serves ``root`` at ``url``. Each connection and each request calls ``mood`` again."""

    root: Path
    tls: ssl.SSLContext | None = None
    url: str = ""
    mood: Callable[[], str] = lambda: ""
    """``slow``: in pieces. ``silent``: no more data from this point. Otherwise: as usual."""
    pace: float = 0.002
    """Seconds between two pieces of a slow answer."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """The path of each request, and its requested range."""
    fell_silent: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)


class _Handler(SiteHandler):
    def __init__(self, server: MoodyServer, *arguments: Any) -> None:
        self._moody, self._mood = server, ""
        super().__init__(*arguments, directory=str(server.root))

    def do_GET(self) -> None:  # noqa: N802  the name is the base class's
        self._moody.asked.append((self.path, self.headers.get("Range", "")))
        self._mood = self._moody.mood()
        if self._mood == "silent":
            fall_silent(self._moody, self.connection)
        else:
            super().do_GET()

    def copyfile(self, source: Any, outputfile: Any) -> None:
        while piece := source.read(PIECE):
            outputfile.write(piece)
            if self._mood == "slow" and self._moody.closing.wait(self._moody.pace):
                return
            if self._moody.mood() == "silent":
                fall_silent(self._moody, self.connection)


class _Server(SiteServer):
    def __init__(self, moody: MoodyServer) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, moody))
        self._moody = moody

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Finish the handshake in the connection's own thread, so that it delays no other connection."""
        if self._moody.mood() == "silent":
            fall_silent(self._moody, request)
        tls = self._moody.tls
        with tls.wrap_socket(request, server_side=True) if tls else request as stream:
            super().finish_request(stream, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors, since tests disconnect on purpose."""


def fall_silent(moody: MoodyServer, connection: Any) -> None:
    """Send nothing until the client disconnects, or the server is closed."""
    moody.fell_silent.set()
    connection.settimeout(0.05)
    with suppress(OSError):
        while not moody.closing.is_set():
            with suppress(TimeoutError):
                if not connection.recv(4096):
                    break
    raise ConnectionAbortedError


@contextmanager
def serving(root: Path, tls: ssl.SSLContext | None = None) -> Iterator[MoodyServer]:
    """Run a server on loopback until the test ends."""
    moody = MoodyServer(root, tls)
    with _Server(moody) as server:
        moody.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield moody
        finally:
            moody.closing.set()
            server.shutdown()
            thread.join()
