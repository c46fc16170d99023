"""JSON files for the state of a run, with the same handling of damage for each file.

* A document is written as a whole, by the atomic write of ``bundles.filesystem.atomic``, readable only by its owner.
* A document is missing only if the system reports *not found*. A damaged file (truncated, garbage, a link, a
  directory, another user's, too large) is set aside under a new name, with a warning that states the consequences. A
  run that can continue without it continues.
* A disk that cannot be read raises ``OSError``, since the state of the document is unknown.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from bundles.filesystem.atomic import forget_oldest, write_file

# Decoding of JSON that Puller has written.

_Value = TypeVar("_Value")


def decode(data: bytes, kind: type[_Value]) -> _Value:
    """``msgspec.json.decode``, to which brackets without end are not well-formed, like any other damage.

    A document of another format, as a later Puller may have written it, is refused by a sentence that says so.
    Raises ``msgspec.DecodeError``, which is a ``ValueError``.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("is nested too deeply") from None
    except msgspec.ValidationError as error:
        if "`$.format`" not in str(error):
            raise
        from puller.version import __version__

        found = msgspec.json.decode(data, type=_Versioned).format
        raise msgspec.DecodeError(f"is of format {found}, which Puller {__version__} does not read") from None


class _Versioned(msgspec.Struct):
    format: object = None


LARGEST = 4 * 1024 * 1024
"""Bytes; nothing that a run remembers comes near it, but for what it remembers of each resource."""
_PIECE = 4 * 1024 * 1024  # bytes

_Document = TypeVar("_Document")


class StateFile(Generic[_Document]):
    """The document of type ``kind`` at ``path``; ``loss`` ends the sentence about one that is not understood."""

    def __init__(self, path: Path, kind: type[_Document], loss: str, *, largest: int = LARGEST) -> None:
        """``largest`` is the most bytes that are read."""
        self.path = path
        self._largest = largest
        self._kind = kind
        self._loss = loss

    def load(self, warn: Callable[[str], None], *, noop: bool = False) -> _Document | None:
        """The document that was saved last; ``None`` when there is none that can be used, and ``warn`` is told why.

        With ``noop`` nothing is changed, for a dry run. Raises ``OSError``.
        """
        try:
            return self.read()
        except ValueError as error:
            aside = "left as it is" if noop else f"set aside as {set_aside(self.path)}"
            warn(f"{self.path}: {error}; {aside}, and {self._loss}")
            return None

    def read(self) -> _Document | None:
        """The document that was saved last, ``None`` when there is none; for one that must not be done without.

        Raises ``ValueError`` for one that cannot be used, ``OSError``.
        """
        try:
            return decode(read_state(self.path, self._largest), self._kind)
        except FileNotFoundError:
            return None

    def save(self, document: _Document) -> None:
        """Replace it, durably; raises ``OSError``.

        1. The directory is there, for its owner alone.
        2. The whole document, in memory: one that cannot be encoded leaves the old one as it is.
        3. The one atomic write: temporary file in the same directory, contents, mode, fsync, rename, fsync of the
           directory (``bundles.filesystem.atomic.replace_file``).
        4. A directory in its place, which no rename replaces, is set aside, and step 3 is done again.
        """
        # 1. Directory
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # 2. Document
        data = msgspec.json.format(msgspec.json.encode(document)) + b"\n"
        # 3. and 4.
        write_state(self.path, data)

    def remove(self) -> None:
        """Remove it; none is no error. Raises ``OSError``."""
        self.path.unlink(missing_ok=True)


def write_state(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace a file of ours: steps 3 and 4 of ``StateFile.save``. Raises ``OSError``."""
    # 3. Write
    try:
        write_file(path, data, mode=mode, durable=durable)
    # 4. A directory is in the way
    except IsADirectoryError:
        set_aside(path)
        write_file(path, data, mode=mode, durable=durable)


def set_aside(path: Path) -> Path:
    """Move a file that is not understood out of the way, under a name of its own; raises ``OSError``."""
    aside = next(candidate for candidate in _names_aside(path) if not os.path.lexists(candidate))
    os.rename(path, aside)
    # Otherwise whatever damages a file in every run would fill the disk.
    forget_oldest(path.parent, f"{path.name}.unreadable")
    return aside


def read_state(path: Path, largest: int = LARGEST) -> bytes:
    """The bytes of a file of ours; raises ``ValueError`` for anything that is not one, and ``OSError``."""
    # Never through a link, and never waiting: the other end of a FIFO is somebody else's.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError("is a symbolic link") from None
        if error.errno == errno.ENXIO:
            raise ValueError("is a socket") from None
        raise
    try:
        # What is open is judged, not its name: that may be something else by now.
        _check(os.fstat(descriptor))
        data = bytearray()
        while len(data) <= largest and (piece := os.read(descriptor, _PIECE)):
            data += piece
    finally:
        os.close(descriptor)
    if len(data) > largest:
        raise ValueError(f"has more than {largest} bytes")
    return bytes(data)


def _check(found: os.stat_result) -> None:
    """Only what nobody else can have written is believed."""
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("is not a regular file")
    if found.st_uid not in (0, os.geteuid()):
        raise ValueError(f"belongs to user {found.st_uid}")
    if found.st_mode & 0o022:
        raise ValueError(f"can be written by others: its mode is {stat.S_IMODE(found.st_mode):04o}")


def _names_aside(path: Path) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.unreadable")
    number = 2
    while True:
        yield path.with_name(f"{path.name}.unreadable-{number}")
        number += 1
