"""Small web server for a site's ``public/``, for trials and tests. Use a real web server for hosts.

* It reads below one directory, without listings, and supports only GET and HEAD.
* Its cache headers are those that a real server should send: a file with a version or a hash in its name never changes,
  and other files are revalidated each time.
"""

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from bundles.format.fields import SHA256

log = logging.getLogger(__name__)

_UNCHANGING = re.compile(rf"/(?:[0-9]+\.[A-Za-z0-9_-]+\.json|{SHA256}\.[^/]+)$")


class SiteHandler(SimpleHTTPRequestHandler):
    """Serves files below its directory, and logs each request at level INFO."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """Head and body of a short file are two packets. With Nagle's algorithm, the second packet waits 40 ms."""

    def send_head(self) -> Any:
        if self.path.endswith("/"):  # listings are not part of a site
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(code, message)
        unchanging = code == HTTPStatus.OK and _UNCHANGING.search(self.path)
        self.send_header("Cache-Control", "max-age=31536000, immutable" if unchanging else "no-cache")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        log.info("%s %s", self.address_string(), format % args)


class SiteServer(ThreadingHTTPServer):
    """A server without tracebacks for clients that disconnect early, which is normal."""

    def server_activate(self) -> None:
        """Listen. ``accept`` must not block: a client can disconnect between the poll and ``accept``."""
        super().server_activate()
        self.socket.setblocking(False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if isinstance(error := sys.exc_info()[1], ConnectionError):
            log.info("%s closed the connection: %s", client_address[0], error)
        else:
            super().handle_error(request, client_address)


def open_server(public: Path, address: str = "127.0.0.1", port: int = 0) -> SiteServer:
    """Return a server that listens without serving yet. Port 0 selects a free port. Raises ``OSError``."""
    return SiteServer((address, port), partial(SiteHandler, directory=str(public)))


@contextmanager
def serving(public: Path) -> Iterator[str]:
    """Yield the URL of a server on loopback, which runs in a thread until the block ends."""
    with open_server(public) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
