"""Entries of the systemd journal with fields, by the protocol that journald itself documents.

* One datagram is one entry; one that is too large for it goes as a sealed file in memory, of which the datagram has the
  descriptor.
* Each value goes with its length in front, so that nothing in it begins another field or entry.
* A journal that has no room now is waited for, but for no longer than half a second in a run; then that is an error.

The protocol: https://systemd.io/JOURNAL_NATIVE_PROTOCOL/
"""

import errno
import fcntl
import os
import socket
import struct
import time
from array import array
from collections.abc import Mapping

from puller.reporting.fields import NAMES, Fields
from puller.values.visible import visible

_TOO_LARGE = (errno.EMSGSIZE, errno.ENOBUFS)
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_PATIENCE = 0.5
"""Seconds, in all: while many entries come at once, the journal needs its moments."""
_LONGEST = 64 * 1024
"""Characters of a field beside the message; what is longer is cut off."""


def entry(priority: int, message: str, fields: Fields) -> bytes:
    """An entry as journald reads it."""
    own: Mapping[str, object] = fields
    named = {NAMES[name]: visible(str(value)[:_LONGEST]) for name, value in own.items()}
    return framed({"MESSAGE": message, "PRIORITY": str(priority), "SYSLOG_IDENTIFIER": "puller", **named})


def framed(fields: Mapping[str, str]) -> bytes:
    """Fields, each value with its length in front: it may hold ends of lines, and whatever looks like a field."""
    return b"".join(_field(name, value.encode(errors="backslashreplace")) for name, value in fields.items())


def _field(name: str, value: bytes) -> bytes:
    return b"%s\n%s%s\n" % (name.encode(), len(value).to_bytes(8, "little"), value)


class Journal:
    """The journal of this machine, by the path of its socket; one that is restarted meanwhile is found again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._patience = _PATIENCE

    def send(self, data: bytes) -> None:
        """Hand over an entry; raises ``OSError`` when the journal does not take it."""
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
            if (
                patience > 0
            ):  # a limit of Python's own knows nothing of the room that there is at the other end
                limit = struct.pack("@ll", 0, int(patience * 1_000_000) + 1)
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            try:
                sender.sendto(data, self._path)
            except OSError as error:
                if error.errno not in _TOO_LARGE:
                    raise
                self._send_file(sender, data)

    def _send_file(self, sender: socket.socket, data: bytes) -> None:
        descriptor = os.memfd_create("puller-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            # Journald reads only what nobody can change meanwhile.
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))
            sender.sendmsg([], [rights], 0, self._path)
        finally:
            os.close(descriptor)
