"""The publisher's note of files that nothing names any more, ``pruning.json`` in the directory of a site.

* A file is noted with the time until which a host may still be led to it: when the last ``timestamp.json`` that was
  signed before has expired, and a day more for what began before that.
* Without the note, or with a damaged one, files stay longer: their time begins when they are seen again.
"""

from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from bundles.filesystem.atomic import read_limited, write_file

NOTES = "pruning.json"
GRACE = timedelta(days=1)
"""A host compares the expiry at the beginning of a refresh; downloads may go on for hours."""

_FORMAT = 1
_LARGEST = 64_000_000


class Notes(msgspec.Struct):
    """Files below ``public/`` that nothing names."""

    format: int = _FORMAT
    signed_until: datetime | None = None
    """The latest expiry of any timestamp that was signed so far."""
    shared: datetime | None = None
    """When all files that bundles share were looked at."""
    until: dict[str, datetime] = {}
    """By path: the time from which on a file may be removed."""

    def is_shared_due(self, now: datetime) -> bool:
        """Whether to look at all files that bundles share: once a day, as it takes as long as there are bundles."""
        return self.shared is None or not timedelta() <= now - self.shared < timedelta(days=1)

    def saw(self, expires: datetime, now: datetime) -> datetime:
        """Take note of the expiry of a timestamp; the time until which hosts may be led to what is unnamed now."""
        self.signed_until = max(self.signed_until or expires, expires)
        return max(self.signed_until, now) + GRACE


def load_notes(path: Path) -> Notes:
    """The notes; empty ones where there are none that can be read. Raises ``OSError``."""
    try:
        notes = msgspec.json.decode(read_limited(path, _LARGEST), type=Notes)
    except (FileNotFoundError, ValueError):  # also of msgspec
        return Notes()
    aware = all(
        each.tzinfo for each in (*notes.until.values(), *filter(None, [notes.signed_until, notes.shared]))
    )
    return notes if notes.format == _FORMAT and aware else Notes()


def save_notes(path: Path, notes: Notes) -> None:
    """Raises ``OSError``."""
    write_file(path, msgspec.json.encode(notes) + b"\n")
