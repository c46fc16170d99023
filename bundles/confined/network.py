"""Network access of the agent: calls to unprivileged workers, and limits for their answers.

An attacker may control a worker. The worst that it can do is withhold data: callers verify its bytes like the bytes of
a server. This module limits the number of bytes and the time, converts messages to plain text, and interprets nothing
else.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import bundles
from bundles import progress
from bundles.confined import worker
from bundles.confined.worker import (
    ANSWER,
    BEGIN,
    DATA,
    DESCRIPTOR,
    ERROR,
    LOG,
    TRUNCATE,
    UNPROTECTED,
    FrameError,
    Messages,
    order,
)
from bundles.deadline import Deadline, DeadlineError
from bundles.errors import (
    NotFoundError,
    OversizeError,
    SettingsError,
    TransportError,
    UnchangedError,
)
from foundation.problems import ProblemCode

_LOOK = 0.1  # seconds between two checks of the deadline
_AT_ONCE = 256 * 1024  # bytes
_LONGEST_NAME, _LONGEST_TEXT = 255, 4000  # characters
_LARGEST = 1 << 62
_MOST_LINES, _MOST_BYTES_OF_LINES = 100, 64 * 1024  # log lines of one worker
_MOST_FILES = 1000  # files in one call
_ERRORS = {
    each.__name__: each
    for each in (TransportError, NotFoundError, OversizeError, SettingsError, UnchangedError)
}
_CODES = frozenset(ProblemCode)
# Variables for Python, name resolution, proxies and authorities. Workers do not get the rest of the environment.
_ENVIRONMENT = frozenset(
    {
        "LD_LIBRARY_PATH",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "RES_OPTIONS",
        "LOCALDOMAIN",
        "HOSTALIASES",
        "TZ",
        "LANG",
        "LC_ALL",
    }
)
_EFFECTS = {
    "landlock": "Landlock: the processes for the network can read every file that their user can read",
    "seccomp": "filter of system calls (seccomp): the processes for the network are confined by their user and limits",
}
"""Protections that a kernel may lack, as in ``bundles.confined.confinement``, and the effect."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


class Network:
    """The workers of this process."""

    def __init__(self) -> None:
        self.user = ""
        """User of the workers, as in ``bundles.confined.confinement.confine``."""
        self.missing: dict[str, str] = {}
        """Protections that the kernel lacks, each with a sentence."""
        self._first: tuple[socket.socket, int] | None = None
        self._server: tuple[socket.socket, int] | None = None
        self._alone: dict[int, int] = {}
        self._open: dict[int, Connection] = {}
        self._opened = 0

    def note_missing(self, names: list[bytes]) -> None:
        """Note protections that the kernel lacks. Unknown names are ignored."""
        for name, effect in _EFFECTS.items():
            if name.encode() in names:
                self.missing[name] = f"this kernel has no {effect}"

    def split_off(self) -> None:
        """Fork the first worker from a process that has one thread and has read no secrets.

        A second call has no effect. A fork costs less if the process has imported little.
        """
        if self._first is not None:
            return
        ours, theirs = socket.socketpair()
        with contextlib.closing(theirs):
            try:
                pid = os.fork()
            except OSError:  # `open` then uses the server
                ours.close()
                return
            if pid == 0:
                _be_worker(theirs.fileno())
        self._first = ours, pid

    def open(self, operation: str, arguments: object, where: str) -> Connection:
        """Open a session of ``operation`` (``module:function``). ``arguments`` consist of Python's built-in types.

        ``where`` names the other end in messages. Raises `TransportError` if the process cannot be started.
        """
        self._opened += 1
        number = self._opened
        session = (operation, arguments, self.user)
        try:
            connection = (
                self._from_server(number, session) if self._first is None else self._given(number, session)
            )
        except OSError as error:
            detail = f"the process for the network cannot be started: {error.strerror or error}"
            raise TransportError(where, detail) from None
        self._open[number] = opened = Connection(self, number, connection, where)
        return opened

    def end(self, number: int) -> None:
        """End the worker of a session, whatever its state."""
        self._open.pop(number, None)
        if (pid := self._alone.pop(number, 0)) != 0:
            _end(pid)
        elif self._server is not None:
            with contextlib.suppress(OSError):
                self._server[0].sendall(order(("end", number)))

    def close(self) -> None:
        """End all workers and the server, and wait for them."""
        for session in list(self._open.values()):
            session.close()
        if self._first is not None:
            connection, pid = self._first
            self._first = None
            connection.close()
            _end(pid)
        if self._server is not None:
            control, pid = self._server
            self._server = None
            control.close()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _given(self, number: int, session: tuple[object, ...]) -> socket.socket:
        """Return the connection to the first worker, which gets this session. Raises ``OSError``."""
        assert self._first is not None  # noqa: S101  for the reader, and for mypy
        (connection, self._alone[number]), self._first = self._first, None
        try:
            connection.sendall(order(session))
        except BaseException:
            connection.close()
            self.end(number)
            raise
        return connection

    def _from_server(self, number: int, session: tuple[object, ...]) -> socket.socket:
        """Return the connection to a worker of the server. Raises ``OSError``."""
        if self._server is None:
            control, its = socket.socketpair()
            try:
                with its:
                    self._server = control, _start(its.fileno())
            except BaseException:
                control.close()
                raise
        control, _ = self._server
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                data = order(("open", number, *session))
                sent = socket.send_fds(control, [data], [theirs.fileno()])
                control.sendall(data[sent:])
        except BaseException:
            ours.close()
            self._end_server()  # the next session starts a new server
            raise
        return ours

    def _end_server(self) -> None:
        if self._server is not None:
            control, pid = self._server
            self._server = None
            control.close()
            _end(pid)


