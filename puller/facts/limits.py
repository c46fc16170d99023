"""Bounded time for sources that can hang: a dead file server, a name service that does not answer.

* The caller goes on after the limit, whatever system call holds the callee; signals cannot promise that.
* A call that came too late has no effect: its result is dropped, and its thread ends with the process.
"""

from __future__ import annotations

# Not ``threading``: it costs as much to import as most groups of facts take to gather.
import _thread

TYPE_CHECKING = False  # as in ``typing``, whose import would be half the time of a small lookup
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LIMIT = 5.0
"""Seconds that one source may take, unless the caller says otherwise."""


def within(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)``; raises what it raises, and ``TimeoutError`` after so many ``seconds``."""
    done = _thread.allocate_lock()
    done.acquire()
    results: list[Any] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function(*arguments))
        except BaseException as error:  # noqa: BLE001  it is raised again, in the thread of the caller
            errors.append(error)
        finally:
            done.release()

    _thread.start_new_thread(call, ())
    if not done.acquire(timeout=seconds):
        raise TimeoutError(f"no answer within {seconds:g} s")
    if errors:
        raise errors[0]
    return results[0]
