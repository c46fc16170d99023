"""SIGTERM and SIGINT: at once while nothing is being changed, between two resources while something is.

* A handler only notes what came. It never raises: it may have interrupted anybody's code between a lock and the block
  that releases it. Whoever waits, works through a list, or is about to change something asks (``check``).
* While something is being changed, the resource at work is finished. Only downloads are ended, for they go on in the
  next run, and commands when a second signal asks for that.
* What the parent of this process has done to its signals is undone first.
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
    """Undo what a parent may have left, as daemon(7) advises.

    Where SIGCHLD is ignored the kernel collects our commands, and each seems to end with exit code 0. Where others are
    blocked no stop arrives, nor the end of a regular expression's time. What is ignored otherwise is so on purpose, as
    by nohup.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class Stopped(BaseException):
    """A signal asked this process to stop. Not an ``Exception``, so that no handler of errors keeps it."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"stopped by {number.name}")
        self.exit_status = _STATUS[number]


class StopRequests:
    """Notes signals, and answers those who ask whether to stop."""

    listening: ClassVar[StopRequests | None] = None
    """Who notes the signals of this process now; for what is called from everywhere, such as commands."""

    def __init__(self, tell: Callable[[str], None] = lambda sentence: None) -> None:
        """``tell`` says a sentence to people, also from the handler of a signal."""
        self.received: signal.Signals | None = None
        self._at_work: object = ""
        self._tell = tell
        self._received_at = 0.0
        self._insists = False
        self._deferring = False

    @property
    def reason(self) -> str:
        """Why to stop before the next resource; empty to go on."""
        return f"stopped by {self.received.name}" if self.received else ""

    @property
    def exit_status(self) -> ExitStatus:
        """The exit status of a stopped run; ``OK`` when nothing asked it to stop."""
        return _STATUS[self.received] if self.received else ExitStatus.OK

    def check(self) -> None:
        """Raise ``Stopped`` when a signal has come, unless something is being changed."""
        if self.received and not self._deferring:
            raise Stopped(self.received)

    def check_download(self) -> None:
        """``check`` for a download: raises ``StoppedDownload`` while something is being changed."""
        self.check()
        if self.received:
            raise StoppedDownload(self.reason)

    def check_command(self) -> None:
        """``check`` for a command: raises ``StoppedCommand`` while something is being changed, at a second signal."""
        self.check()
        if self.received and self._insists:
            raise StoppedCommand(f"{self.reason}, and by a second signal")

    def attend(self, resource: object) -> None:
        """This is being looked at, and changed where it differs: what a signal that comes now has to wait for.

        ``str()`` of it names it for people, and is asked for when a signal comes.
        """
        self._at_work = resource

    @contextlib.contextmanager
    def handled(self) -> Iterator[Self]:
        """Listen to both signals while the block runs."""
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
        """While the block runs, what is being changed is brought to its end. May be nested."""
        before, self._deferring = self._deferring, True
        try:
            yield
        finally:
            self._deferring = before
            if not before:
                self._at_work = ""

    def _receive(self, number: int, frame: FrameType | None) -> None:
        """The handler: it notes, tells, and leaves the rest to those who ask."""
        del frame
        if self.received is None:
            self.received, self._received_at = signal.Signals(number), time.monotonic()
            if self._deferring and self._at_work:
                self._tell(
                    f"{self.reason}: finishing {self._at_work}; a second signal ends the commands that it runs"
                )
        elif time.monotonic() - self._received_at > _ONE_MOMENT:
            self._insist(number)

    def _insist(self, number: int) -> None:
        if not self._deferring:  # nothing is half done, and whatever holds us up does not ask
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._insists:
            self._insists = True
            self._tell(f"{self.reason}, and by a second signal: ending the commands of {self._at_work}")


def check() -> None:
    """Raise ``Stopped`` when this process is asked to stop, unless something is being changed."""
    if StopRequests.listening:
        StopRequests.listening.check()


def check_download() -> None:
    """As ``StopRequests.check_download``."""
    if StopRequests.listening:
        StopRequests.listening.check_download()


def check_command() -> None:
    """As ``StopRequests.check_command``."""
    if StopRequests.listening:
        StopRequests.listening.check_command()
