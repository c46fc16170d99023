"""GET requests over one connection, with HTTP/1.1 as static sites speak it (RFC 9112).

``http.client`` imports all of Python's reading of mail, which takes longer than the rest of what most runs say to the
network; the classes that ``socket`` puts over the system's sockets take a fifth of that, and only TLS needs them.
This reads what any web server answers to a request for a file, in each of the three framings of content. Whatever else
comes is a ``ValueError``: the caller has others to ask who know more.
"""

from __future__ import annotations

import _socket
import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

    from bundles.transport.reading import Reading

_LONGEST_HEAD = 64 * 1024  # bytes
_LONGEST_LINE = 1024  # bytes of a chunk's size and its extensions
_PIECE = 16 * 1024  # bytes
_FIRST_FINAL_STATUS = 200
_WITHOUT_CONTENT = (204, 304)
_PORTS = {"http": 80, "https": 443}
_END = b"\r\n"


class Requests:
    """A connection to one server, made by the first request, and again by one after an answer that has closed it."""

    def __init__(
        self,
        scheme: str,
        netloc: str,
        headers: Mapping[str, str],
        timeout: float,
        context: ssl.SSLContext | None,
    ) -> None:
        """``timeout`` is seconds for the connection, ``context`` for ``https``.

        Raises ``ValueError`` for what cannot be sent.
        """
        address = urlsplit(f"//{netloc}")
        usual = _PORTS[scheme]
        self._host, self._port = address.hostname or "", address.port or usual
        self._timeout, self._context = timeout, context
        shown = f"[{self._host}]" if ":" in self._host else self._host
        host = shown if self._port == usual else f"{shown}:{self._port}"
        fields = {"Host": host, "Accept-Encoding": "identity", **headers}
        self._fields = b"".join(_field(name, value) for name, value in fields.items())
        self._socket: _socket.socket | None = None
        self._received = bytearray()

    def get(self, path: str, limit: int, reading: Reading) -> Answer:
        """The answer to a request for ``path``, whose content is read up to ``limit`` bytes under ``reading``.

        Raises ``OSError`` and ``ValueError``, and what the deadline of ``reading`` raises.
        """
        request = b"GET %s HTTP/1.1\r\n%s\r\n" % (_path(path), self._fields)
        sock = self._connected()
        reading.ask()
        sock.sendall(request)
        answer = Answer(sock, self._received, reading)
        answer.read(limit)
        if not answer.is_whole or not answer.stays_open:
            self.close()
        return answer

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._received.clear()

    def _connected(self) -> _socket.socket:
        if self._socket is None:
            self._socket = connected = _connect(self._host, self._port, self._timeout)
            if self._context is not None:
                import socket

                self._socket = wanted = socket.socket(fileno=connected.detach())
                wanted.settimeout(self._timeout)
                self._socket = self._context.wrap_socket(wanted, server_hostname=self._host)
        return self._socket


