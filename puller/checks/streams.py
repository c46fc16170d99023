"""Connections to servers that may be slow, lie, or never come to an end: each step is bounded by one deadline."""

import contextlib
import socket
from collections.abc import Iterator

from bundles.deadline import Deadline
from puller.checks.check_outcome import NotCarriedOut
from puller.errors import reason

_MOST_GREETED = 65536  # bytes
_ENDLESS = 3600.0  # seconds; what is left of the deadline is always less


class NoConnectionError(Exception):
    """Nobody takes a connection: the reason as a sentence."""


def connect(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A connection to the first address of a host that takes one.

    Raises ``NoConnectionError``, and ``NotCarriedOut`` when no address of it can be found out.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NotCarriedOut(f"{host}: its address cannot be found: {reason(error)}") from error
    except UnicodeError as error:
        raise NotCarriedOut(f"{host}: is no host name: {error}") from error
    last = "no address"
    for number, (family, kind, protocol, _, address) in enumerate(found):
        stream = None
        try:
            stream = socket.socket(family, kind, protocol)
            # One address that does not answer leaves time for the others.
            stream.settimeout(deadline.at_most(max(deadline.left / (len(found) - number), 0.01)))
            stream.connect(address)
        except OSError as error:
            deadline.verify()
            if stream is not None:
                stream.close()
            last = reason(error)
        else:
            return stream
    raise NoConnectionError(f"{host}:{port} takes no connection: {last}")


def greeting(stream: socket.socket, wanted: str, deadline: Deadline) -> str:
    """The fault of what a server says first; empty when ``wanted`` is in it. Raises ``DeadlineError``."""
    said = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while wanted.encode() not in said and len(said) < _MOST_GREETED:
            stream.settimeout(deadline.at_most(_ENDLESS))
            try:
                piece = stream.recv(4096)
            except TimeoutError:
                break
            if not piece:
                break
            said += piece
    if wanted.encode() in said:
        return ""
    beginning = bytes(said[:80]).decode(errors="replace").strip()
    return f"greets with {beginning!r}, wanted {wanted!r} in it"


@contextlib.contextmanager
def closing(stream: socket.socket) -> Iterator[None]:
    """Close it afterwards, whatever the server makes of that."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            stream.close()
