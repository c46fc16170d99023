"""Whether the main process of a unit keeps running, or systemd restarts it again and again.

* systemd reports *active* as soon as a process was started. A process that ends soon after that is restarted by
  ``Restart=``, and the unit is *active* again at most moments.
* So the end of a young process is awaited as an event, for a bounded time. An older process costs nothing.
"""

import os
import select
import time
from collections.abc import Mapping

WATCH = 3.0
"""Seconds that a process must run before its unit counts as running."""

PROPERTIES = (
    "ExecMainCode", "ExecMainStartTimestampMonotonic", "ExecMainStatus", "MainPID", "NRestarts", "SubState",
)  # fmt: skip
"""The properties of a unit that these functions read."""

_CODES = {"1": "exit code", "2": "signal", "3": "signal"}  # CLD_EXITED, CLD_KILLED, CLD_DUMPED: wait(2)


def number(fields: Mapping[str, str], name: str) -> int:
    """Return a property as a number. 0 if systemd is too old to have it."""
    text = fields.get(name, "")
    return int(text) if (text.isascii() and text.isdecimal()) else 0


def is_restarting(fields: Mapping[str, str]) -> bool:
    """Return whether the process has ended and systemd is about to start it again."""
    return fields.get("SubState", "").startswith("auto-restart")


def last_exit(fields: Mapping[str, str]) -> str:
    """Return how the last process ended: ``exit code 3``, ``signal 9``. Empty if it runs or never ran."""
    word = _CODES.get(fields.get("ExecMainCode", ""))
    return f"{word} {fields.get('ExecMainStatus', '')}" if word else ""


def age(fields: Mapping[str, str]) -> float | None:
    """Return for how many seconds the main process has been running. ``None`` without a main process."""
    since = number(fields, "ExecMainStartTimestampMonotonic")
    return time.monotonic() - since / 1e6 if since and number(fields, "MainPID") else None


def ends_early(fields: Mapping[str, str], *, at_most: float = WATCH) -> bool:
    """Return whether a young main process ends before it is old enough. Waits for that ``at_most`` so many seconds."""
    seconds = age(fields)
    if seconds is None or seconds >= WATCH:
        return False
    return ends_within(number(fields, "MainPID"), min(WATCH - seconds, at_most))


def ends_within(pid: int, seconds: float) -> bool:
    """Wait until a process ends. Return ``False`` if it still runs after so many seconds, or cannot be watched."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:  # an old kernel, or a process of another user namespace
        return False
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(descriptor)