def _end(pid: int) -> None:
    """Kill a child of this process. Its process number cannot be reused before it is waited for."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class Connection:
    """A session with a worker. Not thread-safe."""

    def __init__(self, network: Network, number: int, connection: socket.socket, where: str) -> None:
        self._network = network
        self._number = number
        self._connection: socket.socket | None = connection
        self._messages = Messages()
        self._where = where
        self._lines = _Lines()

    @property
    def is_over(self) -> bool:
        """Return whether the session has ended."""
        return self._connection is None

    def call(
        self,
        arguments: object,
        deadline: Deadline,
        into: BinaryIO | None = None,
        limit: int = 0,
        *,
        resume: bool = False,
    ) -> list[bytes]:
        """Return the fields of the answer to a call, and write at most ``limit`` bytes of data to ``into``.

        ``resume`` keeps the contents of ``into`` unless the worker truncates them. Raises the errors that the worker
        reports (`TransportError` or `SettingsError`), ``DeadlineError``, the errors of the deadline's ``check``, and
        the ``OSError`` of ``into``. Every error except a reported one ends the session.
        """
        if self._connection is None:
            raise TransportError(self._where, "the process for the network has ended")
        held = into.seek(0, os.SEEK_END) if into is not None and resume else 0
        received = _Received(into, held, limit, self._where, self._lines)
        try:
            self._send(order((held, arguments)), deadline)
            for kind, fields in self._received(deadline):
                if kind == ANSWER:
                    return fields
                if kind == ERROR:
                    break
                if kind == UNPROTECTED:
                    self._network.note_missing(fields)
                else:
                    received.take(kind, fields)
        except FrameError as error:
            self.close()
            raise TransportError(
                self._where, f"the process for the network sent an invalid message: {error}"
            ) from None
        except BaseException:
            self.close()
            raise
        finally:
            self._lines.end_call()
        raise self._error(fields)

    def close(self) -> None:
        """End the session and its worker."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._network.end(self._number)

    def _send(self, data: bytes, deadline: Deadline) -> None:
        remainder = memoryview(data)
        while remainder:
            self._socket.settimeout(deadline.at_most(_LOOK))
            try:
                remainder = remainder[self._socket.send(remainder) :]
            except TimeoutError:
                continue
            except OSError:
                raise self._ended() from None

    def _received(self, deadline: Deadline) -> Iterator[tuple[bytes, list[bytes]]]:
        while True:
            self._socket.settimeout(deadline.at_most(_LOOK))
            try:
                data = self._socket.recv(_AT_ONCE)
            except TimeoutError:
                continue
            except OSError:
                raise self._ended() from None
            if not data:
                raise self._ended()
            yield from self._messages.add(data)

    @property
    def _socket(self) -> socket.socket:
        if self._connection is None:
            raise self._ended()
        return self._connection

    def _ended(self) -> TransportError:
        return TransportError(self._where, "the process for the network ended before its response")

    def _error(self, fields: list[bytes]) -> Exception:
        texts = (*(_plain(field, _LONGEST_TEXT) for field in fields[:6]), *[""] * 6)
        name, where, detail, code, hint, expected = texts[:6]
        if name == DeadlineError.__name__:
            return DeadlineError(detail)
        kind = _ERRORS.get(name, TransportError)
        known = ProblemCode(code) if code in _CODES else None
        return kind(where or self._where, detail, code=known, expected=expected, hint=hint)


