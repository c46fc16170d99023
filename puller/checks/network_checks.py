"""Checks of TCP ports, Unix sockets and names in the system's resolver.

One deadline limits every step of a connection to a slow, faulty or endless server.
"""

import contextlib
import ipaddress
import socket
from collections.abc import Iterator

from bundles.deadline import Deadline
from puller.checks.kinds import Answer, Dns, NotCarriedOut, Tcp, Unix, parse_address
from puller.errors import reason

_MOST_GREETED = 65536  # bytes
_ENDLESS = 3600.0  # seconds; more than any deadline


class NoConnectionError(Exception):
    """A failed connection. The message is the reason."""


def ask(check: Tcp | Unix | Dns, deadline: Deadline) -> Answer:
    """Connect, and read the greeting if the check needs it, or resolve the name.

    Raises ``NotCarriedOut`` and ``DeadlineError``.
    """
    if isinstance(check, Dns):
        return _ask_dns(check)
    return _ask_tcp(check, deadline) if isinstance(check, Tcp) else _ask_unix(check, deadline)


def _ask_tcp(check: Tcp, deadline: Deadline) -> Answer:
    try:
        stream = connect(*parse_address(check.address), deadline)
    except NoConnectionError as error:
        return Answer([str(error)])
    with closing(stream):
        if check.greets is not None and (wrong := greeting(stream, check.greets, deadline)):
            return Answer([f"{check.address} {wrong}"])
    return Answer([], f"{check.address} accepts connections")


def _ask_unix(check: Unix, deadline: Deadline) -> Answer:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with closing(stream):
        stream.settimeout(deadline.at_most(deadline.seconds))
        try:
            stream.connect(check.path)
        except PermissionError as error:
            raise NotCarriedOut(f"{check.path}: {reason(error)}") from error
        except OSError as error:
            deadline.verify()
            return Answer([f"{check.path} accepts no connection: {reason(error)}"])
        if check.greets is not None and (wrong := greeting(stream, check.greets, deadline)):
            return Answer([f"{check.path} {wrong}"])
    return Answer([], f"{check.path} accepts connections")


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


def greeting(stream: socket.socket, expected: str, deadline: Deadline) -> str:
    """Return the fault of a server's greeting, empty if it contains ``expected``. Raises ``DeadlineError``."""
    text = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while expected.encode() not in text and len(text) < _MOST_GREETED:
            stream.settimeout(deadline.at_most(_ENDLESS))
            try:
                piece = stream.recv(4096)
            except TimeoutError:
                break
            if not piece:
                break
            text += piece
    if expected.encode() in text:
        return ""
    beginning = bytes(text[:80]).decode(errors="replace").strip()
    return f"greets with {beginning!r}, expected {expected!r} in it"


@contextlib.contextmanager
def closing(stream: socket.socket) -> Iterator[None]:
    """Close the stream afterwards and ignore errors of the server."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            stream.close()


_FAMILIES = {None: socket.AF_UNSPEC, "A": socket.AF_INET, "AAAA": socket.AF_INET6}
_NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)


def _ask_dns(check: Dns) -> Answer:
    """Raise ``NotCarriedOut`` if the resolver does not answer, which differs from an unknown name."""
    record = check.type or "address"
    try:
        entries = socket.getaddrinfo(check.name, None, _FAMILIES[check.type], socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _NO_SUCH_NAME:
            return Answer([f"{check.name} has no {record}: {error.strerror}"])
        raise NotCarriedOut(f"{check.name}: {error.strerror}") from error
    except UnicodeError as error:
        raise NotCarriedOut(f"{check.name}: is not a valid host name: {error}") from error
    addresses = sorted({_plain(str(entry[4][0])) for entry in entries})
    answer = f"{check.name} has {', '.join(addresses)}"
    if check.addresses and {*addresses} != (expected := {_plain(address) for address in check.addresses}):
        return Answer([f"{answer}, expected {', '.join(sorted(expected))}"])
    return Answer([], answer)


def _plain(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        raise NotCarriedOut(f"{address!r} is not an IP address") from None
