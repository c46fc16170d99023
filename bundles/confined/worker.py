"""Workers: one process for one location on the network, with only the data that it needs, and the server of workers.

Messages are sent on a stream socket. To a worker: a length (4 bytes, big endian) and a JSON document. The sender is
trusted. From a worker: a length, a byte for the kind of the message, and fields. Each field follows its length, and the
reader of messages does not interpret it.

The agent starts the server with its user. The server forks one worker for each session. It communicates only with the
agent, and reads only its orders. It is a new program, so that the memory of workers contains neither decrypted values
nor passwords of other servers. It imports the operations once for all workers, because imports take most of their time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from bundles import progress
from bundles.deadline import work_alone
from bundles.errors import BundleError, reason_of

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
    remainder = b"".join(len(field).to_bytes(_LENGTH, "big") + field for field in fields)
    return (1 + len(remainder)).to_bytes(_LENGTH, "big") + kind + remainder


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
    results, position = [], 1
    while position < len(whole):
        start = position + _LENGTH
        position = start + int.from_bytes(whole[position:start], "big")
        if start > len(whole) or position > len(whole):
            raise FrameError("a field that is longer than its message")
        results.append(whole[start:position])
    return results


if TYPE_CHECKING:

    class Session(Protocol):
        """An open operation that answers calls."""

        readable: Sequence[str]
        """Further files and directories that the calls read."""

        def __call__(self, arguments: Any, into: AgentsFile) -> Sequence[bytes]:
            """Process a call, write data to ``into``, and return the fields of the answer."""
            ...


DESCRIPTOR = 3
"""Descriptor of the socket to the agent."""

_LONGEST_TEXT = 4000  # bytes of a field of text


def settle() -> None:
    """Close the agent's descriptors, and ignore signals to its process group: the agent handles them."""
    for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    os.closerange(DESCRIPTOR + 1, os.sysconf("SC_OPEN_MAX"))


def work_first(connection: socket.socket) -> None:
    """Serve the session of the first order. Without an order, the agent did not need the worker."""
    if (session := read_order(connection.recv)) is not None:
        work(connection, *session)


def import_operation(name: str) -> Callable[[Any], Session]:
    """Return the operation ``module:function``."""
    # Import the confinement, too: without privileges, the code of an agent in /root is unreadable.
    import_module("bundles.confined.confinement")
    module, _, function = name.partition(":")
    result: Callable[[Any], Session] = getattr(import_module(module), function)
    return result


def work(connection: socket.socket, operation: str, arguments: Any, user: str) -> None:
    """Serve one connection until it ends.

    1. Open the session with the privileges of the agent. This reads files and does not use the network.
    2. Give up the privileges.
    3. Answer calls one after the other.

    An error of the first steps is the answer to the next call.
    """
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the agent no longer reads the answer
        try:
            # 1.
            session = import_operation(operation)(arguments)
            from bundles.confined.confinement import confine  # 1 % of an idle run

            _relay_log(connection)
            # 2.
            missing = confine(user, session.readable)
            work_alone()
        except (BundleError, OSError, LookupError, ValueError, ImportError, AttributeError) as error:
            read_order(connection.recv)
            connection.sendall(_refusal(error))
            return
        if missing:
            connection.sendall(message(UNPROTECTED, *(name.encode() for name in missing)))
        # 3.
        while (order := read_order(connection.recv)) is not None:
            held, call = order
            into = AgentsFile(connection, held)
            try:
                with progress.relayed_to(into):
                    fields = session(call, into)
            except Exception as error:  # noqa: BLE001  it is raised again where the call was made
                connection.sendall(_failure(error))
            else:
                connection.sendall(message(ANSWER, *fields))


class AgentsFile:
    """The agent's file for the data of a call. Has methods of a file, and sends the data to the agent."""

    def __init__(self, connection: socket.socket, held: int) -> None:
        """``held`` is the current size in bytes."""
        self._connection = connection
        self._length = self._position = held

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position to ``offset`` from the beginning, or to the end."""
        self._position = self._length if whence == os.SEEK_END else offset
        return self._position

    def truncate(self) -> int:
        """Truncate the file at the current position."""
        self._length = self._position
        self._connection.sendall(message(TRUNCATE, b"%d" % self._position))
        return self._position

    def write(self, data: bytes) -> int:
        """Write bytes at the current position, which is the end."""
        for start in range(0, len(data), CHUNK):
            self._connection.sendall(message(DATA, data[start : start + CHUNK]))
        self._length = self._position = self._position + len(data)
        return len(data)

    def begin_file(self, name: str, held: int, of: int | None) -> None:
        """Report a file to ``bundles.progress.begin_file`` of the agent, which computes the progress from the bytes."""
        self._connection.sendall(message(BEGIN, _text(name), b"%d" % held, b"" if of is None else b"%d" % of))


def _refusal(error: Exception) -> bytes:
    if isinstance(error, BundleError):
        return _bundle_error(error)
    detail = f"the process for the network cannot be started: {reason_of(error)}"
    return message(ERROR, b"SettingsError", b"network_user", _text(detail))


def _failure(error: Exception) -> bytes:
    if isinstance(error, BundleError):
        return _bundle_error(error)
    if isinstance(error, TimeoutError):
        return message(ERROR, b"DeadlineError", b"", _text(str(error)))
    return message(ERROR, b"TransportError", b"", _text(f"{type(error).__name__}: {reason_of(error)}"))


def _bundle_error(error: BundleError) -> bytes:
    (problem,) = error.problems
    texts = (error.where, problem.message, problem.code, problem.hint, problem.expected)
    return message(ERROR, type(error).__name__.encode(), *map(_text, texts))


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:_LONGEST_TEXT]


def _relay_log(connection: socket.socket) -> None:
    """Send log lines to the agent. A process that has not imported ``logging`` logs nothing."""
    if "logging" not in sys.modules:
        return
    import logging  # 7 % of an idle run, which logs nothing

    class Relay(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            connection.sendall(message(LOG, _text(record.getMessage())))

    logging.getLogger("bundles").addHandler(Relay())
    logging.getLogger("bundles").setLevel(logging.INFO)


def serve() -> None:
    """Serve the agent at the other end of the socket `DESCRIPTOR` until it closes the socket. Then end all workers.

    Orders are ``("open", number, operation, arguments, user)`` with the worker's socket attached, where an operation is
    ``module:function``, and ``("end", number)``, which ends a worker.
    """
    settle()
    control = socket.socket(fileno=DESCRIPTOR)
    workers: dict[int, int] = {}
    passed: list[int] = []

    def receive(count: int) -> bytes:
        data, descriptors, *_ = socket.recv_fds(control, count, 1)
        passed.extend(descriptors)
        return data

    while (order := read_order(receive)) is not None:
        if order[0] == "end":
            _end(workers.pop(order[1], 0))
            continue
        _, number, name, arguments, user = order
        connection = socket.socket(fileno=passed.pop())
        with suppress(ImportError, AttributeError):  # the worker reports it
            import_operation(name)
        workers[number] = pid = os.fork()
        if pid == 0:
            control.close()
            _work(connection, name, arguments, user)
        connection.close()
    for pid in workers.values():
        _end(pid)


def _work(connection: socket.socket, name: str, arguments: Any, user: str) -> None:
    try:
        work(connection, name, arguments, user)
    finally:
        os._exit(0)


def _end(pid: int) -> None:
    """Kill a worker. Its process number cannot be reused before it is waited for."""
    if pid:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
