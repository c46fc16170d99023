"""Regular expressions that come from outside, with an end.

* One operation takes at most ``TIME_LIMIT`` of processor time, whatever its pattern: ``(a+)+$`` on forty letters would
  otherwise take years, in one step that no budget of steps can interrupt.
* A short text is searched here, under a timer: Python looks for signals while it matches. It may not do so for seconds
  on a long text, and never does in other threads than the main one, so these are searched in a child process.
* Stars in the names of files need neither: they become an expression without backtracking.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

from hiera.errors import LimitError
from hiera.limits import meter

TIME_LIMIT: Final = 1.0
"""Seconds of processor time for one operation."""

_AGAIN: Final = 0.05  # seconds of processor time until the timer rings again
_SHORT: Final = 10_000  # characters; a pattern that is quadratic in them takes a twentieth of a second
_SHOWN: Final = 60  # characters of a pattern in a message

_Answer = TypeVar("_Answer")


def bounded(pattern: re.Pattern[str], text: str, operation: Callable[[], _Answer]) -> _Answer:
    """``operation()``, which matches ``pattern`` with ``text`` and does nothing else.

    Its answer, and what it raises, may come from a child process: plain values and exceptions with plain arguments.
    Raises LimitError when it takes too long.
    """
    return _bounded(text, operation, lambda: _quoted(pattern.pattern))


def is_found(pattern: re.Pattern[str], text: str) -> bool:
    """Whether ``pattern`` fits somewhere in ``text``; raises LimitError."""
    return bounded(pattern, text, lambda: pattern.search(text) is not None)


def find_first(patterns: Sequence[re.Pattern[str]], text: str) -> int | None:
    """Which of the patterns is the first that fits somewhere in ``text``; they share the time of one.

    Raises LimitError.
    """

    def search() -> int | None:
        return next((number for number, pattern in enumerate(patterns) if pattern.search(text)), None)

    return _bounded(text, search, lambda: f"one of {len(patterns)} patterns") if patterns else None


def starred(pieces: Iterable[str | None]) -> str:
    """The expression for ``pieces`` in a row, of which each None is a star: any text.

    The others are expressions of a fixed length. The first place where the pieces behind a star fit is as good as any
    later one, so the search never has to come back to it, and takes no longer the more stars there are.
    """
    fixed = [""]
    for piece in pieces:
        if piece is None:
            fixed.append("")
        else:
            fixed[-1] += piece
    first, *others = fixed
    between = "".join(f"(?>.*?{piece})" for piece in others[:-1] if piece)
    return first + between + (f".*{others[-1]}" if others else "")


class _TooLongError(Exception):
    """The time is over."""


def _bounded(text: str, operation: Callable[[], _Answer], what: Callable[[], str]) -> _Answer:
    try:
        if len(text) <= _SHORT and threading.current_thread() is threading.main_thread():
            return _under_timer(operation)
        return _from_child(operation)
    except _TooLongError:
        sentence = f"took more than {TIME_LIMIT:g} s on {len(text)} characters"
        raise LimitError("", f"{what()} {sentence}") from None


def _quoted(pattern: str) -> str:
    if meter.secret:  # it may have been made from one
        return "a pattern"
    return f"pattern {pattern if len(pattern) <= _SHOWN else pattern[:_SHOWN] + '…'!r}"


def _under_timer(operation: Callable[[], _Answer]) -> _Answer:
    """``operation()``, or _TooLongError when it takes too long; the timer and handler of before come back."""
    running = True

    def ring(_: int, frame: FrameType | None) -> None:
        if running and _is_ours(frame, operation):
            raise _TooLongError

    handler = signal.signal(signal.SIGVTALRM, ring)
    before = signal.setitimer(signal.ITIMER_VIRTUAL, TIME_LIMIT, _AGAIN)
    try:
        try:
            return operation()
        finally:
            # A signal between here and the next line must not keep the timer from being stopped.
            running = False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, *before)
        signal.signal(signal.SIGVTALRM, handler)


def _is_ours(frame: FrameType | None, operation: Callable[[], object]) -> bool:
    """Whether matching was interrupted, or what is around it; and not, say, what the garbage collector has called.

    An exception there may be lost, or leave behind what nobody cleans up; the timer rings again.
    """
    return frame is not None and (
        frame.f_code is getattr(operation, "__code__", None)
        or frame.f_globals.get("__name__", "").startswith("hiera.")
    )


def _from_child(operation: Callable[[], _Answer]) -> _Answer:
    """The answer of ``operation`` in a copy of this process, which the kernel ends when its time is over."""
    import pickle  # long texts are rare

    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Of forking beside threads: the child does nothing that other threads may hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _answer(operation, writer)
    try:
        os.close(writer)
        with open(reader, "rb") as stream:
            answer = stream.read()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(child, 0)
    if not answer:
        _raise_end(status)
    value, error = pickle.loads(answer)  # noqa: S301  from a copy of ourselves
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return]  # what operation returns


def _answer(operation: Callable[[], Any], writer: int) -> NoReturn:
    """In the child: write the answer, or end by the signal of the timer."""
    import pickle

    try:
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_VIRTUAL, TIME_LIMIT)
        try:
            answer = pickle.dumps((operation(), None))
        except Exception as error:  # noqa: BLE001  raised again in the parent
            answer = pickle.dumps((None, error))
        with open(writer, "wb") as stream:
            stream.write(answer)
    finally:
        os._exit(0)  # nothing of the parent's is flushed, removed or closed here


def _raise_end(status: int) -> NoReturn:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGVTALRM:
        raise _TooLongError
    raise LimitError(
        "", "a regular expression could not be searched for: its process ended without an answer"
    )
