"""The launcher's note that a run has begun, which the run takes away at its end.

``packaging/launcher/puller`` counts the runs that were begun. A version that starts, and of which several runs in a row
came to no end, gives way to the one before: a run that was killed, that ended the Python under it, or that ended with a
bug leaves the note in its place.
"""

import contextlib
import os

from puller.exit_status import ExitStatus

_PLACE = "PULLER_BEGUN"


class Note:
    """The note that this process has begun a run; ``path`` is empty where nobody counts."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def ended(self, status: int) -> None:
        """Take it away, unless the status is that of a bug; what cannot be taken away stays."""
        if self.path and status != ExitStatus.BUG:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def take_note() -> Note:
    """The note of this process, which the processes that it starts do not see."""
    return Note(os.environ.pop(_PLACE, ""))
