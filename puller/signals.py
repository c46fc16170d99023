"""SIGTERM and SIGINT: at once while nothing is being changed, between two resources while something is."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from puller.exit_status import ExitStatus

_STATUS = {signal.SIGTERM: ExitStatus.TERMINATED, signal.SIGINT: ExitStatus.INTERRUPTED}


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
