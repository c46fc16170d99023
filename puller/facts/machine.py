"""The machine that facts are read from.

* Files are read below ``root``, so that a directory can replace ``/``. Information from the kernel or libc comes from
  methods, so that tests can replace them by recorded values.
* Only a missing file reads as ``None``. Any other failure is recorded in ``problems``, and never stops the gathering.

Links and addresses from the kernel, with one request each over a rtnetlink(7) socket.

* The results match ``ip link`` and ``ip address``, without starting them: all addresses of an interface, with prefix
  lengths and flags, which no file in ``/proc`` contains for IPv4.
* ``parse_links`` and ``parse_addresses`` only parse bytes. ``links`` and ``addresses`` query the kernel.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing

import msgspec

from puller.facts.fact_values import LIMIT, FactError, within

# linux/netlink.h and linux/rtnetlink.h
_REQUEST_DUMP = 0x1 | 0x300
_ERROR, _DONE = 2, 3
_DUMP_INTERRUPTED = 0x10
_GET_LINK, _GET_ADDRESS = 18, 22
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_TYPE_MASK = 0x3FFF

_LINK = struct.Struct("=BxHiII")
_LINK_ADDRESS, _LINK_NAME, _LINK_MTU, _LINK_MASTER = 1, 3, 4, 10

_ADDRESS = struct.Struct("=BBBBI")
_PEER, _LOCAL, _LABEL = 1, 2, 3

_BUFFER = 1 << 16  # the kernel sends at most 32 KiB at once
_TRIES = 3


class Link(msgspec.Struct, frozen=True):
    """A network interface. ``mac`` is empty for kinds of links without an address. ``master`` is a number or 0."""

    number: int
    name: str
    mac: str
    mtu: int
    master: int


class Address(msgspec.Struct, frozen=True):
    """An address. ``name`` is the interface or the label of an alias (``eth0:1``), ``prefix`` is in bits."""

    number: int
    name: str
    address: str
    prefix: int
    flags: int


def links() -> list[Link]:
    """Return all interfaces, in the kernel's order. Raises ``OSError``."""
    return list(parse_links(_ask(_GET_LINK)))


def addresses() -> list[Address]:
    """Return all addresses, IPv4 before IPv6, each in the kernel's order. Raises ``OSError``."""
    names = {link.number: link.name for link in links()}
    return list(parse_addresses(_ask(_GET_ADDRESS), names))


def parse_links(messages: list[bytes]) -> Iterator[Link]:
    """Yield the links in the bodies of RTM_NEWLINK messages."""
    for body in messages:
        index = _LINK.unpack_from(body)[2]
        result = _attributes(body[_LINK.size :])
        yield Link(
            index,
            _text(result.get(_LINK_NAME, b"")),
            result.get(_LINK_ADDRESS, b"").hex(":"),
            int.from_bytes(result.get(_LINK_MTU, b""), sys.byteorder),
            int.from_bytes(result.get(_LINK_MASTER, b""), sys.byteorder),
        )


def parse_addresses(messages: list[bytes], names: dict[int, str]) -> Iterator[Address]:
    """Yield the addresses in the bodies of RTM_NEWADDR messages. ``names`` maps indexes to interface names."""
    for body in messages:
        family, prefix, flags, _, index = _ADDRESS.unpack_from(body)
        result = _attributes(body[_ADDRESS.size :])
        # On a point-to-point link IFA_ADDRESS is the remote end, and IFA_LOCAL is the local address.
        packed = result.get(_LOCAL) or result.get(_PEER)
        if packed and family in (socket.AF_INET, socket.AF_INET6):
            name = _text(result.get(_LABEL, b"")) or names.get(index, "")
            yield Address(index, name, socket.inet_ntop(family, packed), prefix, flags)


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode("utf-8", errors="replace")


def _attributes(data: bytes) -> dict[int, bytes]:
    """Return the attributes (type, length, value, padded to four bytes) by type."""
    result = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if length < _ATTRIBUTE.size:
            break
        result[kind & _TYPE_MASK] = data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]
    return result


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _ask(question: int) -> list[bytes]:
    """Return the bodies of the answer. Repeat the request if a change interrupted the kernel's answer."""
    for _ in range(_TRIES):
        bodies, interrupted = _dump(question)
        if not interrupted:
            break
    return bodies


