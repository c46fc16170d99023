"""Deadlines, and work that is abandoned when its deadline expires.

* A deadline is a point in time with a ``check``, which is called while waiting and may raise an error to end the wait.
* Blocking library code (name resolution, connections, TLS, sockets) runs in another thread, which is abandoned when its
  time is over. Exceptions are never injected into such code: an exception of a signal handler between a lock and the
  block that releases it would leave the lock taken.
"""

from __future__ import annotations

import _thread  # not ``threading``, which takes longer to import than most calls to make
import contextlib
import errno
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    _Answer = TypeVar("_Answer")

_LOOK = 0.1  # seconds between two checks


class DeadlineError(TimeoutError):
    """The deadline has expired."""


def _go_on() -> None:
    """Never end the wait early. The default ``check``."""


class Deadline:
    """A point in time, ``seconds`` from now. ``check`` raises an error to end the wait earlier."""

    def __init__(self, seconds: float, check: Callable[[], None] = _go_on) -> None:
        self.seconds = seconds
        self.check = check
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Return the remaining seconds, at least 0."""
        return max(self._end - time.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        return not self.left

    def at_most(self, seconds: float) -> float:
        """Return ``seconds``, at most the remaining time. Raises ``DeadlineError``, and the errors of ``check``."""
        self.check()
        remaining = self.left
        if not remaining:
            raise DeadlineError("the time limit was exceeded")
        return min(seconds, remaining)

    def verify(self) -> None:
        """Raise like ``at_most`` if the time is over."""
        self.at_most(0)

    def within(self, seconds: float) -> Deadline:
        """Return a deadline after so many seconds, or at the end of this deadline if that is earlier."""
        return Deadline(min(seconds, self.left), self.check)

    @contextlib.contextmanager
    def share(self, parts: int) -> Iterator[None]:
        """Shorten this deadline to one of ``parts`` equal parts of the remaining time while the block runs."""
        end, self._end = self._end, time.monotonic() + self.left / parts
        try:
            yield
        finally:
            self._end = end

    def pause(self, seconds: float) -> None:
        """Wait. Raises like ``at_most``."""
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            time.sleep(self.at_most(min(remaining, _LOOK)))

    def cut(self) -> None:
        """Let the deadline expire now."""
        self._end = 0.0


_works_alone = False


def work_alone() -> None:
    """Let ``aside`` work without threads in this process from now on.

    A worker must not start threads. The agent ends a worker at the deadline, even if it is blocked.
    """
    global _works_alone  # per process, like the permission to start threads
    _works_alone = True


def aside(work: Callable[[], _Answer], deadline: Deadline) -> _Answer:
    """Run ``work`` in another thread, and return its result or raise its error.

    Raises ``DeadlineError``, and the errors of the deadline's ``check``. Then ``work`` is abandoned: it ends when it
    next checks the deadline, which has expired, and its result is dropped.
    """
    if _works_alone:
        deadline.verify()
        return work()
    done = _thread.allocate_lock()
    done.acquire()
    answers: list[_Answer] = []
    errors: list[BaseException] = []

    def attend() -> None:
        try:
            answers.append(work())
        except BaseException as error:  # noqa: BLE001  it is raised again, in the thread of the caller
            errors.append(error)
        finally:
            done.release()

    try:
        _thread.start_new_thread(attend, ())
    except RuntimeError:
        raise OSError(errno.EAGAIN, "a thread cannot be started") from None
    try:
        while not done.acquire(timeout=deadline.at_most(_LOOK)):
            pass
    except BaseException:
        deadline.cut()
        raise
    if errors:
        raise errors.pop()
    return answers[0]
