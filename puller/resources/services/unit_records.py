"""Facts about units that Puller records from one run to the next.

* ``Installs``: the ``[Install]`` section by which a unit was enabled. systemd reports *enabled* for links that an
  earlier section asked for.
* ``Restarts``: how often systemd had restarted a unit. A unit that keeps crashing is *active* most of the time, and
  only its count grows. The record is written when a count changes, so a run without a change writes nothing.
* ``Masks``: the units that Puller has masked. A mask is a link to ``/dev/null`` and does not show its creator. The
  record identifies the link itself, so a link that another user created again does not match. A unit is recorded
  before it is masked, so the mask of an interrupted run counts as Puller's.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from puller.resources.services.unit_links import Install
from puller.state import StateFile
from puller.system.protocol import System

T = TypeVar("T")

_LOOP = 2  # restarts between two runs; one restart is an accident
_OFTEN = 3600.0  # seconds between restarts on average, so that accidents of many days never count as a loop


class _Record(Generic[T]):
    """Values by the names of units, kept in a file. Without a file, or with a full disk, they last for the run."""

    def __init__(
        self,
        path: Path | None,
        kind: type[dict[str, T]],
        loss: str,
        warn: Callable[[str], None],
        *,
        noop: bool,
    ) -> None:
        self._file = StateFile(path, kind, loss) if path else None
        self._warn = warn
        self._noop = noop
        self._values: dict[str, T] | None = None

    def get(self, unit: str) -> T | None:
        return self._load().get(unit)

    def set(self, unit: str, value: T) -> None:
        values = self._load()
        if values.get(unit) == value:
            return
        self._values = {**values, unit: value}
        if self._file and not self._noop:
            with contextlib.suppress(OSError):
                self._file.save(self._values)

    def _load(self) -> dict[str, T]:
        if self._values is None:
            self._values = {}
            with contextlib.suppress(OSError):
                self._values = (self._file and self._file.load(self._warn, noop=self._noop)) or {}
        return self._values


class Installs:
    """The ``[Install]`` sections by which units were enabled."""

    def __init__(self, path: Path | None, warn: Callable[[str], None], *, noop: bool) -> None:
        loss = "changed [Install] sections are noticed only where a link is missing"
        self._record = _Record(path, dict[str, Install], loss, warn, noop=noop)

    def is_other(self, unit: str, install: Install) -> bool:
        """Return whether a unit was enabled by another section than ``install``."""
        return self._record.get(unit) not in (None, install)

    def remember(self, unit: str, install: Install) -> None:
        """Record that a unit is enabled by this section."""
        self._record.set(unit, install)


class Count(msgspec.Struct, frozen=True):
    """The restarts of a unit, and when this count was first seen (seconds since 1970)."""

    restarts: int
    seen: float
    interval: float = 0.0
    """Seconds between the restarts of a crash loop, else 0."""


class Restarts:
    """The record of restarts by systemd."""

    def __init__(self, path: Path | None, warn: Callable[[str], None], *, noop: bool) -> None:
        loss = "services that are restarted again and again are noticed by the run after the next one"
        self._record = _Record(path, dict[str, Count], loss, warn, noop=noop)
        self._answers: dict[str, str] = {}

    def since_last_run(self, unit: str, restarts: int, age: float | None) -> str:
        """Return how often a running unit was restarted since the last run. Empty if it is not a crash loop.

        A loop is over when the process has run for twice as long as it did before (``age``, in seconds).
        """
        if unit not in self._answers:
            before = self._record.get(unit)
            count = _next(before, restarts, age) if before else Count(restarts, time.time())
            if before is None or (count.restarts, count.interval) != (before.restarts, before.interval):
                self._record.set(unit, count)
            lately = f"every {max(count.interval, 1.0):.0f} seconds lately"
            self._answers[unit] = (
                f"systemd has restarted it {restarts} times, {lately}" if count.interval else ""
            )
        return self._answers[unit]

    def begin(self, unit: str) -> None:
        """Reset the count, as systemd does when a unit is started."""
        self._answers.pop(unit, None)
        self._record.set(unit, Count(0, time.time()))


def _next(before: Count, restarts: int, age: float | None) -> Count:
    """Return the count that follows ``before``, with the interval of a crash loop that begins or goes on."""
    now = time.time()
    grown = restarts - before.restarts
    interval = max(now - before.seen, 1.0) / grown if grown >= _LOOP else before.interval
    goes_on = grown >= _LOOP or (grown >= 0 and age is not None and age < 2 * interval)
    return Count(restarts, now, interval if goes_on and interval < _OFTEN else 0.0)


_MaskRecord = dict[str, tuple[int, int] | None]
"""By unit: inode and change time (nanoseconds) of the link. ``None``: the unit was about to be masked."""


class _Document(msgspec.Struct, forbid_unknown_fields=True, tag_field="format", tag=1):
    units: _MaskRecord = {}


class Masks:
    """The record of masks in ``directory``, stored in the file ``path``. Methods raise ``OSError``."""

    def __init__(
        self, system: System, directory: str, path: Path | None, warn: Callable[[str], None], *, noop: bool
    ) -> None:
        self._system = system
        self._directory = directory
        self._warn = warn
        self._noop = noop
        loss = "units that Puller has masked stay masked until an administrator unmasks them"
        self._file = StateFile(path, _Document, loss) if path else None

    def is_ours(self, unit: str) -> bool:
        """Return whether Puller's mask of a unit still exists unchanged."""
        record = self._load()
        return unit in record and record[unit] in (None, self._link(unit))

    def begin(self, unit: str) -> None:
        """Record that a unit is about to be masked."""
        self._save({**self._load(), unit: None})

    def finish(self, unit: str) -> None:
        """Record that a unit was masked."""
        self._save({**self._load(), unit: self._link(unit)})

    def forget(self, unit: str) -> None:
        """Record that Puller's mask of a unit was removed."""
        self._save({name: link for name, link in self._load().items() if name != unit})

    def _link(self, unit: str) -> tuple[int, int] | None:
        status = self._system.lstat(f"{self._directory}/{unit}")
        return (status.st_ino, status.st_ctime_ns) if status else None

    def _load(self) -> _MaskRecord:
        return ((self._file and self._file.load(self._warn, noop=self._noop)) or _Document()).units

    def _save(self, record: _MaskRecord) -> None:
        if self._file:
            self._file.save(_Document(record))
