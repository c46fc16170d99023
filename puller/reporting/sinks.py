"""Sinks for the log of a run: lines of a stream, or entries of the systemd journal with fields.

* If the stream is connected to the journal (``JOURNAL_STREAM``), entries go to the journal with their fields.
* If the journal does not accept an entry, the stream gets it as lines with their priority, without fields. The first
  such entry causes a warning on standard error. No entry is lost.
* ``docs/monitoring.md`` lists the fields and message identifiers.
"""

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import sys
import time
from array import array
from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from typing import Protocol, TextIO, TypedDict

from puller.values.colour import coloured, coloured_diff, is_wanted
from puller.values.foreign_text import visible

# Fields of an entry in the journal.


class MessageId(StrEnum):
    """Identifiers of the kinds of entries (docs/monitoring.md). An identifier and its meaning never change."""

    RESOURCE_STABLE = "4e6b73f3eaf2462fb6732427b8a181a9"
    RESOURCE_CHANGED = "36cae90329814f04aa29d204207c4b58"
    RESOURCE_REFRESHED = "478fe513d28e4ff7b2895b4f1b5c5a69"
    RESOURCE_FAILED = "5b48c55352c64f1c9d54408095d5e26d"
    RESOURCE_SKIPPED = "da89496eae8f4452a789a49727f3b1f8"
    RESOURCE_WOULD_CHANGE = "a9d6daa52830490583c983130b06d4c3"
    RESOURCE_RESTLESS = "a85358a6335e42a9a2dea513644bb222"
    BUNDLE_FETCHING = "1d8577ffc0d54dfeaf71a8d6aa6b5e1d"
    BUNDLE_ENFORCED = "e144877940a64928ba0246a2b772eb1f"
    BUNDLE_APPLIED = "cddad6c448db483ab2a1e23857c32828"
    BUNDLE_HELD = "4e79c2eeffad47708cf6927ba1363276"
    BUNDLE_GIVEN_UP = "0c49ceb420a9455cb2de54e26ca4d85a"
    RUN_PAUSED = "466547ce01654923abe98922271bb0b2"
    RUN_ENDED = "c7b07cb816c745568252f4d8bf527da7"
    MACHINE_RESTARTS = "16047e21a1f74484b0b07a7ed1e25991"
    PROBLEM = "199f04db40044f8c93de76a39770fed5"
    WARNING = "3733eb19651d4c2a9fbc80355425403d"


class Fields(TypedDict, total=False):
    """The fields of one entry."""

    kind: MessageId
    run: str
    """Identity of the run."""
    bundle: str
    """Name of a bundle."""
    resource: str
    """``type#name``."""
    state: str
    """The end of a resource, as in reports."""
    differences: str
    """The differences of a resource, as JSON."""
    code: str
    """The code of the first problem."""
    exit: int
    """An exit status: of the run that ended, or what a problem adds to it."""


NAMES = {
    "kind": "MESSAGE_ID",
    "run": "PULLER_RUN",
    "bundle": "PULLER_BUNDLE",
    "resource": "PULLER_RESOURCE",
    "state": "PULLER_STATE",
    "differences": "PULLER_DIFFERENCES",
    "code": "PULLER_CODE",
    "exit": "PULLER_EXIT",
}


# The native protocol of the journal, https://systemd.io/JOURNAL_NATIVE_PROTOCOL/.
#
# * One datagram is one entry. A larger entry is sent as a sealed file in memory, by its descriptor.
# * Each value has a length prefix, so its content cannot begin another field or entry.
# * A run waits at most half a second in total for a full journal. After that, a full journal is an error.

_TOO_LARGE = (errno.EMSGSIZE, errno.ENOBUFS)
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_PATIENCE = 0.5
"""Seconds in total, because a busy journal needs time for many entries."""
_LONGEST = 64 * 1024
"""Maximum characters of a field other than the message. Longer values are cut."""


def entry(priority: int, message: str, fields: Fields) -> bytes:
    """Return an entry in the format of journald."""
    own: Mapping[str, object] = fields
    named = {NAMES[name]: visible(str(value)[:_LONGEST]) for name, value in own.items()}
    return framed({"MESSAGE": message, "PRIORITY": str(priority), "SYSLOG_IDENTIFIER": "puller", **named})


def framed(fields: Mapping[str, str]) -> bytes:
    """Return fields with a length before each value, so that a value may contain line ends and field-like text."""
    return b"".join(_field(name, value.encode(errors="backslashreplace")) for name, value in fields.items())


def _field(name: str, value: bytes) -> bytes:
    return b"%s\n%s%s\n" % (name.encode(), len(value).to_bytes(8, "little"), value)


