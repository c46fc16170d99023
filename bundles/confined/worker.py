"""The worker: one process for one place on the network, with what it was told and nothing else."""

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
        """What an operation opens, for its calls."""

        readable: Sequence[str]
        """Files and directories beside the system's that the calls read."""

        def __call__(self, arguments: Any, into: AgentsFile) -> Sequence[bytes]:
            """Do what is asked, write what comes of it to ``into``, and give the fields of the answer."""
            ...


DESCRIPTOR = 3
"""Of the socket to the agent, in what it starts."""

_LONGEST_TEXT = 4000  # bytes of a field of text


def settle() -> None:
    """Leave the agent's descriptors alone, and signals to all of its processes: it decides what they mean."""
    for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    os.closerange(DESCRIPTOR + 1, os.sysconf("SC_OPEN_MAX"))


def work_first(connection: socket.socket) -> None:
    """Serve the session that the first order is for; without one, the agent needed none."""
    if (session := read_order(connection.recv)) is not None:
        work(connection, *session)


def import_operation(name: str) -> Callable[[Any], Session]:
    """The operation ``module:function``."""
    # With what gives up privileges: the code of an agent in /root cannot be read without them.
    import_module("bundles.confined.confinement")
    module, _, function = name.partition(":")
    found: Callable[[Any], Session] = getattr(import_module(module), function)
    return found


def work(connection: socket.socket, operation: str, arguments: Any, user: str) -> None:
    """Serve one connection to its end.

    1. Open the session with the privileges of the agent: its files are read, and the network is not asked yet.
    2. Give them up.
    3. Answer one call after the other.

    What fails is told as the answer to the next call.
    """
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody waits for the answer any more
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
    """The file of the agent that a call writes to; what is written is sent there. Methods are those of a file."""

    def __init__(self, connection: socket.socket, held: int) -> None:
        """``held`` bytes are in it already."""
        self._connection = connection
        self._length = self._position = held

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Only from the beginning, and to the end."""
        self._position = self._length if whence == os.SEEK_END else offset
        return self._position

    def truncate(self) -> int:
        """Let it end here."""
        self._length = self._position
        self._connection.sendall(message(TRUNCATE, b"%d" % self._position))
        return self._position

    def write(self, data: bytes) -> int:
        """Add bytes at the end."""
        for start in range(0, len(data), CHUNK):
            self._connection.sendall(message(DATA, data[start : start + CHUNK]))
        self._length = self._position = self._position + len(data)
        return len(data)

    def begin_file(self, name: str, held: int, of: int | None) -> None:
        """See ``bundles.progress.begin_file``; how far it is follows from the bytes."""
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
