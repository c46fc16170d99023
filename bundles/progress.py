"""How far something large is: noted where bytes pass, told to whoever watches.

* One place notes, whoever fetches or packs: a file that is downloaded within ``transfer`` belongs to that transfer, and
  several files in it add up. Outside of any nothing is told.
* Nobody watches by default. A watcher is told in the thread in which the bytes pass, and is to be quick.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:

    class Watcher(Protocol):
        """Somebody who wants to know."""

        def moved(self, transfer: Transfer) -> None:
            """Called at the beginning, and whenever bytes have passed."""

        def ended(self, transfer: Transfer, *, well: bool) -> None:
            """Called once, when all is done or has failed."""

    class Relay(Protocol):
        """Where another process notes what begins in this one."""

        def begin_file(self, name: str, held: int, of: int | None) -> None:
            """See ``Transfer.begin_file``."""


_watcher: Watcher | None = None
_relay: Relay | None = None
_current: Transfer | None = None


class Transfer:
    """One thing that is on its way, such as a release or a file; sizes are bytes, times seconds."""

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
        """``what`` is fit to be shown: no password and no query of a URL; ``size`` is ``None`` until it is known.

        ``announced``: its beginning is in the log already.
        """
        self.what = what
        self.doing = doing
        self.done = done
        self.announced = announced
        self.held = 0
        """Of an earlier attempt, which are not fetched again."""
        self._size = size
        self._clock = clock
        self._began = self._last = clock()
        self._have = 0
        self._files: dict[str, int] = {}
        self._told_size: int | None = None

    @property
    def have(self) -> int:
        """Bytes that are here."""
        return self._have

    @property
    def passed(self) -> int:
        """Bytes that came in this transfer."""
        return max(self.have - self.held, 0)

    @property
    def size(self) -> int | None:
        """Bytes of all: as it was said to be, or for a single file as the server says."""
        return self._size if self._size is not None else self._told_size if len(self._files) < 2 else None

    @property
    def seconds(self) -> float:
        """From the beginning until bytes passed last."""
        return self._last - self._began

    @property
    def rate(self) -> float | None:
        """Bytes a second on average; ``None`` before it can be told."""
        return self.passed / self.seconds if self.passed and self.seconds > 0 else None

    @property
    def left(self) -> float | None:
        """Seconds until the end, if it goes on like this; ``None`` when that cannot be told."""
        if self.size is None or self.rate is None:
            return None
        return max(self.size - self.have, 0) / self.rate

    def expect(self, size: int) -> None:
        """So many bytes more will come, of whatever files."""
        self._size = self._have + size

    def begin_file(self, name: str, held: int, of: int | None) -> None:
        """A file of this name is asked for, of which ``held`` bytes are here, and which has ``of`` in all."""
        before = self._files.get(name, 0)
        self.held += held - before
        self._have += held - before
        self._files[name] = held
        self._told_size = of

    def note(self, name: str, have: int) -> None:
        """So many bytes of a file are here."""
        self.advance(have - self._files.get(name, 0))
        self._files[name] = have

    def advance(self, count: int) -> None:
        """So many bytes more have passed, of whatever file."""
        self._have += count
        self._last = self._clock()


@contextlib.contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """While the block runs, ``watcher`` is told."""
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
    """While the block runs, what is downloaded belongs to a ``Transfer`` of these arguments."""
    global _current  # downloads are made one after the other
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
    """While the block runs, ``relay`` is told which files begin."""
    global _relay  # as ``watched_by``
    before, _relay = _relay, relay
    try:
        yield
    finally:
        _relay = before


def expect(size: int) -> None:
    """Note how many bytes more will come in the transfer that is going on."""
    if _current is not None:
        _current.expect(size)


def begin_file(name: str, held: int, of: int | None) -> None:
    """Note the beginning of a file within the transfer that is going on; see ``Transfer.begin_file``."""
    if _relay is not None:
        _relay.begin_file(name, held, of)
    if _current is not None:
        _current.begin_file(name, held, of)


def note(name: str, have: int) -> None:
    """Note how many bytes of a file are here."""
    if _current is not None:
        _current.note(name, have)
        _tell(_current)


def advance(count: int) -> None:
    """Note that so many bytes more have passed."""
    if _current is not None:
        _current.advance(count)
        _tell(_current)


def _tell(current: Transfer) -> None:
    if _watcher is not None:
        _watcher.moved(current)