class Journal:
    """The journal of this machine, by the path of its socket. Each entry connects anew, so a restart of the journal is
    no problem.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._patience = _PATIENCE

    def send(self, data: bytes) -> None:
        """Send an entry. Raises ``OSError`` if the journal does not accept it."""
        try:
            self._send(data, 0)
        except BlockingIOError:
            if self._patience <= 0:
                raise
            began = time.monotonic()
            try:
                self._send(data, self._patience)
            finally:
                self._patience -= time.monotonic() - began

    def _send(self, data: bytes, patience: float) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(patience > 0)
            if patience > 0:  # Python's own timeout ignores the buffer at the other end
                limit = struct.pack("@ll", 0, int(patience * 1_000_000) + 1)
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            try:
                sender.sendto(data, self._path)
            except OSError as error:
                if error.errno not in _TOO_LARGE:
                    raise
                self._send_file(sender, data)

    def _send_file(self, sender: "socket.socket", data: bytes) -> None:
        descriptor = os.memfd_create("puller-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            # Journald reads only files that can no longer change.
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))
            sender.sendmsg([], [rights], 0, self._path)
        finally:
            os.close(descriptor)


JOURNAL = "/run/systemd/journal/socket"


class Level(IntEnum):
    """Syslog priorities. Smaller numbers are more urgent."""

    ERROR = 3
    WARN = 4
    NOTICE = 5
    INFO = 6
    DEBUG = 7


_COLOURS = {Level.ERROR: "red", Level.WARN: "yellow", Level.NOTICE: "green", Level.DEBUG: "dim"}


class Sink(Protocol):
    """Accepts entries: a level, a sentence that may have several lines, and fields."""

    has_fields: bool
    """Whether readers can see the fields."""

    def write(self, level: Level, sentence: str, fields: Fields) -> None:
        """Write an entry. Errors of the journal are handled."""

    def at_once(self, level: Level, sentence: str, fields: Fields) -> None:
        """Like ``write``, for a signal handler that may have interrupted another entry. May omit the entry."""


def find_sink(stream: TextIO, *, colour: bool | None = None, journal: str = JOURNAL) -> Sink:
    """Return the sink for a stream. ``colour=None`` detects the terminal's abilities."""
    if not _is_journal(stream):
        is_coloured = is_wanted(stream) if colour is None else colour
        return Lines(stream, _coloured if is_coloured else _plain)
    return Entries(Journal(journal), Lines(stream, _prefixed))


class Lines:
    """Lines of a stream."""

    has_fields = False

    def __init__(self, stream: TextIO, shape: Callable[[Level, str], str]) -> None:
        self._stream = stream
        self._shape = shape

    def write(self, level: Level, sentence: str, fields: Fields) -> None:
        """Write an entry and flush the stream."""
        self._stream.write(self._shape(level, sentence))
        self._stream.flush()

    def at_once(self, level: Level, sentence: str, fields: Fields) -> None:
        """Write an entry, unless the stream would block."""
        with contextlib.suppress(OSError, ValueError):
            descriptor = self._stream.fileno()
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            if poll.poll(0):
                os.write(descriptor, self._shape(level, sentence).encode())


class Entries:
    """Entries of the journal. If the journal does not accept an entry, ``otherwise`` gets it."""

    has_fields = True

    def __init__(self, journal: "Journal", otherwise: Lines) -> None:
        self._journal = journal
        self._otherwise = otherwise
        self._has_warned = False

    def write(self, level: Level, sentence: str, fields: Fields) -> None:
        """Send an entry with its fields, or write it without fields."""
        try:
            self._send(level, sentence, fields)
        except OSError as error:
            self._tell(error)
            self._otherwise.write(level, sentence, fields)

    def at_once(self, level: Level, sentence: str, fields: Fields) -> None:
        """Send an entry, or write it as a line if the stream does not block."""
        try:
            self._send(level, sentence, fields)
        except OSError:
            self._otherwise.at_once(level, sentence, fields)

    def _send(self, level: Level, sentence: str, fields: Fields) -> None:
        self._journal.send(entry(level, sentence, fields))

    def _tell(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            why = os.strerror(error.errno or 0)
            print(
                f"puller: the journal rejects entries with fields ({why}), so they are written as lines",
                file=sys.stderr,
            )


def _plain(level: Level, sentence: str) -> str:
    return _indented(f"{level.name:7}", sentence)


def _coloured(level: Level, sentence: str) -> str:
    name = f"{level.name:7}"
    return _indented(coloured(name, _COLOURS[level]) if level in _COLOURS else name, coloured_diff(sentence))


def _indented(name: str, sentence: str) -> str:
    """Return an entry with indented further lines, to separate them from the next entry."""
    return name + sentence.replace("\n", "\n        ") + "\n"


def _prefixed(level: Level, sentence: str) -> str:
    """Return an entry with its priority at the start of every line, as journald and readers of syslog lines expect."""
    return "".join(f"<{level.value}>{line}\n" for line in sentence.splitlines())


def _is_journal(stream: TextIO) -> bool:
    """Return whether the stream is connected to the journal, by the device and inode that systemd passes."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
