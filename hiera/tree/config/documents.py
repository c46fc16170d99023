"""Sources of files: a directory, or a mapping from path to text that replaces it.

* Paths are absolute, with ``/``. A missing file is a valid result. Any other failure is a ``DocumentError``.
* Each file is read at most once, and only when a level that the facts select needs it.
"""

import errno
import os
import posixpath
import stat
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from hiera.errors import DocumentError, LimitError

MAX_BYTES = 64 * 1024 * 1024


class Kind(Enum):
    """The kind of a path, with links followed."""

    FILE = "file"
    DIRECTORY = "directory"
    NOTHING = "nothing"


class Entry(NamedTuple):
    """A name in a directory. ``kind`` is the kind of a link's target."""

    name: str
    kind: Kind
    is_link: bool


class Documents(Protocol):
    """A source of files for the resolver. Every method may raise ``DocumentError``."""

    def kind(self, path: str) -> Kind:
        """Return the kind of the path."""
        ...

    def read(self, path: str) -> bytes:
        """Return the bytes of an existing file. Raises ``DocumentError``."""
        ...

    def entries(self, path: str) -> list[Entry]:
        """Return the names in a directory, sorted bytewise. Empty for other paths."""
        ...


class Files:
    """Files on disk. Raises ``DocumentError`` for unreadable files, ``LimitError`` for files that are too large."""

    def kind(self, path: str) -> Kind:
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return Kind.NOTHING
            raise DocumentError(path, error.strerror or str(error)) from None
        except ValueError as error:  # a NUL byte in an interpolated path
            raise DocumentError(repr(path), str(error)) from None
        return Kind.DIRECTORY if stat.S_ISDIR(mode) else Kind.FILE

    def read(self, path: str) -> bytes:
        try:
            with open(path, "rb", opener=_open_at_once) as file:
                # Check the open file, since the path may name another file by now.
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise DocumentError(path, "not a regular file")
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise DocumentError(path, error.strerror or str(error)) from None
        if len(data) > MAX_BYTES:
            raise LimitError(path, f"larger than {MAX_BYTES} bytes")
        return data

    def entries(self, path: str) -> list[Entry]:
        try:
            with os.scandir(path) as found:
                entries = [self._entry(entry) for entry in found]
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return []
            raise DocumentError(path, error.strerror or str(error)) from None
        # Ruby sorts the bytes of names, in any locale.
        return sorted(entries, key=lambda entry: os.fsencode(entry.name))

    def _entry(self, entry: "os.DirEntry[str]") -> Entry:
        """Return an entry. Only a link needs another system call, for its target."""
        if entry.is_symlink():
            return Entry(entry.name, self.kind(entry.path), True)
        return Entry(entry.name, Kind.DIRECTORY if entry.is_dir() else Kind.FILE, False)


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting, since a named pipe without a writer would block forever."""
    return os.open(path, flags | os.O_NONBLOCK)


class Texts:
    """Files from a mapping of paths to their contents, below an imaginary directory ``root``."""

    def __init__(self, files: Mapping[str, str | bytes], root: str = "/") -> None:
        self._files = {posixpath.normpath(posixpath.join(root, path)): data for path, data in files.items()}
        self._directories: dict[str, dict[str, Kind]] = {}
        for path in self._files:
            self._place(path, Kind.FILE)

    def _place(self, path: str, kind: Kind) -> None:
        while path != "/":
            path, name = posixpath.split(path)
            self._directories.setdefault(path, {})[name] = kind
            kind = Kind.DIRECTORY

    def kind(self, path: str) -> Kind:
        path = posixpath.normpath(path)
        if path in self._files:
            return Kind.FILE
        return Kind.DIRECTORY if path in self._directories else Kind.NOTHING

    def read(self, path: str) -> bytes:
        data = self._files[posixpath.normpath(path)]
        return data.encode() if isinstance(data, str) else data

    def entries(self, path: str) -> list[Entry]:
        names = self._directories.get(posixpath.normpath(path), {})
        return [Entry(name, names[name], False) for name in sorted(names, key=str.encode)]


def join(directory: str, path: str) -> str:
    """Return ``path`` relative to ``directory``: absolute paths stay, leading ``..`` are resolved by name."""
    if path.startswith("/"):
        return path
    head, _, rest = path.partition("/")
    while head in ("..", "."):
        directory = (posixpath.dirname(directory.rstrip("/")) or "/") if head == ".." else directory
        head, _, rest = rest.partition("/")
    path = f"{head}/{rest}" if rest else head
    return posixpath.join(directory, path) if path else directory
