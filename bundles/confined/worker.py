"""Worker: one process for one location on the network, with only the data that it needs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from bundles import progress
from bundles.confined.frames import (
    ANSWER,
    BEGIN,
    CHUNK,
    DATA,
    ERROR,
    LOG,
    TRUNCATE,
    UNPROTECTED,
    message,
    read_order,
)
from bundles.deadline import work_alone
from bundles.errors import BundleError, reason_of

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
    found: Callable[[Any], Session] = getattr(import_module(module), function)
    return found


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
            from bundles.confined.confinement import confine

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
    what = f"the process for the network cannot be made: {reason_of(error)}"
    return message(ERROR, b"SettingsError", b"network_user", _text(what))


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
