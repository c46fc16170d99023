"""Bounded time for sources that can hang: a dead file server, a name service that does not answer.

* The caller goes on after the limit, whatever system call holds the callee; signals cannot promise that.
* A call that came too late has no effect: its result is dropped, and its thread ends with the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bundles.deadline import Deadline, DeadlineError, aside
from puller.system import signals

LIMIT = 5.0
"""Seconds that one source may take, unless the caller says otherwise."""


def within(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)``; raises what it raises, and ``TimeoutError`` after so many ``seconds``."""
    try:
        return aside(lambda: function(*arguments), Deadline(seconds, signals.check))
    except DeadlineError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
