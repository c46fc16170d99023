"""How long something may wait, and how it is left.

* A deadline is a point in time, and a question that is asked until then: its ``check`` raises what ends the wait.
* What blocks in code that is not ours (names that are resolved, connections, TLS, sockets) is done aside, in a thread
  that is left behind when its time is over. Nothing is ever raised into such code: an exception of a signal's handler
  may come between a lock and the block that releases it, and then the lock stays taken.
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

_LOOK = 0.1  # seconds between two looks at whether to go on


class DeadlineError(TimeoutError):
    """The time is over."""


def _go_on() -> None:
    """The check of a deadline that nothing ends before its time."""


class Deadline:
    """A point in time, ``seconds`` from now; ``check`` raises when the wait is to end before."""

    def __init__(self, seconds: float, check: Callable[[], None] = _go_on) -> None:
        self.seconds = seconds
        self.check = check
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds; not less than 0."""
        return max(self._end - time.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        return not self.left

    def at_most(self, seconds: float) -> float:
        """``seconds``, or less when the end is nearer; raises ``DeadlineError``, and what ``check`` raises."""
        self.check()
        left = self.left
        if not left:
            raise DeadlineError("the time limit is over")
        return min(seconds, left)

    def verify(self) -> None:
        """Raise as ``at_most`` when there is no time left."""
        self.at_most(0)

    def within(self, seconds: float) -> Deadline:
        """Another that is over after so many seconds, or where this one is over now if that is earlier."""
        return Deadline(min(seconds, self.left), self.check)

    @contextlib.contextmanager
    def share(self, parts: int) -> Iterator[None]:
        """While the block runs, this is over when one of so many equal parts of what is left has passed."""
        end, self._end = self._end, time.monotonic() + self.left / parts
        try:
            yield
        finally:
            self._end = end

    def pause(self, seconds: float) -> None:
        """Let time pass; raises as ``at_most``."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(self.at_most(min(left, _LOOK)))

    def cut(self) -> None:
        """Let the deadline be over now."""
        self._end = 0.0


_works_alone = False


def work_alone() -> None:
    """Let ``aside`` start no threads in this process from now on.

    A worker may start none. The agent ends a worker at the deadline, whatever blocks it.
    """
    global _works_alone  # of the process, as is the right to start threads
    _works_alone = True


def aside(work: Callable[[], _Answer], deadline: Deadline) -> _Answer:
    """Do ``work`` in another thread, and give or raise as it does.

    Raises ``DeadlineError``, and what the deadline's ``check`` raises. Then ``work`` is left behind: the deadline is
    over, so that it ends when it next asks, and what it still gives is dropped.
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
        raise OSError(errno.EAGAIN, "no thread can be started") from None
    try:
        while not done.acquire(timeout=deadline.at_most(_LOOK)):
            pass
    except BaseException:
        deadline.cut()
        raise
    if errors:
        raise errors.pop()
    return answers[0]
