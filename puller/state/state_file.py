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
from puller.version import __version__

# Decoding of JSON that Puller has written.

_Value = TypeVar("_Value")


def decode(data: bytes, kind: type[_Value]) -> _Value:
    """Return the decoded JSON document. Endless brackets are invalid, like any other damage.

    A document of another format, perhaps of a later Puller, is rejected with a message about its format. Raise
    ``msgspec.DecodeError``, which is a ``ValueError``.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("is nested too deeply") from None
    except msgspec.ValidationError as error:
        if "`$.format`" not in str(error):
            raise
        result = msgspec.json.decode(data, type=_Versioned).format
        raise msgspec.DecodeError(f"has format {result}, which Puller {__version__} cannot read") from None


class _Versioned(msgspec.Struct):
    format: object = None


LARGEST = 4 * 1024 * 1024
"""Bytes. Only the records of all resources can come close to it."""
_PIECE = 4 * 1024 * 1024  # bytes

_Document = TypeVar("_Document")


class StateFile(Generic[_Document]):
    """The document of type ``kind`` at ``path``. ``loss`` ends the warning about a damaged document."""

    def __init__(self, path: Path, kind: type[_Document], loss: str, *, largest: int = LARGEST) -> None:
        """``largest`` is the maximum number of bytes to read."""
        self.path = path
        self._largest = largest
        self._kind = kind
        self._loss = loss

    def load(self, warn: Callable[[str], None], *, noop: bool = False) -> _Document | None:
        """Return the saved document. ``None`` if it is missing or damaged. ``warn`` receives the damage.

        With ``noop`` nothing is changed, for a dry run. Raise ``OSError``.
        """
        try:
            return self.read()
        except ValueError as error:
            aside = "left as it is" if noop else f"set aside as {set_aside(self.path)}"
            warn(f"{self.path}: {error}, {aside}, and {self._loss}")
            return None

    def read(self) -> _Document | None:
        """Return the saved document, ``None`` if it is missing. For documents that a run requires.

        Raise ``ValueError`` for a damaged document, and ``OSError``.
        """
        try:
            return decode(read_state(self.path, self._largest), self._kind)
        except FileNotFoundError:
            return None

    def save(self, document: _Document) -> None:
        """Replace the document durably. Raise ``OSError``.

        1. Create the directory, readable only by the owner.
        2. Encode the whole document in memory. An encoding error leaves the old document unchanged.
        3. Write atomically: temporary file in the same directory, contents, mode, fsync, rename, fsync of the directory
           (``bundles.filesystem.atomic.replace_file``).
        4. If a directory is in its place, which rename cannot replace, set it aside and repeat step 3.
        """
        # 1. Directory
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # 2. Document
        data = msgspec.json.format(msgspec.json.encode(document)) + b"\n"
        # 3. and 4.
        write_state(self.path, data)

    def remove(self) -> None:
        """Remove the document, if it exists. Raise ``OSError``."""
        self.path.unlink(missing_ok=True)


def write_state(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace a state file: steps 3 and 4 of ``StateFile.save``. Raise ``OSError``."""
    # 3. Write
    try:
        write_file(path, data, mode=mode, durable=durable)
    # 4. Directory in its place
    except IsADirectoryError:
        set_aside(path)
        write_file(path, data, mode=mode, durable=durable)


def set_aside(path: Path) -> Path:
    """Rename a damaged file to an unused name. Raise ``OSError``."""
    aside = next(candidate for candidate in _names_aside(path) if not os.path.lexists(candidate))
    os.rename(path, aside)
    # Damage in every run would otherwise fill the disk.
    forget_oldest(path.parent, f"{path.name}.unreadable")
    return aside


def read_state(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of a state file. Raise ``ValueError`` for any other kind of file, and ``OSError``."""
    # Never follow links, and never block: another user may hold the other end of a FIFO.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError("is a symbolic link") from None
        if error.errno == errno.ENXIO:
            raise ValueError("is a socket") from None
        raise
    try:
        # Check the open file, because its path may have changed.
        _check(os.fstat(descriptor))
        data = bytearray()
        while len(data) <= largest and (piece := os.read(descriptor, _PIECE)):
            data += piece
    finally:
        os.close(descriptor)
    if len(data) > largest:
        raise ValueError(f"has more than {largest} bytes")
    return bytes(data)


def _check(status: os.stat_result) -> None:
    """Raise ``ValueError`` unless only this user or root can have written the file."""
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("is not a regular file")
    if status.st_uid not in (0, os.geteuid()):
        raise ValueError(f"belongs to user {status.st_uid}")
    if status.st_mode & 0o022:
        raise ValueError(f"is writable by others: its mode is {stat.S_IMODE(status.st_mode):04o}")


def _names_aside(path: Path) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.unreadable")
    number = 2
    while True:
        yield path.with_name(f"{path.name}.unreadable-{number}")
        number += 1
