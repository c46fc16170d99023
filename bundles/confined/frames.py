"""Messages on a stream socket, in both directions.

To a worker: a length (4 bytes, big endian) and a JSON document. The sender is trusted. From a worker: a length, a byte
for the kind of the message, and fields. Each field follows its length, and is not interpreted by this module.
"""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator
from typing import Any

CHUNK = 64 * 1024
"""Upper limit for the bytes of a file in one message."""
LONGEST = 1024 * 1024
"""Upper limit for the bytes of a message from a worker."""

DATA = b"D"
"""The next bytes of the file."""
TRUNCATE = b"T"
"""Previous data is valid up to a position. Field: the position."""
BEGIN = b"B"
"""A file starts. Fields: its name, the size of the existing part, and its length, empty if unknown."""
LOG = b"L"
"""A sentence for the log."""
UNPROTECTED = b"U"
"""The kernel lacks protections. Fields: their names, from ``bundles.confined.confinement``."""
ERROR = b"E"
"""The call failed. Fields: class of the error, where, what, and optionally code, hint and expected values."""
ANSWER = b"A"
"""The call is complete. Fields: the result of the operation."""

_LENGTH = 4
_BYTES = "\0bytes"  # neither a header nor a file has this name


class FrameError(ValueError):
    """Invalid bytes instead of a message."""


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
    """Return a message of a worker."""
    rest = b"".join(len(field).to_bytes(_LENGTH, "big") + field for field in fields)
    return (1 + len(rest)).to_bytes(_LENGTH, "big") + kind + rest


class Messages:
    """Parser for the untrusted bytes of a worker."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield kind and fields of all messages that ``data`` completes. Raises ``FrameError``."""
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
