"""Messages on a stream socket, in both directions.

Towards a worker: a length (4 bytes, big endian), and an object as ``marshal`` writes it; both ends are one Python,
and the sender is trusted. From a worker nothing is read so: a length, a byte that says the kind of the message, and
fields, each with its length before it, of which none is interpreted here.
"""

from __future__ import annotations

import marshal

TYPE_CHECKING = False  # as in ``bundles.deadline``
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

CHUNK = 64 * 1024
"""Bytes of a file in one message, at most."""
LONGEST = 1024 * 1024
"""Bytes of a message of a worker, at most."""

DATA = b"D"
"""Bytes that follow those before."""
TRUNCATE = b"T"
"""What was sent before holds up to a position; fields: the position."""
BEGIN = b"B"
"""A file begins; fields: its name, how much of it is held, and its length, or nothing where that is not known."""
LOG = b"L"
"""A sentence for the log."""
UNPROTECTED = b"U"
"""The kernel lacks protections; fields: their names, from ``bundles.confined.confinement``."""
ERROR = b"E"
"""The call failed; fields: the name of the error's class, where, and what."""
ANSWER = b"A"
"""The call is done; fields are those of the operation."""

_LENGTH = 4


class FrameError(ValueError):
    """Bytes that are no message."""


def order(content: Any) -> bytes:
    """A message to a worker or to the server of workers: tuples and mappings of texts, bytes, numbers and ``None``."""
    data = marshal.dumps(_bare(content))
    return len(data).to_bytes(_LENGTH, "big") + data


def _bare(value: Any) -> Any:
    """As Python's own types: a kind of number of ours is one no more at the other end."""
    kinds: tuple[Any, ...] = (str, bytes, bool, int, float)
    for kind in kinds:
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, tuple | list):
        return tuple(map(_bare, value))
    if hasattr(value, "items"):
        return {_bare(name): _bare(each) for name, each in value.items()}
    return value


def read_order(receive: Any) -> Any:
    """The next order, read by ``receive(count)``, which gives at most so many bytes; ``None`` at the end."""
    header = _exactly(receive, _LENGTH)
    if header is None:
        return None
    data = _exactly(receive, int.from_bytes(header, "big"))
    return None if data is None else marshal.loads(data)  # noqa: S302  of the agent, which started this process


def _exactly(receive: Any, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        piece = receive(count - len(data))
        if not piece:
            return None
        data += piece
    return data


def message(kind: bytes, *fields: bytes) -> bytes:
    """A message of a worker."""
    rest = b"".join(len(field).to_bytes(_LENGTH, "big") + field for field in fields)
    return (1 + len(rest)).to_bytes(_LENGTH, "big") + kind + rest


class Messages:
    """The messages in the bytes of a worker, which may be anything."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
        """The messages, kind and fields, that are whole with ``data``; raises ``FrameError``."""
        self._bytes += data
        while len(self._bytes) > _LENGTH:
            length = int.from_bytes(self._bytes[:_LENGTH], "big")
            if not 0 < length <= LONGEST:
                raise FrameError(f"a message of {length} bytes")
            if len(self._bytes) < _LENGTH + length:
                return
            whole = bytes(self._bytes[_LENGTH : _LENGTH + length])
            del self._bytes[: _LENGTH + length]
            yield whole[:1], _fields(whole)


def _fields(whole: bytes) -> list[bytes]:
    found, position = [], 1
    while position < len(whole):
        start = position + _LENGTH
        position = start + int.from_bytes(whole[position:start], "big")
        if start > len(whole) or position > len(whole):
            raise FrameError("a field that is longer than its message")
        found.append(whole[start:position])
    return found
