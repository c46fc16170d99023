"""The units that Puller has masked: a mask is a link to ``/dev/null``, which does not tell who made it.

* On record is the link as it was made. One that somebody has removed and made again is theirs.
* A unit is put on record before it is masked, so of a run that was killed in between the mask counts as ours.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from puller.state.state_file import StateFile
from puller.system.protocol import System

_Record = dict[str, tuple[int, int] | None]
"""By unit, inode and time of the last change (nanoseconds) of the link; ``None``: it was about to be made."""


class _Document(msgspec.Struct, forbid_unknown_fields=True, tag_field="format", tag=1):
    units: _Record = {}


class Masks:
    """The record of masks in ``directory``; ``path`` is where it is kept. Methods raise ``OSError``."""

    def __init__(
        self, system: System, directory: str, path: Path | None, warn: Callable[[str], None], *, noop: bool
    ) -> None:
        self._system = system
        self._directory = directory
        self._warn = warn
        self._noop = noop
        loss = "units that Puller has masked stay so until somebody unmasks them"
        self._file = StateFile(path, _Document, loss) if path else None

    def is_ours(self, unit: str) -> bool:
        """Whether Puller has masked a unit, and nobody else has since."""
        record = self._load()
        return unit in record and record[unit] in (None, self._link(unit))

    def begin(self, unit: str) -> None:
        """A unit is about to be masked."""
        self._save({**self._load(), unit: None})

    def finish(self, unit: str) -> None:
        """A unit was masked."""
        self._save({**self._load(), unit: self._link(unit)})

    def forget(self, unit: str) -> None:
        """A unit is not masked by Puller any more."""
        self._save({name: link for name, link in self._load().items() if name != unit})

    def _link(self, unit: str) -> tuple[int, int] | None:
        found = self._system.lstat(f"{self._directory}/{unit}")
        return (found.st_ino, found.st_ctime_ns) if found else None

    def _load(self) -> _Record:
        return ((self._file and self._file.load(self._warn, noop=self._noop)) or _Document()).units

    def _save(self, record: _Record) -> None:
        if self._file:
            self._file.save(_Document(record))
