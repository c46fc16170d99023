"""The publisher's memory of a destination: what it has brought there, and since when files are of no use there.

One file for each destination, ``pushes/NAME.json`` in the site's directory; the name is a digest of the location.

* It holds for as long as the destination has the ``timestamp.json`` that was pushed last: then sizes say enough of the
  other files. Otherwise every file is looked at.
* Where a destination lists nothing, it is noted that a push begins: one that is killed has brought files that nobody
  remembers, and the next one asks for them.
* A file that is gone from the site stays at the destination for a while, as readers may hold a ``timestamp.json`` that
  leads to it. The while begins when its disappearance was first pushed.
* A damaged record is as good as none: more is compared, and what is gone stays longer.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from bundles.errors import PublishError
from bundles.filesystem.atomic import read_limited, write_file
from bundles.publisher.site import explained
from foundation.problems import ProblemCode

_DIRECTORY = "pushes"
_FORMAT = 1
_LARGEST = 256 * 1024 * 1024


class Record(msgspec.Struct):
    """The knowledge of one destination."""

    format: int = _FORMAT
    destination: str = ""
    """For people who look at the file."""
    timestamp: str = ""
    """SHA-256 of the ``timestamp.json`` that was pushed last."""
    lists_nothing: bool = False
    """Whether the destination cannot say which files it has."""
    files: dict[str, int] = {}
    """Sizes in bytes of the files there, where it cannot."""
    begun: bool = False
    """Whether a push has begun to copy since: there may be files that are not remembered."""
    gone: dict[str, datetime] = {}
    """Files that are there and not in the site any more, and since when a push knows that."""


class RecordFile:
    """The record of ``destination`` in the site at ``directory``; one push at a time holds it."""

    def __init__(self, directory: Path, destination: str) -> None:
        name = hashlib.sha256(destination.encode(errors="surrogateescape")).hexdigest()[:16]
        self._destination = destination
        self.path = directory / _DIRECTORY / f"{name}.json"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raises `PublishError` while another process pushes from here to the same destination."""
        with explained(self.path):
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(
                self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PublishError(
                self._destination, "is being pushed to by another process", code=ProblemCode.ANOTHER_RUN
            ) from None
        else:
            yield
        finally:
            os.close(lock)

    def load(self) -> Record:
        """The record; an empty one where there is none, or a damaged one. Raises `PublishError` for this disk."""
        try:
            record = msgspec.json.decode(read_limited(self.path, _LARGEST), type=Record)
        except (FileNotFoundError, ValueError):
            return Record(destination=self._destination)
        except OSError as error:
            raise PublishError(
                str(self.path), error.strerror or str(error), code=ProblemCode.SYSTEM_ERROR
            ) from error
        return record if record.format == _FORMAT else Record(destination=self._destination)

    def store(self, record: Record) -> None:
        """Write the record; raises `PublishError`."""
        record.destination = self._destination
        with explained(self.path):
            write_file(self.path, msgspec.json.encode(record) + b"\n", mode=0o600)
