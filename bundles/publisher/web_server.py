"""A small web server for a site's ``public/``, to try Puller out and for tests; hosts deserve a real one.

* It reads below one directory, lists none, and answers GET and HEAD only.
* Its cache headers are those that a real server should send: what has a version or a hash in its name
  never changes, what has not is asked for again each time.
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

from bundles.format.identity import SHA256

log = logging.getLogger(__name__)

_UNCHANGING = re.compile(rf"/(?:[0-9]+\.[A-Za-z0-9_-]+\.json|{SHA256}\.[^/]+)$")


class SiteHandler(SimpleHTTPRequestHandler):
    """Serves files below the directory it was made with, and logs each request at level INFO."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """A head and a short file are two packets; else the second waits 40 ms for the delayed receipt of the first."""

    def send_head(self) -> Any:
        if self.path.endswith("/"):  # a listing of a directory, which is more than a site publishes
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
    """Clients that go away in the middle are everyday, and no reason for a traceback."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if isinstance(error := sys.exc_info()[1], ConnectionError):
            log.info("%s went away: %s", client_address[0], error)
        else:
            super().handle_error(request, client_address)


def open_server(public: Path, address: str = "127.0.0.1", port: int = 0) -> SiteServer:
    """A server that listens and does not serve yet; port 0 takes a free one. Raises ``OSError``."""
    return SiteServer((address, port), partial(SiteHandler, directory=str(public)))


@contextmanager
def serving(public: Path) -> Iterator[str]:
    """The URL of a server on loopback, which runs in a thread until the block ends."""
    with open_server(public) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
