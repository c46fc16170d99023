"""Standard streams that cannot change the behaviour or the exit status of a command, and the note of the launcher.

* Output that cannot be written is lost, and the command continues: the reader has closed the pipe, the stream is
  closed or the disk is full.
* A slow reader (a pager, a stopped terminal) does not delay the command. The output is buffered and written after the
  work, when the lock is released.
* Descriptors 0 to 2 are always open. Otherwise a file that is opened later could get one of these numbers and receive
  the output.
* The launcher writes a note when a run begins. The run removes the note at its end.
"""

import contextlib
import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from puller.exit_status import ExitStatus

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_PIECE = select.PIPE_BUF
"""Bytes: a pipe that says that it can be written to takes so many at once."""
_MOST_KEPT = 64 * 1024 * 1024
"""Bytes that wait for a reader; what comes then is lost."""


class Output(io.FileIO):
    """Writes to a descriptor what it takes, as far as it does."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.failure: OSError | None = None
        """Why something was lost."""
        self._kept = bytearray()
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)

    def write(self, data: "ReadableBuffer", /) -> int:
        """Take all of it; raises nothing."""
        with memoryview(data) as view:
            if len(self._kept) < _MOST_KEPT:
                self._kept += view
            size = view.nbytes
        self.pass_on(wait=False)
        return size

    def pass_on(self, *, wait: bool) -> None:
        """Write what is kept; without ``wait`` only as much as is taken at once."""
        while self._kept and self._writable.poll(None if wait else 0):
            try:
                del self._kept[: os.write(self.fileno(), self._kept[:_PIECE])]
            except BlockingIOError:  # somebody else has filled it meanwhile
                if not wait:
                    return
            except OSError as error:
                self.failure = error
                self._kept.clear()


@contextlib.contextmanager
def steady() -> Iterator[None]:
    """While the block runs, the standard streams are as this module says; at its end everything is handed over.

    1. A descriptor from 0 to 2 that the parent has closed is opened on ``/dev/null``.
    2. Input that was closed is empty, and output takes all and waits for nobody.
    3. The block runs.
    4. Whatever it ended with, what is kept is handed over, as slowly as the readers take it.
    5. Loss is told on stderr: a report that is cut off must not pass for a whole one.
    6. The streams are the ones that were there before.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    # 1. Before anything is opened, or that file would get the number.
    _open_missing()
    # 2. Python has None in place of a stream that was closed when it began.
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115  for as long as the process
    outputs = [sys.stdout, sys.stderr] = _steady(sys.stdout), _steady(sys.stderr)
    try:
        # 3.
        yield
    finally:
        # 4. The lock is free by now, so a pager that waits holds up nobody else.
        for stream in outputs:
            _hand_over(stream)
        # 5.
        _tell_loss(*outputs)
        # 6.
        sys.stdin, sys.stdout, sys.stderr = before


def _open_missing() -> None:
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the smallest number that is free, which is this one


def _steady(stream: TextIO | None) -> TextIO:
    """A stream on ``Output``; one that is no stream of the process (a test's) stays as it is."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if type(stream) is not io.TextIOWrapper:
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(Output(stream.fileno())),
        stream.encoding,
        "backslashreplace",  # a letter that the locale does not have ends nothing, either
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _hand_over(stream: TextIO) -> None:
    stream.flush()
    if (output := _output_of(stream)) is not None:
        with contextlib.suppress(KeyboardInterrupt):  # who does not want to wait for a reader may say so
            output.pass_on(wait=True)


def _tell_loss(stdout: TextIO, stderr: TextIO) -> None:
    """Say that an output is not complete; who does not read it knows."""
    output = _output_of(stdout)
    if output and output.failure and output.failure.errno != errno.EPIPE:
        stderr.write(f"puller: standard output is not complete: {os.strerror(output.failure.errno or 0)}\n")
        _hand_over(stderr)


def _output_of(stream: TextIO) -> Output | None:
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, Output) else None


# The launcher's note that a run has begun. ``packaging/launcher/puller`` counts these notes. A run that was killed,
# that crashed Python or that ended with a bug leaves its note. After several such runs in a row, the launcher starts
# the previous version of Puller.

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
