"""SIGTERM and SIGINT: at once while nothing is being changed, between two resources while something is.

What the parent of this process has done to its signals is undone first.
"""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from puller.exit_status import ExitStatus

_STATUS = {signal.SIGTERM: ExitStatus.TERMINATED, signal.SIGINT: ExitStatus.INTERRUPTED}


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
    """Turns signals into ``Stopped``, or into a reason that the engine asks for between resources."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._deferring = False

    @property
    def reason(self) -> str:
        """Why to stop before the next resource; empty to go on."""
        return f"stopped by {self.received.name}" if self.received else ""

    @property
    def exit_status(self) -> ExitStatus:
        """What a stopped run ends with; ``OK`` when nothing asked it to stop."""
        return _STATUS[self.received] if self.received else ExitStatus.OK

    @contextlib.contextmanager
    def handled(self) -> Iterator["StopRequests"]:
        """Listen to both signals while the block runs."""
        before = {number: signal.signal(number, self._receive) for number in _STATUS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """While the block runs a signal is only noted: what is being changed is brought to its end. May be nested."""
        before, self._deferring = self._deferring, True
        try:
            yield
        finally:
            self._deferring = before

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.received = signal.Signals(number)
        if not self._deferring:
            raise Stopped(self.received)
