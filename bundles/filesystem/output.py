"""Output files of commands, at paths of the user's choice: pages, copies, exports, archives, reports of lint.

Such a directory may belong to another user, such as ``www-data``, while root runs the command.

* Links on the way to a directory are followed by the rules of ``safe_paths``: a link of another user is followed only
  to objects of that user. Otherwise the command fails and writes nothing.
* The last name of a path is never followed. A file is created under a random name in the open directory and renamed.
* Modes are set through descriptors, so another user cannot exchange a new directory before its mode is set.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from bundles.filesystem.atomic import Pathish, naming, read_opened, remove_leftovers, replace_file
from bundles.filesystem.safe_paths import REAL_DIRECTORY, open_safely
from bundles.filesystem.trees import kind_of, open_regular, sync_filesystem

_MODE_OF_FILE, _MODE_OF_DIRECTORY = 0o644, 0o755


def write_output(
    path: Pathish, data: bytes, *, mode: int = _MODE_OF_FILE, make_directories: bool = False
) -> None:
    """Write an output file, atomically and durably. Raises ``OSError``.

    The path must be unused or a regular file: replacing a link such as ``/dev/stdout`` would break the machine.
    """
    with naming(path), open_parent(path, make=make_directories) as (directory, name):
        require_replaceable(directory, name)
        replace_file(directory, name, [data], mode=mode)


@contextlib.contextmanager
def open_parent(path: Pathish, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Open the directory of ``path`` safely, and also yield the last name. Raises ``OSError``."""
    directory, name = os.path.split(os.path.abspath(path))
    with open_output_directory(directory, make=make) as descriptor:
        remove_leftovers(descriptor)
        yield descriptor, name


@contextlib.contextmanager
def open_output_directory(
    path: Pathish, *, make: bool = False, mode: int = _MODE_OF_DIRECTORY
) -> Iterator[int]:
    """Open a directory safely. With ``make``, create the missing directories with ``mode``. Raises ``OSError``."""
    descriptor = _made(os.path.abspath(path), mode) if make else open_safely(os.path.abspath(path))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def require_replaceable(directory: int, name: str) -> None:
    """Raise ``OSError`` if the name in an open directory is anything but a regular file."""
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        if not stat.S_ISREG(status):
            raise OSError(errno.EEXIST, f"is {kind_of(status)}, expected a regular file or a new name", name)


def _made(path: str, mode: int) -> int:
    try:
        return open_safely(path)
    except FileNotFoundError:
        directory, name = os.path.split(path)
        if not name:
            raise
    parent = _made(directory, mode)
    try:
        return _make(parent, name, mode)
    finally:
        os.close(parent)


def _make(parent: int, name: str, mode: int) -> int:
    """Create a directory regardless of the umask, and open it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=parent)
    descriptor = os.open(name, REAL_DIRECTORY, dir_fd=parent)
    # A directory that another user has created meanwhile keeps its mode.
    if os.fstat(descriptor).st_uid == os.geteuid() and not os.listdir(descriptor):
        os.fchmod(descriptor, mode)
    return descriptor


class OutputTree:
    """The files below ``root``, by relative paths. Methods raise ``OSError``.

    The last directory stays open, because files of one directory are usually written in sequence.
    """

    def __init__(self, root: Pathish) -> None:
        self.root = os.path.abspath(root)
        self._last: tuple[str, int] | None = None

    def exists(self) -> bool:
        """Return whether the root exists."""
        return os.path.lexists(self.root)

    def write(
        self, path: str, chunks: Iterable[bytes], *, mode: int = _MODE_OF_FILE, durable: bool = True
    ) -> None:
        """Write a file, and create its directories. A link at the path itself is replaced."""
        with naming(f"{self.root}/{path}"):
            directory, name = self._directory(path, make=True)
            replace_file(directory, name, chunks, mode=mode, durable=durable)

    def move_in(self, source: Path, path: str, *, mode: int = _MODE_OF_FILE) -> None:
        """Rename a file of the running user from the same file system into the tree."""
        with naming(f"{self.root}/{path}"):
            directory, name = self._directory(path, make=True)
            os.chmod(source, mode)
            os.rename(source, name, dst_dir_fd=directory)
            os.fsync(directory)

    def read(self, path: str, limit: int) -> bytes:
        """Read a regular file of at most ``limit`` bytes. Raises ``ValueError`` for a larger file."""
        with naming(f"{self.root}/{path}"):
            directory, name = self._directory(path)
            with open_regular(Path(name), directory=directory) as stream:
                return read_opened(stream.fileno(), limit, f"{self.root}/{path}")

    def stat(self, path: str) -> os.stat_result | None:
        """Return the ``lstat`` of an entry, ``None`` if it is missing."""
        try:
            with naming(f"{self.root}/{path}"):
                directory, name = self._directory(path)
                return os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def is_file(self, path: str) -> bool:
        """Return whether a regular file is at ``path``."""
        status = self.stat(path)
        return status is not None and stat.S_ISREG(status.st_mode)

    def remove(self, path: str) -> None:
        """Remove a file or a link, if it exists."""
        with contextlib.suppress(FileNotFoundError), naming(f"{self.root}/{path}"):
            directory, name = self._directory(path)
            os.unlink(name, dir_fd=directory)

    def sync(self) -> None:
        """Flush all written files to disk."""
        with open_output_directory(self.root, make=True) as directory:
            sync_filesystem(directory)

    def close(self) -> None:
        """Close the last used directory."""
        if self._last is not None:
            os.close(self._last[1])
            self._last = None

    def _directory(self, path: str, *, make: bool = False) -> tuple[int, str]:
        place, name = os.path.split(os.path.normpath(f"{self.root}/{path}"))
        if not f"{place}/".startswith(f"{self.root}/".replace("//", "/")):
            raise OSError(errno.EINVAL, "is outside the directory", path)
        if self._last is None or self._last[0] != place:
            self.close()
            descriptor = _made(place, _MODE_OF_DIRECTORY) if make else open_safely(place)
            remove_leftovers(descriptor)
            self._last = place, descriptor
        return self._last[1], name
