"""The record of reboots between runs: reasons, the current request, and the reasons of earlier restarts.

* A request is recorded before the machine restarts. The identity of the boot shows whether it did.
* After the restart, the reasons of the request count as tried. A reason that has remained is never tried again.
* A change of a subscribed resource is a reason until the next boot, whoever restarts the machine.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from puller.state.directories import Directories
from puller.state.state_file import StateFile
from puller.values.maintenance import PendingReboot

_LOSS = "the reasons of reboots are determined again"
_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The restart that a run has requested."""

    keys: list[str]
    """The keys of its reasons."""
    at: _Moment
    is_scheduled: bool = False
    """Whether systemd has accepted it."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document on disk."""

    format: Literal[1] = 1
    boot: str = ""
    """The identity of the boot that it describes."""
    request: Request | None = None
    since: dict[str, _Moment] = {}
    """The first time at which a run noticed each reason, by key."""
    subscribed: dict[str, str] = {}
    """Reasons by subscription since the boot: the text, by the name of the resource."""
    tried: dict[str, _Moment] = {}
    """The reasons of the last restarts, by key, with the time of the request."""
    pending: list[PendingReboot] = []

    def after_boot(self, boot: str) -> "Record":
        """Return the record for the current boot."""
        if self.boot == boot:
            return self
        tried = dict(self.tried)
        if self.request is not None:
            tried |= dict.fromkeys(self.request.keys, self.request.at)
        return msgspec.structs.replace(self, boot=boot, request=None, subscribed={}, tried=tried, pending=[])


class Records:
    """The record of this machine. With ``noop`` nothing is written. Methods raise ``OSError``."""

    def __init__(
        self, state_directory: Path | None, warn: Callable[[str], None] = lambda text: None, *, noop: bool
    ) -> None:
        directory = state_directory or Directories.of_user().state
        self._file = StateFile(Directories(directory, directory).reboots, Record, _LOSS)
        self._noop = noop
        self._warn = warn
        self._saved: Record | None = None

    def load(self) -> Record:
        """Return the record as it was saved last, perhaps by an earlier boot."""
        if self._saved is None:
            self._saved = self._file.load(self._warn, noop=self._noop) or Record()
        return self._saved

    def reload(self) -> None:
        """Read the record from disk again, because another run may have replaced it."""
        self._saved = None

    def save(self, record: Record) -> None:
        """Replace the record. A record without content needs no file."""
        if record == self.load():
            return
        if not self._noop:
            if record == Record(boot=record.boot):
                self._file.remove()
            else:
                self._file.save(record)
        self._saved = record
