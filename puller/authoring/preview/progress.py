"""Progress of a long preview: one line on stderr, where somebody watches, which is gone when it is done."""

import contextlib
import sys
import time
from collections.abc import Iterator

from puller.authoring.preview.machines import Machine, Machines
from puller.values.colour import can_redraw

_CLEAR_LINE = "\r\x1b[K"
_SECONDS = 0.5
"""Between two lines, and before the first."""


@contextlib.contextmanager
def watched_on_a_terminal(machines: Machines) -> Iterator[Machines]:
    """Machines, counted on stderr when that is a terminal."""
    if not can_redraw(sys.stderr):
        yield machines
        return
    try:
        yield _Counted(machines)
    finally:  # an error is told on a line of its own
        _show(_CLEAR_LINE)


class _Counted:
    """Machines that are counted while somebody walks through them."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def __iter__(self) -> Iterator[Machine]:
        shown = time.monotonic()
        for number, machine in enumerate(self._machines, 1):
            yield machine
            if time.monotonic() - shown >= _SECONDS:
                shown = time.monotonic()
                _show(f"{_CLEAR_LINE}machine {number}")


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
