"""Partial downloads: the beginning of a file, beside its destination.

* A partial download is named by the SHA-256 of the complete file. Its data is untrusted, and a resumed download is
  verified completely.
* It stays if the network or a mirror failed, or the process was killed. It is removed if the disk is full or the data
  contradicts the signatures.
* Number, size and age of partial downloads are limited.
"""

import contextlib
import os
import re
import stat
from collections.abc import Container, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from bundles.errors import BundleError, TransportError
from bundles.filesystem.atomic import sync_directory
from bundles.filesystem.trees import remove_tree
from bundles.format.fields import SHA256

MOST_KEPT = 4
LONGEST_KEPT = timedelta(days=7)
SMALLEST_KEPT = 64 * 1024
"""Bytes. Fetching less data again is just as fast."""

FILES = ".files"
"""Suffix of a directory with individually fetched files of a bundle. The prefix is the SHA-256 of the archive."""

_LEFT = re.compile(rf"\.?({SHA256})\.(?:part|tar\.gz|files)")
# Neither follows a planted link nor blocks on a planted FIFO.
_NEW = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def partial_download(destination: Path, sha256: str) -> Iterator[BinaryIO]:
    """Yield the partial download of the file ``sha256``, and rename it to ``destination`` when the block succeeds.

    Raises ``OSError``.
    """
    path = destination.with_name(f".{sha256}.part")
    _remove_unless_ours(path)
    try:
        with open(os.open(path, _NEW, 0o600), "r+b") as partial:
            yield partial
            # Before the rename: a power failure must not leave an incomplete file under the final name.
            partial.flush()
            os.fsync(partial.fileno())
        os.rename(path, destination)
    except BaseException as error:
        with contextlib.suppress(OSError):
            if not _is_worth_keeping(path, error):
                os.unlink(path)
        raise
    sync_directory(destination.parent)


def is_kept(size: int) -> bool:
    """Return whether a partial download of this size is kept for the next attempt."""
    return size >= SMALLEST_KEPT


def discard_leftovers(directory: Path, needed: Container[str], now: datetime) -> None:
    """Remove leftovers of killed runs in ``directory``: partial downloads, complete archives, directories of files.

    Keeps the few newest that are ``needed``, by SHA-256, and not too old. Raises ``OSError``.
    """
    leftovers = [(path, match[1]) for path in directory.glob("*") if (match := _LEFT.fullmatch(path.name))]
    newest_first = sorted(leftovers, key=lambda each: _written(each[0]), reverse=True)
    for place, (path, sha256) in enumerate(newest_first):
        age = now.timestamp() - _written(path)
        if place >= MOST_KEPT or age > LONGEST_KEPT.total_seconds() or sha256 not in needed:
            _remove(path)
        elif path.suffix != FILES or not _is_directory(path):
            _remove_unless_ours(path)


def _is_directory(path: Path) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _is_worth_keeping(path: Path, error: BaseException) -> bool:
    # Network errors and interruptions do not invalidate the received bytes.
    of_this_machine = isinstance(error, OSError)
    of_the_bytes = isinstance(error, BundleError) and not isinstance(error, TransportError)
    return not of_this_machine and not of_the_bytes and is_kept(os.lstat(path).st_size)


def _written(path: Path) -> float:
    return os.lstat(path).st_mtime


def _remove_unless_ours(path: Path) -> None:
    """Remove a link or directory that would block this path permanently."""
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        _remove(path)


def _remove(path: Path) -> None:
    if _is_directory(path):
        remove_tree(path)
    else:
        path.unlink()
