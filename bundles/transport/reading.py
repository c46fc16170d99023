"""Limits of one transfer, kept below the HTTP library.

* Every read from the socket asks the deadline first, so that a body that trickles and a header that never ends are both
  over at its end. The library's own limit is only for the silence between two bytes.
* A transfer that is slower than a modem has stalled. A large one at any better pace has all the time that there is.
* Reads of a proxy's answer count as well.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from bundles.deadline import Deadline

SLOWEST = 1000
"""Bytes a second, on average over the longest silence that is allowed."""


class StalledError(TimeoutError):
    """Bytes come, but next to none."""


class Reading:
    """The limits on the reads of one transfer; ``silence`` is seconds without a byte."""

    def __init__(self, deadline: Deadline, silence: float) -> None:
        self.deadline = deadline
        self._silence = silence
        self.ask()

    def ask(self) -> None:
        """A request is sent: its answer may take as long to begin as a silence may last."""
        self._has_begun = False
        self._bytes = 0
        self._waited = 0.0

    def read(self, sock: socket.socket, receive: Callable[[Any], int | None], buffer: Any) -> int | None:
        """``receive`` something of ``sock`` into ``buffer``; raises ``TimeoutError``, and what the check raises."""
        sock.settimeout(self.deadline.at_most(self._silence))
        began = time.monotonic()
        count = receive(buffer)
        # Up to the first byte it is the server that takes its time, and not the line.
        if self._has_begun:
            self._account(count or 0, time.monotonic() - began)
        self._has_begun = True
        return count

    def _account(self, count: int, waited: float) -> None:
        self._bytes += count
        self._waited += waited
        if self._waited < self._silence:
            return
        # At the end of a body (no bytes) there is nothing to stall any more.
        if count and self._bytes < SLOWEST * self._silence:
            raise StalledError(f"less than {SLOWEST} bytes a second for {self._silence:g} s")
        self._bytes, self._waited = 0, 0.0
