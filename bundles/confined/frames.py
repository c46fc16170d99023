"""Messages on a stream socket, in both directions.

Towards a worker: a length (4 bytes, big endian) and a JSON document. The sender is trusted. From a worker: a length,
a byte that names the kind of the message, and fields. Each field has its length before it, and is not interpreted
here.
"""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
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
"""The call failed. Fields: class of the error, where, what, and optionally code, hint and expected values."""
ANSWER = b"A"
"""The call is done; fields are those of the operation."""

_LENGTH = 4
_BYTES = "\0bytes"  # a name that no header and no file has


class FrameError(ValueError):
    """Bytes that are no message."""


def order(content: Any) -> bytes:
    """Return a message to a worker, or to the server of workers.

    It consists of sequences and mappings of text, bytes, numbers and ``None``. The worker gets lists for tuples.
    """
    data = json.dumps(content, default=_as_json).encode()
    return len(data).to_bytes(_LENGTH, "big") + data


def _as_json(value: Any) -> dict[str, Any]:
    return {_BYTES: b2a_base64(value).decode()} if isinstance(value, bytes) else dict(value)


def read_order(receive: Any) -> Any:
    """Return the next order, or ``None`` at the end. ``receive(count)`` returns at most ``count`` bytes."""
    header = _exactly(receive, _LENGTH)
    if header is None:
        return None
    data = _exactly(receive, int.from_bytes(header, "big"))
    return None if data is None else json.loads(data, object_hook=_from_json)


def _from_json(value: dict[str, Any]) -> Any:
    return a2b_base64(value[_BYTES]) if value.keys() == {_BYTES} else value


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
