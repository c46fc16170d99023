"""Regular expressions of authors, with limits.

* An operation takes at most ``TIME_LIMIT`` of processor time, and a few seconds in the worst case. Without a limit,
  ``(a+)+$`` takes years on forty letters.
* A timer interrupts the operation. Python checks for signals only after some thousand steps, and one step of ``[ab]*``
  passes over the whole text. So patterns with a repetition that can begin anywhere are rejected for texts longer than
  ``REPETITION_LIMIT``.
* Signals arrive in the main thread only, so this module must be used in the main thread.
* Globs require neither limit. ``starred`` makes an expression without backtracking.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Final, TypeVar

from hiera.errors import LimitError
from hiera.limits import meter

TIME_LIMIT: Final = 1.0
"""Seconds of processor time for one operation."""

REPETITION_LIMIT: Final = 50_000
"""Maximum length of texts for patterns with ``*``, ``+`` or ``{``. At this length, ``[ab]*c`` takes four seconds."""

_AGAIN: Final = 0.05  # seconds of processor time until the timer rings again
_SHOWN: Final = 60  # characters of a pattern in a message

_Answer = TypeVar("_Answer")


def bounded(pattern: re.Pattern[str], text: str, operation: Callable[[], _Answer]) -> _Answer:
    """Return the result of ``operation``, which matches ``pattern`` with ``text``. Raise ``LimitError``."""
    return _bounded([pattern], text, operation, lambda: _quoted(pattern.pattern))


def is_found(pattern: re.Pattern[str], text: str) -> bool:
    """Return whether ``pattern`` matches somewhere in ``text``. Raises LimitError."""
    return bounded(pattern, text, lambda: pattern.search(text) is not None)


def find_first(patterns: Sequence[re.Pattern[str]], text: str) -> int | None:
    """Return the index of the first pattern that matches somewhere in ``text``. All patterns share one time limit.

    Raises LimitError.
    """

    def search() -> int | None:
        return next((number for number, pattern in enumerate(patterns) if pattern.search(text)), None)

    return _bounded(patterns, text, search, lambda: f"one of {len(patterns)} patterns") if patterns else None


def starred(pieces: Iterable[str | None]) -> str:
    """Return the expression for ``pieces`` in a row. Each ``None`` is a star, which matches any text.

    Other pieces are expressions of a fixed length. The first match of the pieces after a star is as good as any later
    match, so the search never backtracks, and more stars do not slow it down.
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
    """The operation exceeded its time limit."""


def _bounded(
    patterns: Sequence[re.Pattern[str]],
    text: str,
    operation: Callable[[], _Answer],
    description: Callable[[], str],
) -> _Answer:
    if len(text) > REPETITION_LIMIT and any(_repeats_anywhere(pattern) for pattern in patterns):
        limits = f"at most {REPETITION_LIMIT} are possible with *, + or {{ unless it begins with ^"
        raise LimitError("", f"{description()} is tried on {len(text)} characters, {limits}")
    try:
        return _under_timer(operation)
    except _TooLongError:
        sentence = f"took more than {TIME_LIMIT:g} s on {len(text)} characters"
        raise LimitError("", f"{description()} {sentence}") from None


def _repeats_anywhere(pattern: re.Pattern[str]) -> bool:
    """Return whether a repetition may begin at each character of a text, which takes quadratic time."""
    is_anchored = pattern.pattern.startswith("^") and "|" not in pattern.pattern
    if is_anchored and not pattern.flags & re.MULTILINE:
        return False
    return not {"*", "+", "{"}.isdisjoint(pattern.pattern)


def _quoted(pattern: str) -> str:
    if meter.depth and meter.secret:  # the pattern may come from a secret of this evaluation
        return "a pattern"
    if len(pattern) > _SHOWN:  # a mask would not find a part of a secret
        return f"a pattern of {len(pattern)} characters"
    return f"pattern {pattern!r}"


def _under_timer(operation: Callable[[], _Answer]) -> _Answer:
    """Return ``operation()``, or raise _TooLongError after a timeout. The old timer and handler are restored."""
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
            # A signal between here and the next line must not prevent stopping the timer.
            running = False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, *before)
        signal.signal(signal.SIGVTALRM, handler)


def _is_ours(frame: FrameType | None, operation: Callable[[], object]) -> bool:
    """Return whether the signal interrupted matching or its caller, and not, for example, the garbage collector.

    An exception in other code may be lost or leave leftovers. The timer rings again.
    """
    return frame is not None and (
        frame.f_code is getattr(operation, "__code__", None)
        or frame.f_globals.get("__name__", "").startswith("hiera.")
    )