class Answer:
    """An answer: its status, and its content as far as it was read."""

    def __init__(self, sock: _socket.socket, received: bytearray, reading: Reading) -> None:
        """``received`` is what came before; what belongs to the answer is taken out of it."""
        self._socket, self._received, self._reading = sock, received, reading
        self.status = 0
        self.content = b""
        self.is_whole = False
        """Whether all of its content was read."""
        self.stays_open = False
        """Whether the connection can have another request."""

    def read(self, limit: int) -> None:
        """Read head and content; raises as ``Requests.get``."""
        while self.status < _FIRST_FINAL_STATUS:  # 100 Continue and 103 Early Hints come before an answer
            head = self._until(_END + _END, _LONGEST_HEAD).decode("latin-1").split("\r\n")
            version, self.status = _status(head[0])
        fields = _fields(head[1:])
        codings, length = fields.get("transfer-encoding"), fields.get("content-length")
        if codings is not None and (codings.lower() != "chunked" or length is not None):
            raise ValueError("content in other codings, or framed twice")
        self.stays_open = version == "1.1" and fields.get("connection", "keep-alive").lower() == "keep-alive"
        if self.status in _WITHOUT_CONTENT:
            self.is_whole = True
        elif codings is not None:
            self._read_chunks(limit)
        elif length is not None:
            self._take(_number(length, 10), limit)
            self.is_whole = len(self.content) == int(length)
        else:
            self.stays_open = False
            self._read_to_end(limit)

    def _read_chunks(self, limit: int) -> None:
        while size := _number(self._until(_END, _LONGEST_LINE).split(b";")[0].strip().decode("latin-1"), 16):
            before = len(self.content)
            self._take(size, limit - before)
            if len(self.content) - before < size:
                return
            if self._until(_END, len(_END)):
                raise ValueError("a chunk is longer than its size")
        if self._until(_END, _LONGEST_HEAD):
            raise ValueError("something follows the last chunk")
        self.is_whole = True

    def _read_to_end(self, limit: int) -> None:
        while len(self._received) < limit and not self.is_whole:
            self.is_whole = not self._more()
        self._take(min(len(self._received), limit), limit)

    def _take(self, size: int, limit: int) -> None:
        """Add so many bytes to the content, or as many as its limit allows."""
        wanted = min(size, limit)
        while len(self._received) < wanted:
            if not self._more():
                raise ValueError("the connection was closed in the middle of an answer")
        self.content += self._received[:wanted]
        del self._received[:wanted]

    def _until(self, end: bytes, limit: int) -> bytes:
        """What comes before ``end``, up to ``limit`` bytes with it."""
        while (found := self._received.find(end)) < 0:
            if len(self._received) > limit or not self._more():
                raise ValueError("the head of an answer has no end")
        if found + len(end) > limit:
            raise ValueError("the head of an answer is too long")
        data = bytes(self._received[:found])
        del self._received[: found + len(end)]
        return data

    def _more(self) -> bool:
        """Receive something; false at the end of the connection."""
        piece = bytearray(_PIECE)
        count = self._reading.read(self._socket, self._socket.recv_into, piece)
        self._received += piece[: count or 0]
        return bool(count)


def _connect(host: str, port: int, timeout: float) -> _socket.socket:
    """A connection to the first of the addresses of ``host`` that takes one; raises the ``OSError`` of the last."""
    failure = OSError(errno.EADDRNOTAVAIL, f"{host} has no address")
    # A name that is text would have Python import the codec of international names.
    found = _socket.getaddrinfo(host.encode("ascii"), port, 0, _socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found:
        try:
            sock = _socket.socket(family, kind, protocol)
        except OSError as error:  # this kind of address is not known here
            failure = error
            continue
        try:
            sock.settimeout(timeout)
            sock.connect(address)
            sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


def _field(name: str, value: str) -> bytes:
    if not name or not name.isascii() or any(character <= " " or character in ":\x7f" for character in name):
        raise ValueError(f"{name!r} is no name of a header")
    if any(character in "\r\n\0" for character in value):
        raise ValueError(f"the header {name} has a line break")
    return f"{name}: {value}\r\n".encode("latin-1")


def _path(path: str) -> bytes:
    if any(character <= " " or character == "\x7f" for character in path):
        raise ValueError("a path with blanks or control characters")
    return (path if path.startswith("/") else f"/{path}").encode("ascii")


def _status(line: str) -> tuple[str, int]:
    """The version and the status of a status line."""
    protocol, _, rest = line.partition(" ")
    name, _, version = protocol.partition("/")
    status = rest.partition(" ")[0]
    if (
        name != "HTTP"
        or version not in ("1.0", "1.1")
        or not (len(status) == 3 and status.isascii() and status.isdecimal())
    ):
        raise ValueError("no status line of HTTP")
    if status == "101" or status < "100":
        raise ValueError("another protocol, or no status")
    return version, int(status)


def _fields(lines: list[str]) -> dict[str, str]:
    """The fields of a head by their names in small letters."""
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or line[0] in " \t":
            raise ValueError("a line of the head is no field")
        key, value = name.lower(), value.strip(" \t")
        # What frames the content is said once, or it is not known to whom it is said.
        if key in ("content-length", "transfer-encoding", "connection") and found.get(key, value) != value:
            raise ValueError(f"{key} is given twice")
        found[key] = value
    return found


def _number(text: str, base: int) -> int:
    """A length in plain digits: ``int`` would take signs, blanks and underscores, too."""
    if not 0 < len(text) <= 16 or not text.isascii() or not text.isalnum():
        raise ValueError("a length that is no number")
    return int(text, base)
