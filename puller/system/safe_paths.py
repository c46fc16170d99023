"""Directories that Puller is about to change, opened as ``bundles/filesystem/safe_paths.py`` describes.

A link of another user is a ``ResourceError`` here, because the resource at that path fails and the run continues.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator

from bundles.filesystem import safe_paths
from bundles.filesystem.safe_paths import REAL_DIRECTORY, UnsafeLinkError, writers
from puller.errors import ChangedMeanwhile, ResourceError

__all__ = ["REAL_DIRECTORY", "hold_directory", "open_safely", "require_new", "require_ours", "resolve"]


@contextlib.contextmanager
def open_safely(path: str) -> Iterator[int]:
    """Open the directory at an absolute path; raises ``OSError``, and ``ResourceError`` for a link of another user."""
    with _opened(path, safe_paths.open_safely) as descriptor:
        yield descriptor


@contextlib.contextmanager
def hold_directory(path: str) -> Iterator[int]:
    """Open a directory to work in. It requires fewer permissions than ``open_safely``, because it lists nothing."""
    with _opened(path, safe_paths.hold_directory) as descriptor:
        yield descriptor


def resolve(path: str) -> str:
    """Return an existing path without its links; raises as ``open_safely``."""
    try:
        return safe_paths.resolve(path)
    except UnsafeLinkError as error:
        raise ResourceError(f"{path}: {error.reason}") from None


@contextlib.contextmanager
def _opened(path: str, opening: Callable[[str], int]) -> Iterator[int]:
    try:
        descriptor = opening(path)
    except UnsafeLinkError as error:
        raise ResourceError(f"{path}: {error.reason}") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def require_new(path: str, directory: int) -> None:
    """Raise ``ChangedMeanwhile`` for a directory that is not ours and empty, as the one that was made just now was.

    Who may write to the directory above can have put another one there, which is not to be given away.
    """
    if os.fstat(directory).st_uid != os.geteuid() or os.listdir(directory):
        raise ChangedMeanwhile(f"{path}: was replaced by somebody else while Puller made it")


def require_ours(path: str, directory: int) -> None:
    """Raise ``ResourceError`` for an open directory in which others can exchange what is made there.

    A program that root asks about it could be asked about something else.
    """
    found = os.fstat(directory)
    who = ""
    if found.st_uid not in (0, os.geteuid()):
        who = f"belongs to user {found.st_uid}"
    elif writers(found) and not found.st_mode & stat.S_ISVTX:
        who = f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    if who:
        what = "who could exchange the new file while it is verified"
        raise ResourceError(f"{path}: its directory {who}, {what}")


def require_writable(path: str) -> None:
    """Raise ``ValueError`` or ``OSError`` for a path that is no directory in which this user can write."""
    with open_safely(path) as directory:
        if os.fstatvfs(directory).f_flag & os.ST_RDONLY:
            raise ValueError(f"{path}: is on a read-only file system")
        if not os.access(path, os.W_OK | os.X_OK):
            raise ValueError(f"{path}: cannot be written by this user")
