"""SIGTERM and SIGINT: they stop Puller immediately, or after the current resource if a change is in progress.

* A handler only records the signal and never raises, because it may interrupt code between taking a lock and the block
  that releases it. Code that waits, iterates or is about to change something calls ``check``.
* During a change, the current resource is completed. Only downloads are aborted, because the next run resumes them, and
  commands after a second signal.
* Inherited signal settings are reset first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import ClassVar, Self

from puller.errors import StoppedCommand, StoppedDownload
from puller.exit_status import ExitStatus

_STATUS = {signal.SIGTERM: ExitStatus.TERMINATED, signal.SIGINT: ExitStatus.INTERRUPTED}
_ONE_MOMENT = 0.5  # seconds; timeout(1) sends its signal to the process and to its group


def reset_inherited() -> None:
    """Reset signal settings of the parent process, as daemon(7) advises.

    If SIGCHLD is ignored, the kernel reaps child processes, and each seems to end with exit code 0. If signals are
    blocked, stop requests and timeouts of regular expressions are lost. Other ignored signals are intentional, as with
    nohup.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class Stopped(BaseException):
    """A request to stop this process by a signal.

    Error handlers do not catch it, because it is not an ``Exception``.
    """

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"stopped by {number.name}")
        self.exit_status = _STATUS[number]


class StopRequests:
    """Records signals, and answers whether to stop."""

    listening: ClassVar[StopRequests | None] = None
    """The current listener of this process, for code without access to it, such as commands."""

    def __init__(self, tell: Callable[[str], None] = lambda sentence: None) -> None:
        """``tell`` prints a sentence for users, also from a signal handler."""
        self.received: signal.Signals | None = None
        self._at_work: object = ""
        self._tell = tell
        self._received_at = 0.0
        self._insists = False
        self._deferring = False

    @property
    def reason(self) -> str:
        """The reason to stop before the next resource, empty to continue."""
        return f"stopped by {self.received.name}" if self.received else ""

    @property
    def exit_status(self) -> ExitStatus:
        """The exit status of a stopped run, ``OK`` without a stop request."""
        return _STATUS[self.received] if self.received else ExitStatus.OK

    def check(self) -> None:
        """Raise ``Stopped`` after a signal, unless a change is in progress."""
        if self.received and not self._deferring:
            raise Stopped(self.received)

    def check_download(self) -> None:
        """Check like ``check``, for a download. Raises ``StoppedDownload`` during a change."""
        self.check()
        if self.received:
            raise StoppedDownload(self.reason)

    def check_command(self) -> None:
        """Check like ``check``, for a command. Raises ``StoppedCommand`` during a change, after a second signal."""
        self.check()
        if self.received and self._insists:
            raise StoppedCommand(f"{self.reason}, and by a second signal")

    def attend(self, resource: object) -> None:
        """Set the resource that a signal has to wait for. Its ``str()`` is called when a signal arrives."""
        self._at_work = resource

    @contextlib.contextmanager
    def handled(self) -> Iterator[Self]:
        """Handle both signals while the block runs."""
        before = {number: signal.signal(number, self._receive) for number in _STATUS}
        others, StopRequests.listening = StopRequests.listening, self
        try:
            yield self
        finally:
            StopRequests.listening = others
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer stops while the block runs, so that a change is completed. May be nested."""
        before, self._deferring = self._deferring, True
        try:
            yield
        finally:
            self._deferring = before
            if not before:
                self._at_work = ""

    def _receive(self, number: int, frame: FrameType | None) -> None:
        """Record the signal and report it. ``check`` does the rest."""
        del frame
        if self.received is None:
            self.received, self._received_at = signal.Signals(number), time.monotonic()
            if self._deferring and self._at_work:
                self._tell(f"{self.reason}: finishing {self._at_work}. A second signal ends its commands")
        elif time.monotonic() - self._received_at > _ONE_MOMENT:
            self._insist(number)

    def _insist(self, number: int) -> None:
        if not self._deferring:  # no change is in progress, and the current code does not call check
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._insists:
            self._insists = True
            self._tell(f"{self.reason}, and by a second signal: ending the commands of {self._at_work}")


def check() -> None:
    """Raise ``Stopped`` after a stop request, unless a change is in progress."""
    if StopRequests.listening:
        StopRequests.listening.check()


def check_download() -> None:
    """Call ``StopRequests.check_download`` of the listener."""
    if StopRequests.listening:
        StopRequests.listening.check_download()


def check_command() -> None:
    """Call ``StopRequests.check_command`` of the listener."""
    if StopRequests.listening:
        StopRequests.listening.check_command()