class _Lines:
    """The log lines of one worker, bounded in number and size."""

    def __init__(self) -> None:
        self._count = self._bytes = self._dropped = 0

    def add(self, field: bytes) -> None:
        """Log one line, or count it as dropped."""
        self._count += 1
        self._bytes += len(field)
        if self._count > _MOST_LINES or self._bytes > _MOST_BYTES_OF_LINES:
            self._dropped += 1
            return
        self._log(_plain(field, _LONGEST_TEXT))

    def end_call(self) -> None:
        """Log how many lines of a call were dropped."""
        if self._dropped:
            self._log(f"{self._dropped} more lines of the process for the network were dropped")
            self._dropped = 0

    @staticmethod
    def _log(line: str) -> None:
        import logging  # 7 % of an idle run, which logs nothing

        logging.getLogger("bundles.transport.web").info("%s", line)


class _Received:
    """Data of a file that a worker sends, within its limits."""

    def __init__(self, into: BinaryIO | None, held: int, limit: int, where: str, lines: _Lines) -> None:
        self._into = into
        self._lines = lines
        self._begun = 0
        self._held = held
        self._limit = limit
        self._where = where
        self._name = ""

    def take(self, kind: bytes, fields: list[bytes]) -> None:
        """Process one message. Raises ``FrameError`` for an invalid message, and `OversizeError`."""
        if kind == LOG and len(fields) == 1:
            self._lines.add(fields[0])
        elif kind == DATA and len(fields) == 1 and self._into is not None:
            self._add(self._into, fields[0])
        elif kind == TRUNCATE and len(fields) == 1 and self._into is not None:
            self._truncate(self._into, _number(fields[0]))
        elif kind == BEGIN and len(fields) == 3 and self._begun < _MOST_FILES:
            self._begun += 1
            self._name = _plain(fields[0], _LONGEST_NAME)
            progress.begin_file(self._name, self._held, _number(fields[2]) if fields[2] else None)
        else:
            raise FrameError(f"message of kind {kind!r} with {len(fields)} fields")

    def _add(self, into: BinaryIO, data: bytes) -> None:
        if self._held + len(data) > self._limit:
            raise OversizeError(self._where, f"has more than the permitted {self._limit} bytes")
        into.write(data)
        self._held += len(data)
        if self._name:
            progress.note(self._name, self._held)

    def _truncate(self, into: BinaryIO, position: int) -> None:
        if position > self._held:
            raise FrameError("position behind the end")
        into.seek(position)
        into.truncate()
        self._held = position


def _number(field: bytes) -> int:
    if not field.isdigit() or len(field) > 19 or int(field) > _LARGEST:
        raise FrameError(f"{field[:20]!r} instead of a number")
    return int(field)


def _plain(field: bytes, longest: int) -> str:
    """Decode an untrusted text, without characters that control a terminal or a log."""
    text = field.decode("utf-8", "replace")[:longest]
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)


def _start(descriptor: int) -> int:
    """Start the server with the socket ``descriptor``. Returns its process number. Raises ``OSError``."""
    # The code of this agent, from a package, a checkout or an archive.
    path = [os.path.dirname(os.path.dirname(os.path.abspath(bundles.__file__))), *sys.path]
    boot = "import sys; sys.path[:] = sys.argv[1:]; from bundles.confined import worker; worker.serve()"
    flags = ["-I", "-S", *(["-B"] if sys.dont_write_bytecode else [])]
    actions = [
        (os.POSIX_SPAWN_DUP2, descriptor, DESCRIPTOR),
        *((os.POSIX_SPAWN_OPEN, each, "/dev/null", os.O_RDWR, 0) for each in (0, 1, 2)),
    ]
    arguments = [sys.executable, *flags, "-c", boot, *filter(None, path)]
    return os.posix_spawn(sys.executable, arguments, _environment(os.environ), file_actions=actions)


def _be_worker(descriptor: int) -> None:
    """Turn this process into the first worker, without the agent's descriptors and environment. Does not return."""
    try:
        gc.disable()  # a collection would visit all modules of the agent
        os.dup2(descriptor, DESCRIPTOR)
        nothing = os.open(os.devnull, os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(nothing, each)
        retained = _environment(os.environ)
        os.environ.clear()
        os.environ.update(retained)
        worker.settle()
        worker.work_first(socket.socket(fileno=DESCRIPTOR))
    finally:
        os._exit(0)


def _environment(environment: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: value for name, value in environment.items() if name in _ENVIRONMENT or name.lower() in _PROXIES
    }