def _dump(question: int) -> tuple[list[bytes], bool]:
    body = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    bodies: list[bytes] = []
    interrupted = False
    with closing(
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    ) as channel:
        channel.send(_HEADER.pack(_HEADER.size + len(body), question, _REQUEST_DUMP, 1, 0) + body)
        while True:
            for kind, flags, message in _messages(channel.recv(_BUFFER)):
                interrupted |= bool(flags & _DUMP_INTERRUPTED)
                if kind == _DONE:
                    return bodies, interrupted
                bodies.append(message)


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield type, flags and body of each message. Raises ``OSError`` if the kernel reports an error."""
    while len(data) >= _HEADER.size:
        length, kind, flags, _, _ = _HEADER.unpack_from(data)
        body = data[_HEADER.size : length]
        if kind == _ERROR:
            number = -struct.unpack_from("=i", body)[0]
            raise OSError(number, f"the kernel answers with error {number}")
        yield kind, flags, body
        data = data[_aligned(length) :]


class Machine:
    """This machine, or files below ``root``. ``limit`` is the time in seconds that one source may take."""

    def __init__(self, root: str = "/", *, limit: float = LIMIT) -> None:
        self.root = root.rstrip("/")
        self.limit = limit
        self.problems: list[FactError] = []

    def note(self, where: str, what: str | OSError) -> None:
        """Record once that a source could not be read."""
        text = (what.strerror or str(what)) if isinstance(what, OSError) else what
        if not any((known.where, known.what) == (where, text) for known in self.problems):
            self.problems.append(FactError(where, text))

    # Files

    def read(self, path: str) -> str | None:
        """Return the text of a file, or ``None`` if it is missing or unreadable. Unreadable files are recorded."""
        try:
            return self._text(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.note(path, error)
            return None

    def need(self, path: str) -> str:
        """Return the text of a file that a group of facts requires. Raises ``FactError``."""
        try:
            return self._text(path)
        except OSError as error:
            raise FactError(path, error.strerror or str(error)) from error

    def hint(self, path: str) -> str:
        """Return the text of an optional file that most users cannot read, or empty text."""
        try:
            return self._text(path)
        except OSError:
            return ""

    def value(self, path: str) -> str | None:
        """Return an attribute of ``/sys``: one stripped line, or ``None`` if it is empty or missing."""
        return (self.read(path) or "").strip() or None

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted. A missing directory is empty."""
        try:
            return sorted(os.listdir(self.root + path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.note(path, error)
            return []

    def may_list(self, path: str) -> bool:
        """Return whether this user may list a directory."""
        return os.access(self.root + path, os.R_OK | os.X_OK)

    def has(self, path: str) -> bool:
        """Return whether a path exists."""
        return os.path.exists(self.root + path)

    def link(self, path: str) -> str:
        """Return the target of a symbolic link, or empty text if it cannot be read."""
        try:
            return os.readlink(self.root + path)
        except OSError:
            return ""

    def _text(self, path: str) -> str:
        with open(self.root + path, "rb") as stream:
            return stream.read().decode("utf-8", errors="replace")

    # Kernel and libc

    @property
    def environ(self) -> Mapping[str, str]:
        """Return the environment of this process."""
        return os.environ

    def uname(self) -> os.uname_result:
        """Return kernel name, release, machine and host name."""
        return os.uname()

    def clock_ticks(self) -> int:
        """Return ticks per second in ``/proc/PID/stat``."""
        return os.sysconf("SC_CLK_TCK")

    def zone(self) -> str:
        """Return the current abbreviation of the time zone."""
        return time.localtime().tm_zone

    def user_id(self) -> int:
        """Return the current user."""
        return os.geteuid()

    def account(self, uid: int) -> pwd.struct_passwd:
        """Return the account of a user. Raises ``KeyError`` for a user without an account, as in containers."""
        return pwd.getpwuid(uid)

    def group_name(self, gid: int) -> str:
        """Return the name of a group. Raises ``KeyError`` for a group without a name."""
        return grp.getgrgid(gid).gr_name

    def sizes(self, path: str) -> os.statvfs_result:
        """Return sizes of the file system mounted at ``path``. Raises ``OSError``, and can block forever."""
        return os.statvfs(path)

    def canonical_name(self, name: str, seconds: float) -> str | None:
        """Return the resolver's full name for a host. Raises ``OSError``, including ``TimeoutError``."""
        # As bytes, because Python's codec for names rejects a label of 64 characters, which the kernel permits.
        host = name.encode() if name.isascii() else name
        answers = within(
            seconds, socket.getaddrinfo, host, None, 0, socket.SOCK_STREAM, 0, socket.AI_CANONNAME
        )
        return answers[0][3] or None

    def links(self) -> list[Link]:
        """Return network interfaces, in the kernel's order. Raises ``OSError``."""

        return links()

    def addresses(self) -> list[Address]:
        """Return addresses of all interfaces, in the kernel's order. Raises ``OSError``."""

        return addresses()
