"""Downloads that broke off: the beginning of a file, beside the place where the whole is to be.

* A partial download is named by the SHA-256 of the whole, and nothing in it is trusted: whoever goes on with it
  verifies the whole.
* It stays when the network or a mirror failed, or the process was killed. It goes when the disk is full or what arrived
  was not what was signed.
* There are never more than a few of them, none is larger than what was signed, and none is kept for long.
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
from bundles.format.identity import SHA256

MOST_KEPT = 4
LONGEST_KEPT = timedelta(days=7)
SMALLEST_KEPT = 64 * 1024
"""Bytes; what is less is fetched anew as fast."""

FILES = ".files"
"""The end of the name of a directory with files of one bundle, fetched one by one; it begins with the SHA-256 of the
archive."""

_LEFT = re.compile(rf"\.?({SHA256})\.(?:part|tar\.gz|files)")
# Neither through a link nor with a hang on a FIFO that somebody has put in its place.
_NEW = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def partial_download(destination: Path, sha256: str) -> Iterator[BinaryIO]:
    """The partial download of the file ``sha256``; it is renamed to ``destination`` when the block ends well.

    Raises ``OSError``.
    """
    path = destination.with_name(f".{sha256}.part")
    _remove_unless_ours(path)
    try:
        with open(os.open(path, _NEW, 0o600), "r+b") as partial:
            yield partial
            # Before the rename: a power cut must not leave a whole file's name on a part of it.
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
    """Whether a partial download of so many bytes stays for the next attempt."""
    return size >= SMALLEST_KEPT


def discard_left(directory: Path, wanted: Container[str], now: datetime) -> None:
    """Remove what killed runs have left in ``directory``: partial downloads, archives that were complete, and files of
    bundles in a directory of their own.

    What stays is a file that is ``wanted``, by its SHA-256, and neither too old nor too much. Raises ``OSError``.
    """
    left = [(path, found[1]) for path in directory.glob("*") if (found := _LEFT.fullmatch(path.name))]
    newest_first = sorted(left, key=lambda each: _written(each[0]), reverse=True)
    for place, (path, sha256) in enumerate(newest_first):
        age = now.timestamp() - _written(path)
        if place >= MOST_KEPT or age > LONGEST_KEPT.total_seconds() or sha256 not in wanted:
            _remove(path)
        elif path.suffix != FILES or not _is_directory(path):
            _remove_unless_ours(path)


def _is_directory(path: Path) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _is_worth_keeping(path: Path, error: BaseException) -> bool:
    # The network, and what ends the process, say nothing against the bytes that came before.
    of_this_machine = isinstance(error, OSError)
    of_the_bytes = isinstance(error, BundleError) and not isinstance(error, TransportError)
    return not of_this_machine and not of_the_bytes and is_kept(os.lstat(path).st_size)


def _written(path: Path) -> float:
    return os.lstat(path).st_mtime


def _remove_unless_ours(path: Path) -> None:
    """A link or a directory in this place would otherwise be in the way for ever."""
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        _remove(path)


def _remove(path: Path) -> None:
    if _is_directory(path):
        remove_tree(path)
    else:
        path.unlink()
