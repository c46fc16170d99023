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
"""Bytes that a writable pipe accepts at once."""
_MOST_KEPT = 64 * 1024 * 1024
"""Maximum buffered bytes for a reader. Further output is lost."""


class Output(io.FileIO):
    """Writes to a descriptor without blocking, and buffers the rest."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.failure: OSError | None = None
        """Why output was lost."""
        self._kept = bytearray()
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)

    def write(self, data: "ReadableBuffer", /) -> int:
        """Accept all data, and raise no errors."""
        with memoryview(data) as view:
            if len(self._kept) < _MOST_KEPT:
                self._kept += view
            size = view.nbytes
        self.pass_on(wait=False)
        return size

    def pass_on(self, *, wait: bool) -> None:
        """Write buffered data. Without ``wait``, write only as much as the descriptor accepts now."""
        while self._kept and self._writable.poll(None if wait else 0):
            try:
                del self._kept[: os.write(self.fileno(), self._kept[:_PIECE])]
            except BlockingIOError:  # another process has filled the pipe
                if not wait:
                    return
            except OSError as error:
                self.failure = error
                self._kept.clear()


@contextlib.contextmanager
def steady() -> Iterator[None]:
    """Make the standard streams safe while the block runs, then flush them.

    1. Open closed descriptors from 0 to 2 on ``/dev/null``.
    2. Closed input becomes empty input. Output never blocks or raises.
    3. Run the block.
    4. Write the buffered output as fast as the readers accept it, also if the block raises.
    5. Report lost output on stderr, because an incomplete report must not look complete.
    6. Restore the previous streams.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    # 1. Before other files are opened, which would get these numbers.
    _open_missing()
    # 2. Python sets a stream to None if it was closed at startup.
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115  for as long as the process
    outputs = [sys.stdout, sys.stderr] = _steady(sys.stdout), _steady(sys.stderr)
    try:
        # 3.
        yield
    finally:
        # 4. The lock is already released, so a waiting pager delays no other process.
        for stream in outputs:
            _hand_over(stream)
        # 5.
        _report_incomplete_output(*outputs)
        # 6.
        sys.stdin, sys.stdout, sys.stderr = before


def _open_missing() -> None:
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the smallest free number, which is this one


def _steady(stream: TextIO | None) -> TextIO:
    """Return a stream on ``Output``. A stream that is not of the process (such as in tests) stays unchanged."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if type(stream) is not io.TextIOWrapper:
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(Output(stream.fileno())),
        stream.encoding,
        "backslashreplace",  # characters outside the locale cause no error either
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _hand_over(stream: TextIO) -> None:
    stream.flush()
    if (output := _output_of(stream)) is not None:
        with contextlib.suppress(KeyboardInterrupt):  # the user may interrupt the wait for a reader
            output.pass_on(wait=True)


def _report_incomplete_output(stdout: TextIO, stderr: TextIO) -> None:
    """Report incomplete output, unless its reader has closed it."""
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
    """The note that this process has begun a run. ``path`` is empty if no launcher counts notes."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def ended(self, status: int) -> None:
        """Remove the note, unless the status is that of a bug. Errors are ignored."""
        if self.path and status != ExitStatus.BUG:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def take_note() -> Note:
    """Return the note of this process, and hide it from child processes."""
    return Note(os.environ.pop(_PLACE, ""))
