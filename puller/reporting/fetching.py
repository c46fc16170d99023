"""Progress of transfers for people: a line on a terminal, two log entries, and a record for ``puller status``.

* On a terminal, one line on stderr is overwritten and finally erased. Pipes and the journal get no progress line.
* The log has an entry at the beginning and one at the end of a large or slow transfer. *Fetched* means complete and
  verified. A failed transfer has only its error.
* Only the owner can read the record, as for reports. It is valid only while its run is active.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

import msgspec

from bundles.progress import Transfer
from foundation.quantities import size_text
from puller.reporting.run_log import Log
from puller.state import Directories, decode, read_state, write_state
from puller.values.colour import can_redraw
from puller.values.foreign_text import visible

_LARGE = 10_000_000
"""Size in bytes of a transfer that is logged at once."""
_SLOW = 2.0
"""Seconds after which the log and the terminal also show a small transfer."""
_PAUSE_OF_LINES = 0.2
_PAUSE_OF_RECORDS = 1.0
_CLEAR = "\r\x1b[K"


class Record(msgspec.Struct, frozen=True, tag_field="format", tag=1):
    """The current transfer of a run. Sizes are in bytes, ``rate`` in bytes per second, ``left`` in seconds."""

    process: int
    what: str
    doing: str
    have: int
    size: int | None
    rate: float | None
    left: float | None

    def __str__(self) -> str:
        return line_of(self.doing, self.what, self.have, self.size, self.rate, self.left)


def line_of(
    doing: str, what: str, have: int, size: int | None, rate: float | None, left: float | None
) -> str:
    """Return the text of a transfer: ``fetching web 1.5.0: 312.4 MB of 701.2 MB, 24.1 MB/s, 16 s left``."""
    pieces = [f"{doing} {visible(what)}: {size_text(have)}" + (f" of {size_text(size)}" if size else "")]
    if rate is not None:
        pieces.append(f"{size_text(rate)}/s")
    if left is not None:
        pieces.append(f"{_time(left)} left")
    return ", ".join(pieces)


def _time(seconds: float) -> str:
    """Return a duration as ``16 s``, ``4 min`` or ``3 h``, rounded up, because *0 s left* would mean complete."""
    if seconds <= 99:
        return f"{int(seconds) + 1} s"
    return f"{int(seconds / 60) + 1} min" if seconds <= 99 * 60 else f"{int(seconds / 3600) + 1} h"


class Fetching:
    """A watcher (``bundles.progress.Watcher``) for a command.

    ``log`` gets the entries, ``directories`` contains the record. Either may be ``None``.
    """

    def __init__(
        self,
        log: Log | None = None,
        directories: Directories | None = None,
        terminal: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._directories = directories
        stream = terminal or sys.stderr
        self._terminal = stream if can_redraw(stream) else None
        self._clock = clock
        self._transfer: Transfer | None = None
        self._began = self._line_at = self._record_at = 0.0
        self._is_shown = self._is_recorded = self._has_line = False

    def moved(self, transfer: Transfer) -> None:
        """See ``Watcher``."""
        now = self._clock()
        if transfer is not self._transfer:
            self._transfer, self._began, self._is_shown = transfer, now, False
        if not self._is_shown and transfer.passed and self._is_worth_showing(transfer, now):
            self._is_shown = True
            if not transfer.announced:
                self._write(f"{transfer.what}: {transfer.doing} {_amount(transfer)}")
        if self._is_shown and now - self._line_at >= _PAUSE_OF_LINES:
            self._line_at = now
            self._show(transfer)
        if self._is_shown and now - self._record_at >= _PAUSE_OF_RECORDS:
            self._record_at = now
            self._record(transfer)

    def _is_worth_showing(self, transfer: Transfer, now: float) -> bool:
        return (transfer.size or 0) >= _LARGE or now - self._began >= _SLOW

    def ended(self, transfer: Transfer, *, well: bool) -> None:
        """See ``Watcher``."""
        self._clear()
        if well and transfer.passed and self._log is not None and self._log.terminal is not None:
            self._log.terminal.fetched(transfer.what, transfer.passed)
        elif well and transfer.passed and (self._is_shown or transfer.announced):
            self._write(f"{transfer.what}: {_result(transfer)}")
        if self._is_recorded and self._directories is not None:
            self._is_recorded = False
            with contextlib.suppress(OSError):
                self._directories.fetching.unlink(missing_ok=True)
        self._transfer = None

    def _write(self, sentence: str) -> None:
        self._clear()
        if self._log is not None:
            self._log.notice(sentence)

    def _show(self, transfer: Transfer) -> None:
        if self._terminal is None:
            return
        text = str(_record_of(transfer))
        with contextlib.suppress(OSError, ValueError):
            width = os.get_terminal_size(self._terminal.fileno()).columns
            text = text[: width - 1] if width else text
        self._terminal.write(f"{_CLEAR}{text}")
        self._terminal.flush()
        self._has_line = True

    def _clear(self) -> None:
        if self._terminal is not None and self._has_line:
            self._terminal.write(_CLEAR)
            self._terminal.flush()
        self._has_line = False

    def _record(self, transfer: Transfer) -> None:
        """Write the record. Errors are ignored, because a run does not depend on it."""
        if self._directories is not None:
            with contextlib.suppress(OSError):
                data = msgspec.json.encode(_record_of(transfer))
                write_state(self._directories.fetching, data, durable=False)
                self._is_recorded = True


def _record_of(transfer: Transfer) -> Record:
    return Record(
        process=os.getpid(),
        what=transfer.what,
        doing=transfer.doing,
        have=transfer.have,
        size=transfer.size,
        rate=transfer.rate,
        left=transfer.left,
    )


def _amount(transfer: Transfer) -> str:
    size = "missing files" if transfer.size is None else size_text(transfer.size)
    return f"{size}, {size_text(transfer.held)} already downloaded" if transfer.held > 0 else size


def _result(transfer: Transfer) -> str:
    rate = f", {size_text(transfer.rate)}/s" if transfer.rate else ""
    return f"{transfer.done} {size_text(transfer.passed)} in {transfer.seconds:.1f} s{rate}"


def load_fetching(directories: Directories, process: int) -> Record | None:
    """Return the current transfer of the run in ``process``, or ``None`` if it is unknown."""
    try:
        record = decode(read_state(directories.fetching), Record)
    except (OSError, ValueError):
        return None
    return record if record.process == process else None
