"""Progress of transfers: reported where bytes pass, and sent to a watcher. Notes of a refresh.

* A file that is downloaded or packed within ``transfer`` counts towards that transfer. Several files add up. Without a
  transfer, nothing is reported.
* By default there is no watcher. Watchers are called in the thread that moves the bytes, and must be fast.
* Notes are sentences for users. A plain ``str`` is a warning that requires an action.
* A `RoutineNote` reports an expected event that hosts cannot fix: another mirror has helped for some days, or the
  publisher has rotated keys. As warnings, such notes would affect the monitoring of the whole fleet at once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:

    class Watcher(Protocol):
        """Receiver of progress reports."""

        def moved(self, transfer: Transfer) -> None:
            """Called at the beginning, and whenever bytes have passed."""

        def ended(self, transfer: Transfer, *, well: bool) -> None:
            """Called once, when all is done or has failed."""

    class Relay(Protocol):
        """Forwards the start of files to another process."""

        def begin_file(self, name: str, held: int, of: int | None) -> None:
            """Receive the arguments of ``Transfer.begin_file``."""


_watcher: Watcher | None = None
_relay: Relay | None = None
_current: Transfer | None = None


class Transfer:
    """The transfer of an object such as a release or a file. Sizes are bytes, times are seconds."""

    def __init__(
        self,
        what: str,
        size: int | None = None,
        *,
        doing: str = "fetching",
        done: str = "fetched",
        announced: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``what`` is shown to users, and must not contain a password or the query of a URL.

        ``size`` is ``None`` if unknown. ``announced``: the log already mentions the start.
        """
        self.what = what
        self.doing = doing
        self.done = done
        self.announced = announced
        self.held = 0
        """Bytes from an earlier attempt, which are not fetched again."""
        self._size = size
        self._clock = clock
        self._began = self._last = clock()
        self._have = 0
        self._files: dict[str, int] = {}
        self._told_size: int | None = None

    @property
    def have(self) -> int:
        """Bytes that are available locally."""
        return self._have

    @property
    def passed(self) -> int:
        """Bytes that this transfer has received."""
        return max(self.have - self.held, 0)

    @property
    def size(self) -> int | None:
        """Total size in bytes: as declared, or for a single file as the server states."""
        return self._size if self._size is not None else self._told_size if len(self._files) < 2 else None

    @property
    def seconds(self) -> float:
        """Time from the start to the last received bytes."""
        return self._last - self._began

    @property
    def rate(self) -> float | None:
        """Average bytes per second, or ``None`` before the first bytes."""
        return self.passed / self.seconds if self.passed and self.seconds > 0 else None

    @property
    def left(self) -> float | None:
        """Estimated seconds until the end, or ``None`` if unknown."""
        if self.size is None or self.rate is None:
            return None
        return max(self.size - self.have, 0) / self.rate

    def expect(self, size: int) -> None:
        """Set the number of bytes still to come, in any files."""
        self._size = self._have + size

    def begin_file(self, name: str, held: int, of: int | None) -> None:
        """Begin a file with ``held`` local bytes and a total size of ``of`` bytes."""
        before = self._files.get(name, 0)
        self.held += held - before
        self._have += held - before
        self._files[name] = held
        self._told_size = of

    def note(self, name: str, have: int) -> None:
        """Set the number of local bytes of a file."""
        self.advance(have - self._files.get(name, 0))
        self._files[name] = have

    def advance(self, count: int) -> None:
        """Add a number of bytes of any file."""
        self._have += count
        self._last = self._clock()


@contextlib.contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Send progress reports to ``watcher`` while the block runs."""
    global _watcher  # one process has one terminal, one journal and one status
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


@contextlib.contextmanager
def transfer(
    what: str,
    size: int | None = None,
    *,
    doing: str = "fetching",
    done: str = "fetched",
    announced: bool = False,
) -> Iterator[Transfer]:
    """Count downloads towards a ``Transfer`` with these arguments while the block runs."""
    global _current  # downloads are sequential
    before, _current = _current, Transfer(what, size, doing=doing, done=done, announced=announced)
    mine, watcher, well = _current, _watcher, False
    try:
        if watcher is not None:
            watcher.moved(mine)
        yield mine
        well = True
    finally:
        _current = before
        if watcher is not None:
            watcher.ended(mine, well=well)


@contextlib.contextmanager
def relayed_to(relay: Relay) -> Iterator[None]:
    """Report the start of files to ``relay`` while the block runs."""
    global _relay  # as ``watched_by``
    before, _relay = _relay, relay
    try:
        yield
    finally:
        _relay = before


def expect(size: int) -> None:
    """Set the number of bytes still to come in the current transfer."""
    if _current is not None:
        _current.expect(size)


def begin_file(name: str, held: int, of: int | None) -> None:
    """Begin a file within the current transfer. See ``Transfer.begin_file``."""
    if _relay is not None:
        _relay.begin_file(name, held, of)
    if _current is not None:
        _current.begin_file(name, held, of)


def note(name: str, have: int) -> None:
    """Set the number of local bytes of a file."""
    if _current is not None:
        _current.note(name, have)
        _tell(_current)


def advance(count: int) -> None:
    """Add a number of bytes."""
    if _current is not None:
        _current.advance(count)
        _tell(_current)


def _tell(current: Transfer) -> None:
    if _watcher is not None:
        _watcher.moved(current)


class RoutineNote(str):
    """A note that needs no action."""

    __slots__ = ()
