"""Connections to slow, faulty or endless servers. One deadline limits every step."""

import contextlib
import socket
from collections.abc import Iterator

from bundles.deadline import Deadline
from puller.checks.check_outcome import NotCarriedOut
from puller.errors import reason

_MOST_GREETED = 65536  # bytes
_ENDLESS = 3600.0  # seconds; more than any deadline


class NoConnectionError(Exception):
    """A failed connection. The message is the reason."""


def connect(host: str, port: int, deadline: Deadline) -> socket.socket:
    """Return a connection to the first address of a host that accepts one.

    Raises ``NoConnectionError``, and ``NotCarriedOut`` if the host has no known address.
    """
    try:
        result = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NotCarriedOut(f"{host}: cannot resolve the name: {reason(error)}") from error
    except UnicodeError as error:
        raise NotCarriedOut(f"{host}: is not a valid host name: {error}") from error
    last = "no address"
    for number, (family, kind, protocol, _, address) in enumerate(result):
        stream = None
        try:
            stream = socket.socket(family, kind, protocol)
            # Leave time for the other addresses.
            stream.settimeout(deadline.at_most(max(deadline.left / (len(result) - number), 0.01)))
            stream.connect(address)
        except OSError as error:
            deadline.verify()
            if stream is not None:
                stream.close()
            last = reason(error)
        else:
            return stream
    raise NoConnectionError(f"{host}:{port} accepts no connection: {last}")


def greeting(stream: socket.socket, wanted: str, deadline: Deadline) -> str:
    """Return the fault of a server's greeting, empty if it contains ``wanted``. Raises ``DeadlineError``."""
    text = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while wanted.encode() not in text and len(text) < _MOST_GREETED:
            stream.settimeout(deadline.at_most(_ENDLESS))
            try:
                piece = stream.recv(4096)
            except TimeoutError:
                break
            if not piece:
                break
            text += piece
    if wanted.encode() in text:
        return ""
    beginning = bytes(text[:80]).decode(errors="replace").strip()
    return f"greets with {beginning!r}, expected {wanted!r} in it"


@contextlib.contextmanager
def closing(stream: socket.socket) -> Iterator[None]:
    """Close the stream afterwards and ignore errors of the server."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            stream.close()
